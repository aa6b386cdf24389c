// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package relabel

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/prometheus/model/labels"
)

// Counted is a Dropper that counts what it drops, for the scrape path. A nil
// *Counted drops nothing. Any number of goroutines may use it.
type Counted struct {
	dropped *prometheus.CounterVec
	current atomic.Pointer[countedRules]
}

type countedRules struct {
	dropper *Dropper
	// dropped has one counter per rule.
	dropped []prometheus.Counter
}

// NewCounted registers the counters of d's rules with reg, which may be nil, and
// starts each at 0. Like promauto it panics if they are registered there already.
func NewCounted(d *Dropper, reg prometheus.Registerer) *Counted {
	c := &Counted{dropped: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
		Name: "promguard_drop_rules_dropped_series_total",
		Help: "Series dropped by the default drop rules, by the first rule that matches. " +
			"Counted when a target's scrapes meet a series for the first time, not at every scrape.",
	}, []string{"profile", "rule"})}
	c.Replace(d)
	return c
}

// Replace has d's rules hold for what is dropped from now on. What rules that
// are gone have dropped stays counted.
func (c *Counted) Replace(d *Dropper) {
	p := d.Profile()
	rules := &countedRules{dropper: d, dropped: make([]prometheus.Counter, 0, len(p.Rules))}
	for _, r := range p.Rules {
		rules.dropped = append(rules.dropped, c.dropped.WithLabelValues(p.Name, r.ID))
	}
	c.current.Store(rules)
}

// Apply returns the labels of a series unchanged, or empty labels if a rule
// drops it, which is how Prometheus's scrape loop is told to forget a series.
// The labels are those after the scrape pool's own relabelling, target labels
// included. Empty labels stay empty and are not counted.
func (c *Counted) Apply(lset labels.Labels) labels.Labels {
	if c == nil || lset.IsEmpty() {
		return lset
	}
	rules := c.current.Load()
	rule, drop := rules.dropper.Drop(lset)
	if !drop {
		return lset
	}
	rules.dropped[rule].Inc()
	return labels.EmptyLabels()
}
