// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package scrape

import (
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
)

// dropRulesLabel is the label that names the default drop rules of a target. It
// is set before relabelling to the profile in force, so that the pages of targets
// and of service discovery show it, and labels or relabel_configs may set it to
// off or to another profile. Like all labels that begin with __ it reaches no
// series.
const dropRulesLabel = "__promguard_drop_rules__"

// DropRules drop series by default. Any number of goroutines may use them.
type DropRules interface {
	// InForce returns the rules that hold for targets that name no others.
	InForce() config.DropRules
	// Pool returns the rules of that name for a scrape pool, or nil if they drop
	// nothing. They are applied to the labels of each series that a scrape meets
	// for the first time, after the pool's own relabelling; empty labels mean that
	// the series is dropped.
	Pool(scrapeJob, profile string) func(labels.Labels) labels.Labels
	// Forget is called when a scrape pool is no more.
	Forget(scrapeJob string)
}

// withDropRules returns the scrape config completed by the default drop rules. It
// is a copy, because the one that it is given belongs to whoever loaded it, may be
// applied again, and may be the one that a scrape pool reads and compares with.
func (o *Options) withDropRules(c *config.ScrapeConfig) *config.ScrapeConfig {
	if o.DropRules == nil {
		return c
	}
	completed := *c
	completed.DropRules = o.DropRules.InForce()
	return &completed
}

// dropSeries returns the drop rules for a target, or nil.
func (sp *scrapePool) dropSeries(t *Target) func(labels.Labels) labels.Labels {
	if sp.options.DropRules == nil {
		return nil
	}
	return sp.options.DropRules.Pool(sp.config.JobName, t.GetValue(dropRulesLabel))
}

func (sp *scrapePool) forgetDropRules() {
	if sp.options.DropRules != nil {
		sp.options.DropRules.Forget(sp.config.JobName)
	}
}
