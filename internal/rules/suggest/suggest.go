// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package suggest finds series that nothing in an installation reads, and
// makes drop rules of them: of whole metrics, and of metrics that are read by
// selectors which all exclude some values of a label. Each rule is proved by
// package check to be invisible to every expression that was found, or it is
// not suggested.
//
// That nothing reads a series holds for what was searched, and says nothing of
// what was not; the result names both.
package suggest

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/promguard/promguard/internal/promapi"
	"github.com/promguard/promguard/internal/relabel"
	"github.com/promguard/promguard/internal/rules/check"
	"github.com/promguard/promguard/internal/rules/source"
)

// Finder finds series that nothing reads. Make it with New.
type Finder struct {
	evidence Evidence
	// concerns says whether an expression may read series of a name.
	concerns func(name string) bool
	// recorded are the names of recording rules' results.
	recorded map[string]bool
	readers  []reader
	// base are the rules that come first in the file, and nothing that they drop is
	// suggested.
	base relabel.Profile
}

// reader is a selector of an expression.
type reader []*labels.Matcher

// New prepares a search.
func New(e Evidence) (*Finder, error) {
	checker, err := check.New(relabel.Profile{Name: "none"}, nil)
	if err != nil {
		return nil, err
	}
	f := &Finder{evidence: e, concerns: checker.Concerns(e.Expressions), recorded: map[string]bool{}}
	for _, x := range e.Expressions {
		if x.Record != "" {
			f.recorded[x.Record] = true
		}
		if x.Listing != nil {
			f.readers = append(f.readers, x.Listing.Matchers)
		}
		for _, q := range x.Queries {
			for _, matchers := range parser.ExtractSelectors(q) {
				f.readers = append(f.readers, matchers)
			}
		}
	}
	return f, nil
}

// Unread reports whether a name may be suggested: nothing was found that reads
// it, and it is none of those that Prometheus makes itself or records.
func (f *Finder) Unread(name string) bool {
	return !f.concerns(name) && !own(name) && !f.Recorded(name) && writable(name)
}

// own reports whether Prometheus makes the series itself: its user interface and
// many alerts that are written later rely on them, and the next search on the metric
// that names the drop rules in force.
func own(name string) bool {
	return name == "up" || name == "target_info" || strings.HasPrefix(name, "scrape_") || name == "ALERTS" || name == "ALERTS_FOR_STATE" || name == infoMetric
}

// Recorded reports whether a recording rule makes the series, whose results are
// often there for others: for remote write and federation.
func (f *Finder) Recorded(name string) bool {
	return f.recorded[name] || strings.Contains(name, ":")
}

// writable reports whether a rule can name the metric beyond doubt.
func writable(name string) bool {
	return name != "" && !strings.Contains(name, ";") && strconv.CanBackquote(name) && model.UTF8Validation.IsValidMetricName(name)
}

// Blockers returns the expressions that may read any metric. As long as there are
// such, nothing can be suggested.
func (f *Finder) Blockers() ([]source.Expression, error) {
	checker, err := check.New(relabel.Profile{Name: "none"}, nil)
	if err != nil {
		return nil, err
	}
	var out []source.Expression
	for _, x := range f.evidence.Expressions {
		// No metric has this name.
		if checker.Concerns([]source.Expression{x})("promguard name of nothing") {
			out = append(out, x)
		}
	}
	return out, nil
}

// Suggestion is a rule and what it saves.
type Suggestion struct {
	Rule   relabel.Rule
	Series int
}

// Whole suggests rules for metrics that nothing reads, those with most series
// first, at most top of them. The counts are by name.
func (f *Finder) Whole(counts map[string]Count, top int) []Suggestion {
	var out []Suggestion
	for _, family := range f.families(counts) {
		s := Suggestion{Rule: relabel.Rule{
			Class: relabel.ClassUnused, SourceLabels: []string{model.MetricNameLabel}, Regex: promapi.OneOf(family),
		}}
		churned := false
		for _, name := range family {
			s.Series += counts[name].Series
			churned = churned || counts[name].Churned
		}
		if s.Series == 0 {
			continue
		}
		if base, ok := strings.CutSuffix(family[0], "_bucket"); ok && len(family) == 1 && f.stays(counts, base+"_sum") && f.stays(counts, base+"_count") {
			s.Rule.Class = relabel.ClassBucket
		}
		s.Rule.ID = "unread-" + identifier(strings.TrimSuffix(family[0], "_bucket"))
		s.Rule.Saving = fmt.Sprintf("%d series now", s.Series)
		if churned {
			s.Rule.Saving = fmt.Sprintf("%d series in memory, such that have ended among them", s.Series)
		}
		out = append(out, s)
	}
	return first(out, top)
}

// stays reports whether there is such a metric, and it is not suggested.
func (f *Finder) stays(counts map[string]Count, name string) bool {
	_, ok := counts[name]
	return ok && !f.Unread(name)
}

func first(all []Suggestion, top int) []Suggestion {
	slices.SortStableFunc(all, func(a, b Suggestion) int {
		return cmp.Or(cmp.Compare(b.Series, a.Series), cmp.Compare(a.Rule.Regex, b.Rule.Regex))
	})
	return all[:min(top, len(all))]
}

