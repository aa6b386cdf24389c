// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb"
)

// span is twice the time of the samples and more: each series comes as a whole, and
// a database takes nothing older than half of its block.
const span = 4 * 24 * time.Hour

// WriteBlock writes every series as one block into dir, a directory of data for
// Prometheus that is created if it is not there.
func WriteBlock(ctx context.Context, dir string, size Size) (err error) {
	block, err := tsdb.NewBlockWriter(slog.New(slog.DiscardHandler), dir, span.Milliseconds())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, block.Close()) }()
	err = Write(size, func(series labels.Labels, times []int64, values []float64) error {
		app := block.Appender(ctx)
		for i, t := range times {
			if _, err := app.Append(0, series, t, values[i]); err != nil {
				return errors.Join(err, app.Rollback())
			}
		}
		return app.Commit()
	})
	if err != nil {
		return err
	}
	_, err = block.Flush(ctx)
	return err
}
