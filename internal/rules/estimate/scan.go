// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"github.com/prometheus/common/model"

	"github.com/promguard/promguard/internal/relabel"
	"github.com/promguard/promguard/internal/rules/evaluate"
)

// Scan counts what the rules drop of scrapes. The error is that of an invalid profile.
func Scan(p relabel.Profile, name string, series []evaluate.Series) (Counts, error) {
	dropper, err := relabel.Compile(p)
	if err != nil {
		return Counts{}, err
	}
	c := newCounts(name, p)
	for i := range series {
		job := series[i].Labels.Get(model.JobLabel)
		c.All[job]++
		if rule, drop := dropper.Drop(series[i].Labels); drop {
			c.ByRule[rule][job]++
		}
	}
	return c, nil
}
