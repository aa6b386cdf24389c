// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package promguard

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/prometheus/prometheus/internal/relabel"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"
)

// What comes of a rule that reads nothing but what is dropped.
const (
	effectEmpty  = "empty"  // It returns nothing, or misses a part.
	effectAbsent = "absent" // It takes the series for gone: absent() is true, unless lets through.
)

// blindRules are the recording and alerting rules with a selector that can match
// nothing but what the drop rules of scrapes discard.
type blindRules struct {
	logger *slog.Logger
	desc   *prometheus.Desc

	mu      sync.Mutex
	found   []blindSelector
	samples storage.Queryable
}

// blindSelector is such a selector of a rule.
type blindSelector struct {
	blindKey
	// jobs are those that the drop rule is about, empty if it is about every job.
	jobs     []string
	matchers []*labels.Matcher
}

// blindKey is what is told of it.
type blindKey struct{ file, group, rule, selector, dropRule, effect string }

func newBlindRules(logger *slog.Logger, reg prometheus.Registerer) *blindRules {
	b := &blindRules{logger: logger, desc: prometheus.NewDesc("prometheus_guard_blind_rules",
		"Recording and alerting rules with a selector that can match nothing but what a default drop rule discards, and matches nothing now, by drop rule and effect. The log names them.",
		[]string{"drop_rule", "effect"}, nil)}
	reg.MustRegister(b)
	return b
}

// JudgeRules warns of the recording and alerting rules that the drop rules blind,
// once of each. It is called when rules were loaded; the drop rules may have
// changed, too.
func (f *Flags) JudgeRules(groups func() []*rules.Group, samples storage.Queryable) {
	if f.dropRules == nil {
		return
	}
	r := f.dropRules
	r.mu.Lock()
	d := r.inForce
	r.mu.Unlock()
	r.blind.judge(d, groups(), samples)
}

func (b *blindRules) judge(d *relabel.Dropper, groups []*rules.Group, samples storage.Queryable) {
	found := findBlind(d, groups)
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range found {
		if slices.ContainsFunc(b.found, func(o blindSelector) bool { return o.blindKey == s.blindKey }) {
			continue
		}
		msg := "A rule selects series that the drop rules discard: there is nothing for it to read"
		if s.effect == effectAbsent {
			msg = "A rule fires where series are absent that the drop rules discard: they are never there"
		}
		b.logger.Warn(msg, "file", s.file, "group", s.group, "rule", s.rule, "selector", s.selector,
			"drop_rule", s.dropRule, "jobs", cmp.Or(strings.Join(s.jobs, ","), "every"),
			"keep", "a file for --guard.drop-rules with without: ["+s.dropRule+"], or the label __promguard_drop_rules__ of targets")
	}
	b.found, b.samples = found, samples
}

// findBlind returns the blind selectors of the rules. What rules record is dropped
// by none.
func findBlind(d *relabel.Dropper, groups []*rules.Group) []blindSelector {
	recorded := map[string]bool{}
	for _, g := range groups {
		for _, r := range g.Rules() {
			if _, ok := r.(*rules.RecordingRule); ok {
				recorded[r.Name()] = true
			}
		}
	}
	var found []blindSelector
	for _, g := range groups {
		for _, r := range g.Rules() {
			parser.Inspect(r.Query(), func(n parser.Node, path []parser.Node) error {
				vs, ok := n.(*parser.VectorSelector)
				if !ok || slices.ContainsFunc(vs.LabelMatchers, func(m *labels.Matcher) bool {
					return m.Name == labels.MetricName && recorded[m.Value]
				}) {
					return nil
				}
				if i, covered := d.Covers(vs.LabelMatchers); covered {
					by := d.Profile().Rules[i]
					key := blindKey{g.File(), g.Name(), r.Name(), vs.String(), by.ID, effectOf(n, path)}
					found = append(found, blindSelector{key, by.Jobs, vs.LabelMatchers})
				}
				return nil
			})
		}
	}
	return found
}

// effectOf says what comes of a selector that matches nothing, from its ancestors.
func effectOf(n parser.Node, path []parser.Node) string {
	for i, ancestor := range path {
		child := n
		if i+1 < len(path) {
			child = path[i+1]
		}
		switch a := ancestor.(type) {
		case *parser.Call:
			if a.Func.Name == "absent" || a.Func.Name == "absent_over_time" {
				return effectAbsent
			}
		case *parser.BinaryExpr:
			if a.Op == parser.LUNLESS && child == parser.Node(a.RHS) {
				return effectAbsent
			}
		}
	}
	return effectEmpty
}

// Describe implements prometheus.Collector.
func (b *blindRules) Describe(c chan<- *prometheus.Desc) { c <- b.desc }

// Collect implements prometheus.Collector. A rule is not blind if there is
// something to read after all: of a target that keeps it, or from elsewhere.
func (b *blindRules) Collect(c chan<- prometheus.Metric) {
	b.mu.Lock()
	found, samples := b.found, b.samples
	b.mu.Unlock()
	type counted struct{ file, group, rule, dropRule, effect string }
	seen, counts := map[counted]bool{}, map[[2]string]float64{}
	for _, s := range found {
		key := counted{s.file, s.group, s.rule, s.dropRule, s.effect}
		if !seen[key] && !hasSamples(samples, s.matchers) {
			seen[key] = true
			counts[[2]string{s.dropRule, s.effect}]++
		}
	}
	for labels, n := range counts {
		c <- prometheus.MustNewConstMetric(b.desc, prometheus.GaugeValue, n, labels[:]...)
	}
}

// hasSamples reports whether any series that the matchers select has a sample that
// an evaluation would find now.
func hasSamples(samples storage.Queryable, matchers []*labels.Matcher) bool {
	const lookback = 5 * time.Minute // Prometheus's default.
	now := time.Now()
	hints := &storage.SelectHints{Start: now.Add(-lookback).UnixMilli(), End: now.UnixMilli(), Limit: 1}
	q, err := samples.Querier(hints.Start, hints.End)
	if err != nil {
		return false
	}
	defer q.Close()
	return q.Select(context.Background(), false, hints, matchers...).Next()
}