// families returns the unread names, those of a histogram or summary of which
// nothing is read together.
func (f *Finder) families(counts map[string]Count) [][]string {
	done := map[string]bool{}
	var out [][]string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if done[name] || !f.Unread(name) {
			continue
		}
		family := []string{name}
		if members := membersOf(name, counts); len(members) > 1 && !slices.ContainsFunc(members, func(m string) bool { return !f.Unread(m) }) {
			family = members
		}
		for _, m := range family {
			done[m] = true
		}
		out = append(out, family)
	}
	return out
}

// membersOf returns the names that belong to one histogram or summary.
func membersOf(name string, counts map[string]Count) []string {
	base := name
	for _, suffix := range []string{"_bucket", "_count", "_sum"} {
		if b, ok := strings.CutSuffix(name, suffix); ok {
			base = b
		}
	}
	_, sum := counts[base+"_sum"]
	_, count := counts[base+"_count"]
	if !sum || !count {
		return nil
	}
	var out []string
	for _, suffix := range []string{"_bucket", "_count", "_sum", ""} {
		if _, ok := counts[base+suffix]; ok {
			out = append(out, base+suffix)
		}
	}
	return out
}

var noIdentifier = regexp.MustCompile("[^a-z0-9]+")

// identifier makes a rule's id of a name.
func identifier(name string) string {
	return strings.Trim(noIdentifier.ReplaceAllString(strings.ToLower(name), "-"), "-")
}

// Labels returns the labels by which every selector of a metric may exclude
// series, for the metrics with most series that are read.
func (f *Finder) Labels(counts map[string]Count, top int) map[string][]string {
	out := map[string][]string{}
	for _, name := range f.read(counts, top) {
		seen := map[string]int{}
		readers := f.readersOf(name)
		for _, r := range readers {
			of := map[string]bool{}
			for _, m := range r {
				if decides(m) {
					of[m.Name] = true
				}
			}
			for l := range of {
				seen[l]++
			}
		}
		for l, n := range seen {
			// One that does not look at the label reads all of its values.
			if n == len(readers) {
				out[name] = append(out[name], l)
			}
		}
		slices.Sort(out[name])
	}
	return out
}

// decides reports whether a matcher's label may be what a rule goes by. Bounds
// are left to rules that thin, and instances come and go.
func decides(m *labels.Matcher) bool {
	switch m.Name {
	case model.MetricNameLabel, model.BucketLabel, model.QuantileLabel, model.InstanceLabel:
		return false
	}
	return !source.HasMarker(m.Name) && !source.HasMarker(m.Value)
}

// read returns the metrics with most series that something reads.
func (f *Finder) read(counts map[string]Count, top int) []string {
	var names []string
	for name := range counts {
		if f.concerns(name) && !own(name) && !f.Recorded(name) && writable(name) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b].Series, counts[a].Series), cmp.Compare(a, b))
	})
	return names[:min(top, len(names))]
}

// readersOf returns the selectors that may read a metric.
func (f *Finder) readersOf(name string) []reader {
	var out []reader
	for _, r := range f.readers {
		if !slices.ContainsFunc(r, func(m *labels.Matcher) bool {
			return m.Name == model.MetricNameLabel && !source.HasMarker(m.Value) && !m.Matches(name)
		}) {
			out = append(out, r)
		}
	}
	return out
}

// maxValues bounds how many values of a label a rule lists.
const maxValues = 30

// ByValue suggests rules for series of metrics that are read, by values of a
// label that every selector excludes. The values are by metric and label, with the
// number of series that have them.
func (f *Finder) ByValue(values map[string]map[string]map[string]int, top int) []Suggestion {
	var out []Suggestion
	for _, name := range slices.Sorted(maps.Keys(values)) {
		best := Suggestion{}
		for _, label := range slices.Sorted(maps.Keys(values[name])) {
			if s, ok := f.byValue(name, label, values[name][label]); ok && s.Series > best.Series {
				best = s
			}
		}
		// Rules of one metric on several labels would overlap.
		if best.Series > 0 {
			out = append(out, best)
		}
	}
	return first(out, top)
}

func (f *Finder) byValue(name, label string, values map[string]int) (Suggestion, bool) {
	readers := f.readersOf(name)
	var excluded []string
	series := 0
	for _, v := range slices.Sorted(maps.Keys(values)) {
		if strings.Contains(v, ";") || !strconv.CanBackquote(v) {
			continue
		}
		if !slices.ContainsFunc(readers, func(r reader) bool { return !r.excludes(label, v) }) {
			excluded = append(excluded, v)
			series += values[v]
		}
	}
	if len(excluded) == 0 || len(excluded) > maxValues {
		return Suggestion{}, false
	}
	pattern := promapi.OneOf(excluded)
	if len(excluded) > 1 {
		pattern = "(" + pattern + ")"
	}
	return Suggestion{Series: series, Rule: relabel.Rule{
		ID: "unread-" + identifier(name) + "-by-" + identifier(label), Class: relabel.ClassDisjoint,
		SourceLabels: []string{model.MetricNameLabel, label},
		Regex:        regexp.QuoteMeta(name) + ";" + pattern,
		Saving:       fmt.Sprintf("%d series now", series),
	}}, true
}

// excludes reports whether the selector reads no series with the value, whatever
// other labels it has.
func (r reader) excludes(label, value string) bool {
	return slices.ContainsFunc(r, func(m *labels.Matcher) bool {
		return m.Name == label && decides(m) && !m.Matches(value)
	})
}
