// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package newseries

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

const (
	// few new series are nobody's fault.
	few = 1000
	// named is the share of the sample from which somebody is named: half of the
	// tenth of all new series that is never missed.
	named = 0.05
	// most is how many culprits are named.
	most = 3
	// varied is the share of a culprit's series that differ in a label from which its
	// values are blamed. Nearly all of the series must have that label.
	varied, nearlyAll = 0.5, 0.95
)

// Report says who added series in the last minutes. What is said of a part of the
// series is estimated.
type Report struct {
	// From is when the window begins.
	From    time.Time `json:"from"`
	Created uint64    `json:"created"`
	Refused uint64    `json:"refused"`
	// Those that have 5 % of the new series or more.
	Jobs       []Share `json:"jobs"`
	Namespaces []Share `json:"namespaces"`
	Metrics    []Share `json:"metrics"`
	// Culprits are distinct sets of series, the first one the most telling: large, and
	// with much in common. There is none if few series are new.
	Culprits []Culprit `json:"culprits"`
}

// Share is how many of the new series have a value of a label.
type Share struct {
	Name   string  `json:"name"`
	Series uint64  `json:"series"`
	Share  float64 `json:"share"`
}

// Culprit is a set of new series that have labels in common. What they have not in
// common is empty.
type Culprit struct {
	Job       string `json:"job,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Metric    string `json:"metric,omitempty"`
	// Labels are those with the most values in the sample of these series.
	Labels []Label `json:"labels"`

	Created uint64  `json:"created"`
	Refused uint64  `json:"refused"`
	Share   float64 `json:"share"`

	// Relabel is a line of YAML for a scrape_config that drops the series with these
	// labels, the first of Labels included if its values are ever new, and no other.
	// It is empty where that would be all of a job or namespace.
	Relabel string `json:"relabel,omitempty"`
	// Limit is a line of YAML for --guard.series-limits that lets their job, or
	// namespace or metric, have no more series than it has now.
	Limit string `json:"limit,omitempty"`

	score float64
}

// Label is how many values a label has among so many sampled series that have it.
type Label struct {
	Name   string `json:"name"`
	Values int    `json:"values"`
	Series int    `json:"series"`
}

// fresh is how long a report is told again: it takes 10 ms.
const fresh = time.Second

// Recent returns a report that may be a second old, however many ask. Of a nil Tracker
// there is none.
func (t *Tracker) Recent() *Report {
	if t == nil {
		return nil
	}
	t.reporting.Lock()
	defer t.reporting.Unlock()
	if t.last == nil || time.Since(t.lastAt) > fresh {
		t.last = t.Report()
		t.lastAt = time.Now()
	}
	return t.last
}

// Report returns who added series in the last minutes.
func (t *Tracker) Report() *Report {
	w := t.window()
	r := &Report{From: w.from, Created: w.created, Refused: w.refused, Culprits: []Culprit{}}
	all := float64(w.created + w.refused)
	groups := w.cohort.groups(named * all)
	for d, to := range []*[]Share{job: &r.Jobs, namespace: &r.Namespaces, metric: &r.Metrics} {
		*to = shares(groups, dimension(d), all)
	}
	if all < few {
		return r
	}
	for rest := w.cohort; len(r.Culprits) < most; {
		g := rest.largest(named * all)
		if g == nil {
			break
		}
		in, out := rest.split(g)
		c := in.describe(g, all)
		c.Limit = t.limit(&g.by)
		r.Culprits = append(r.Culprits, c)
		rest = out
	}
	slices.SortStableFunc(r.Culprits, func(a, b Culprit) int { return cmp.Compare(b.score, a.score) })
	return r
}

// Log returns what a log line says of the one who added most, nothing if nobody did.
func (r *Report) Log() []any {
	if len(r.Culprits) == 0 {
		return nil
	}
	c := &r.Culprits[0]
	out := []any{"new_series", r.Created + r.Refused, "since", r.From, "share", fmt.Sprintf("%.0f%%", 100*c.Share), "culprit", c}
	if c.Relabel != "" {
		out = append(out, "to_drop_them", c.Relabel)
	}
	if c.Limit != "" {
		out = append(out, "to_limit_them", c.Limit)
	}
	return out
}

// String names the culprit by its labels.
func (c *Culprit) String() string {
	var b strings.Builder
	for i, v := range []string{c.Job, c.Namespace, c.Metric} {
		if v != "" {
			fmt.Fprintf(&b, "%s=%q, ", dimensionLabels[i], v)
		}
	}
	if l := c.Labels; len(l) > 0 {
		fmt.Fprintf(&b, "and %d values of %s in %d series", l[0].Values, l[0].Name, l[0].Series)
	}
	return strings.TrimSuffix(b.String(), ", ")
}

// cohort is a part of the sample.
type cohort []weighted

func (c cohort) weight() (w float64) {
	for _, s := range c {
		w += s.weight
	}
	return w
}

// shares returns the values of one label by which there are groups, the largest first.
func shares(groups []*group, d dimension, all float64) []Share {
	out := []Share{}
	for _, g := range groups {
		if g.labels == 1 && g.by[d].hash != 0 {
			out = append(out, Share{Name: g.by[d].String(), Series: round(g.weight), Share: g.weight / all})
		}
	}
	slices.SortFunc(out, func(a, b Share) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// String marks what is not whole, so that two that begin alike are not the same.
func (v value) String() string {
	if v.cut {
		return fmt.Sprintf("%s...#%08x", v.text, uint32(v.hash))
	}
	return v.text
}

// group is the series that have some labels in common.
type group struct {
	by     [dimensions]value // empty: not in common
	labels int               // how many are not empty
	weight float64
}

// score prefers a group to one three times as large with one label less in common.
func (g *group) score() float64 { return g.weight * math.Pow(3, float64(g.labels)) }

func compare(a, b *group) int {
	return cmp.Or(cmp.Compare(a.score(), b.score()),
		cmp.Compare(a.by[job].text, b.by[job].text), cmp.Compare(a.by[namespace].text, b.by[namespace].text), cmp.Compare(a.by[metric].text, b.by[metric].text))
}

// groups returns all groups that have at least so much weight, by every combination
// of labels.
func (c cohort) groups(least float64) (out []*group) {
	for which := 1; which < 1<<dimensions; which++ {
		found := map[[dimensions]uint64]*group{}
	series:
		for _, s := range c {
			var key [dimensions]uint64
			for d := range dimensions {
				if which&(1<<d) == 0 {
					continue
				}
				if key[d] = s.by[d].hash; key[d] == 0 {
					continue series
				}
			}
			g := found[key]
			if g == nil {
				g = &group{labels: bits.OnesCount(uint(which))}
				for d := range dimensions {
					if key[d] != 0 {
						g.by[d] = s.by[d]
					}
				}
				found[key] = g
			}
			g.weight += s.weight
		}
		for _, g := range found {
			if g.weight >= least {
				out = append(out, g)
			}
		}
	}
	return out
}

// largest returns the group to blame, nil if there is none. What nearly all series
// have in common says little: it is blamed only if nothing else is.
func (c cohort) largest(least float64) (largest *group) {
	groups, everything := c.groups(least), nearlyAll*c.weight()
	for _, others := range []bool{true, false} {
		for _, g := range groups {
			if others && g.weight >= everything {
				continue
			}
			if largest == nil || compare(g, largest) > 0 {
				largest = g
			}
		}
		if largest != nil {
			break
		}
	}
	return largest
}

// split divides the series by whether they are in a group.
func (c cohort) split(g *group) (in, out cohort) {
	for _, s := range c {
		if s.in(g) {
			in = append(in, s)
		} else {
			out = append(out, s)
		}
	}
	return in, out
}

// describe says who the series of a group are.
func (c cohort) describe(g *group, all float64) Culprit {
	out := Culprit{
		Job: g.by[job].String(), Namespace: g.by[namespace].String(), Metric: g.by[metric].String(),
		Labels: c.labels(&g.by), Share: g.weight / all, score: g.score(),
	}
	refused := 0.0
	for _, s := range c {
		if s.refused {
			refused += s.weight
		}
	}
	out.Created, out.Refused = round(g.weight-refused), round(refused)
	out.Relabel = relabelRule(&g.by, out.blamed(len(c)))
	return out
}

func (s *series) in(g *group) bool {
	for d, v := range g.by {
		if v.hash != 0 && v.hash != s.by[d].hash {
			return false
		}
	}
	return true
}

// labels returns the open labels with the most values, three at most.
func (c cohort) labels(by *[dimensions]value) []Label {
	values, have := map[string]map[uint64]struct{}{}, map[string]int{}
	for _, s := range c {
		for _, l := range s.labels {
			if values[*l.name] == nil {
				values[*l.name] = map[uint64]struct{}{}
			}
			values[*l.name][l.hash] = struct{}{}
			have[*l.name]++
		}
	}
	out := []Label{}
	for name, set := range values {
		if d := slices.Index(dimensionLabels[:], name); len(set) > 1 && (d < 0 || by[d].hash == 0) {
			out = append(out, Label{Name: name, Values: len(set), Series: have[name]})
		}
	}
	slices.SortFunc(out, func(a, b Label) int {
		return cmp.Or(cmp.Compare(b.Values, a.Values), cmp.Compare(a.Name, b.Name))
	})
	return out[:min(3, len(out))]
}

// blamed returns the label whose values make the series many, of so many that were
// sampled; empty if there is none, or if it is the metrics' names that are ever new.
func (c *Culprit) blamed(sampled int) string {
	if len(c.Labels) == 0 {
		return ""
	}
	l := c.Labels[0]
	if l.Name == labels.MetricName || l.Name == others || float64(l.Series) < nearlyAll*float64(sampled) || float64(l.Values) < varied*float64(l.Series) {
		return ""
	}
	return l.Name
}

func round(f float64) uint64 { return uint64(math.Round(f)) }
