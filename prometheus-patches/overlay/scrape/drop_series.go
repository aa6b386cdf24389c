// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package scrape

import "github.com/prometheus/prometheus/model/labels"

// dropRulesLabel is the label by which a target, or all of a scrape config's
// through labels or relabel_configs, says that the default drop rules are not for
// it: its value is off then. Like all labels that begin with __ it reaches no
// series.
const dropRulesLabel = "__promguard_drop_rules__"

// dropSeries returns the drop rules for a target, or nil.
func (sp *scrapePool) dropSeries(t *Target) func(labels.Labels) labels.Labels {
	if sp.options.DropSeries == nil || t.GetValue(dropRulesLabel) == "off" {
		return nil
	}
	return sp.options.DropSeries
}
