// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"context"

	"github.com/prometheus/common/model"

	"github.com/promguard/promguard/internal/relabel"
	"github.com/promguard/promguard/internal/rules/inventory"
)

// Scan counts what the rules drop of a source that is read as a whole. The error
// is that of the source or of an invalid profile.
func Scan(ctx context.Context, p relabel.Profile, name string, source inventory.Source) (Counts, error) {
	dropper, err := relabel.Compile(p)
	if err != nil {
		return Counts{}, err
	}
	c := newCounts(name, p)
	err = source.Each(ctx, func(s inventory.Series) error {
		t := Tally{Head: 1, Rate: s.Rate}
		if s.Now {
			t.Series = 1
			if s.Rate == 0 {
				t.Unrated = 1
			}
		} else {
			t.Rate = 0
		}
		job := s.Labels.Get(model.JobLabel)
		c.addAll(job, t)
		if rule, drop := dropper.Drop(s.Labels); drop {
			c.add(rule, job, t)
		}
		return nil
	})
	return c, err
}
