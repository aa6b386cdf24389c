// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package relabel

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/prometheus/model/labels"
)

// Counted is a Dropper that counts what it drops, for the scrape path. A nil
// *Counted drops nothing. Any number of goroutines may use it.
type Counted struct {
	dropper *Dropper
	// dropped has one counter per rule.
	dropped []prometheus.Counter
}

// NewCounted registers the counters of d's rules with reg, which may be nil, and
// starts each at 0. Like promauto it panics if they are registered there already.
func NewCounted(d *Dropper, reg prometheus.Registerer) *Counted {
	vec := promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
		Name: "promguard_drop_rules_dropped_series_total",
		Help: "Series dropped by the default drop rules, by the first rule that matches. " +
			"Counted when a target's scrapes meet a series for the first time, not at every scrape.",
	}, []string{"profile", "rule"})
	p := d.Profile()
	c := &Counted{dropper: d, dropped: make([]prometheus.Counter, 0, len(p.Rules))}
	for _, r := range p.Rules {
		c.dropped = append(c.dropped, vec.WithLabelValues(p.Name, r.ID))
	}
	return c
}

// Apply returns the labels of a series unchanged, or empty labels if a rule
// drops it, which is how Prometheus's scrape loop is told to forget a series.
// The labels are those after the scrape pool's own relabelling, target labels
// included. Empty labels stay empty and are not counted.
func (c *Counted) Apply(lset labels.Labels) labels.Labels {
	if c == nil || lset.IsEmpty() {
		return lset
	}
	rule, drop := c.dropper.Drop(lset)
	if !drop {
		return lset
	}
	c.dropped[rule].Inc()
	return labels.EmptyLabels()
}
