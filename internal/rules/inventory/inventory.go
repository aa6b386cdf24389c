// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package inventory says which series an installation has: those of scrapes, of
// a data directory, or of a live server, which it reads within a budget so that
// the server does not suffer. It knows nothing of drop rules.
package inventory

import (
	"context"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promguard/promguard/internal/rules/evaluate"
)

// lookback is how old the last sample of a series may be for the series to count
// as one of now: what an instant query looks back by default.
const lookback = 5 * time.Minute

// Series is one series of an installation. Who keeps the labels copies them.
type Series struct {
	Labels labels.Labels
	// Now says that it got a sample in the last 5 minutes before the newest one.
	// The others are churned: they are still stored, and no longer scraped.
	Now bool
	// Rate is in samples per second, 0 if the source does not tell.
	Rate float64
}

// Source is an inventory that can be read as a whole, any number of times.
type Source interface {
	// Each calls visit with every series once. The error is that of reading, or
	// the first that visit returns.
	Each(ctx context.Context, visit func(Series) error) error
}

// Scrapes are series of single scrapes, all of them of now.
type Scrapes []evaluate.Series

// Each implements Source.
func (s Scrapes) Each(ctx context.Context, visit func(Series) error) error {
	for i := range s {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := visit(Series{Labels: s[i].Labels, Now: true}); err != nil {
			return err
		}
	}
	return nil
}
