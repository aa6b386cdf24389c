// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package relabel

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/prometheus/model/labels"
)

// Counters say which rules hold and what they drop from which scrape pool, in the
// patched Prometheus: nothing else in this module scrapes. Any number of goroutines
// may use them.
type Counters struct {
	rules    *prometheus.GaugeVec
	dropped  *prometheus.CounterVec
	received *prometheus.CounterVec
}

// NewCounters registers the counters with reg, which may be nil. Like promauto
// it panics if they are registered there already.
func NewCounters(reg prometheus.Registerer) *Counters {
	return &Counters{
		rules: promauto.With(reg).NewGaugeVec(prometheus.GaugeOpts{
			Name: "prometheus_guard_drop_rule_info",
			Help: "1 for each default drop rule in force, with its class.",
		}, []string{"profile", "rule", "class"}),
		// A rule meets few pools, mostly one. Counters made in advance would be the
		// product of both.
		dropped: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
			Name: "prometheus_guard_drop_rules_dropped_series_total",
			Help: "Series dropped by the default drop rules, by the first rule that matches and by scrape pool. " +
				"Counted when a target's scrapes meet a series for the first time, not at every scrape.",
		}, []string{"profile", "rule", "scrape_job"}),
		received: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
			Name: "prometheus_guard_drop_rules_dropped_samples_total",
			Help: "Samples dropped by the default drop rules that did not come by a scrape, by the first rule that matches and by how they came.",
		}, []string{"profile", "rule", "path"}),
	}
}

// Show says that p's rules hold.
func (c *Counters) Show(p Profile) {
	for _, r := range p.Rules {
		c.rules.WithLabelValues(p.Name, r.ID, string(r.Class)).Set(1)
	}
}

// Hide takes back what Show said. What p has dropped stays counted.
func (c *Counters) Hide(p Profile) {
	c.rules.DeletePartialMatch(prometheus.Labels{"profile": p.Name})
}

// Pool returns what applies d to the series of a scrape pool and counts what it
// drops: it returns the labels of a series unchanged, or empty labels if a rule
// drops it, which is how Prometheus's scrape loop is told to forget a series.
// The labels are those after the pool's own relabelling, target labels included.
// Empty labels stay empty and are not counted.
func (c *Counters) Pool(d *Dropper, scrapeJob string) func(labels.Labels) labels.Labels {
	p := d.Profile()
	return func(lset labels.Labels) labels.Labels {
		if lset.IsEmpty() {
			return lset
		}
		rule, drop := d.Drop(lset)
		if !drop {
			return lset
		}
		c.dropped.WithLabelValues(p.Name, p.Rules[rule].ID, scrapeJob).Inc()
		return labels.EmptyLabels()
	}
}

// Received returns what says of a sample that came by the path, such as otlp,
// whether d drops it, and counts those that it drops.
func (c *Counters) Received(d *Dropper, path string) (drop func(labels.Labels) bool) {
	p := d.Profile()
	return func(lset labels.Labels) bool {
		rule, drop := d.Drop(lset)
		if drop {
			c.received.WithLabelValues(p.Name, p.Rules[rule].ID, path).Inc()
		}
		return drop
	}
}

// Collect tells how many series of scrapes were dropped, by rule and pool.
func (c *Counters) Collect(out chan<- prometheus.Metric) { c.dropped.Collect(out) }

// Forget ends the counters of a scrape pool that is no more.
func (c *Counters) Forget(scrapeJob string) {
	c.dropped.DeletePartialMatch(prometheus.Labels{"scrape_job": scrapeJob})
}
