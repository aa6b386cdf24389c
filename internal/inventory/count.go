// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// Count says how many series a metric has.
type Count struct {
	Series int
	// Churned says that those which have ended are among them.
	Churned bool
}

// CountNames returns how many series of now each metric name has.
func CountNames(ctx context.Context, source Source) (map[string]Count, error) {
	out := map[string]Count{}
	err := source.Each(ctx, func(s Series) error {
		if !s.Now {
			return nil
		}
		name := s.Labels.Get(model.MetricNameLabel)
		c, ok := out[name]
		if !ok {
			name = strings.Clone(name)
		}
		c.Series++
		out[name] = c
		return nil
	})
	return out, err
}

// Values returns, for labels of metrics, how many series of now have each value.
// The wanted labels are by metric name; a series without a label has the value "".
func Values(ctx context.Context, source Source, wanted map[string][]string) (map[string]map[string]map[string]int, error) {
	out := map[string]map[string]map[string]int{}
	for name, names := range wanted {
		out[name] = map[string]map[string]int{}
		for _, l := range names {
			out[name][l] = map[string]int{}
		}
	}
	err := source.Each(ctx, func(s Series) error {
		if !s.Now {
			return nil
		}
		for label, values := range out[s.Labels.Get(model.MetricNameLabel)] {
			v := s.Labels.Get(label)
			if _, ok := values[v]; !ok {
				v = strings.Clone(v)
			}
			values[v]++
		}
		return nil
	})
	return out, err
}

// Merge says what a label of a metric costs.
type Merge struct {
	Name, Label string
	// Values counts the label's values. Series counts the metric's series, Without
	// how many would be left if they did not have the label.
	Values, Series, Without int
}

// Merges returns what the labels of metrics cost, except for those that kept is
// true of.
func Merges(ctx context.Context, source Source, names []string, kept func(name, label string) bool) ([]Merge, error) {
	type sets struct{ values, without map[uint64]bool }
	byName := map[string]map[string]*sets{}
	series := map[string]int{}
	for _, n := range names {
		byName[n] = map[string]*sets{}
	}
	b := labels.NewBuilder(labels.EmptyLabels())
	err := source.Each(ctx, func(s Series) error {
		name := s.Labels.Get(model.MetricNameLabel)
		byLabel := byName[name]
		if byLabel == nil || !s.Now {
			return nil
		}
		series[strings.Clone(name)]++
		s.Labels.Range(func(l labels.Label) {
			if kept(name, l.Name) {
				return
			}
			if byLabel[l.Name] == nil {
				byLabel[strings.Clone(l.Name)] = &sets{map[uint64]bool{}, map[uint64]bool{}}
			}
			b.Reset(s.Labels)
			byLabel[l.Name].without[b.Del(l.Name).Labels().Hash()] = true
			byLabel[l.Name].values[labels.FromStrings("", l.Value).Hash()] = true
		})
		return nil
	})
	var out []Merge
	for name, byLabel := range byName {
		for label, s := range byLabel {
			out = append(out, Merge{Name: name, Label: label, Values: len(s.values), Series: series[name], Without: len(s.without)})
		}
	}
	slices.SortFunc(out, func(a, b Merge) int {
		return cmp.Or(cmp.Compare(b.Series-b.Without, a.Series-a.Without), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Label, b.Label))
	})
	return out, err
}

// maxBatch bounds how many names a query has.
const maxBatch = 50

// CountNames returns how many series the metric names have: of those that wanted
// is true of, the series of now, by queries of several names; of others and of
// those that have more series than a query may read, what the server says of its
// head, if it does. The notes say what could not be counted.
func (s *Server) CountNames(ctx context.Context, wanted func(name string) bool) (counts map[string]Count, notes []string, err error) {
	names, err := s.Names(ctx)
	if err != nil {
		return nil, nil, err
	}
	head, headErr := s.Head(ctx)
	if headErr != nil {
		notes = append(notes, fmt.Sprintf("How many series a metric has could not be asked beforehand: %s.", headErr))
		// Each name alone.
		head.Rest = s.MaxSeries
	}
	counts = map[string]Count{}
	var batch []string
	size, missing := 0, 0
	flush := func() {
		if len(batch) == 0 {
			return
		}
		rows, err := s.Query(ctx, fmt.Sprintf("count by (%s) (%s)", model.MetricNameLabel, Selector(batch)))
		if err != nil {
			if missing == 0 {
				notes = append(notes, fmt.Sprintf("The series of %s and others could not be counted: %s.", batch[0], err))
			}
			missing += len(batch)
		}
		for _, r := range rows {
			counts[r.Labels.Get(model.MetricNameLabel)] = Count{Series: int(r.Value)}
		}
		batch, size = nil, 0
	}
	// The largest first, so that they are in the budget.
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(head.AtMost(b), head.AtMost(a)) })
	for _, name := range names {
		if n, ok := head.ByName[name]; ok {
			counts[name] = Count{Series: n, Churned: true}
		}
		n := head.AtMost(name)
		if n > s.MaxSeries || !wanted(name) {
			continue
		}
		if len(batch) >= maxBatch || size+n > s.MaxSeries {
			flush()
		}
		batch, size = append(batch, name), size+n
	}
	flush()
	if missing > 0 {
		notes = append(notes, fmt.Sprintf("%d metric names were not counted.", missing))
	}
	return counts, notes, ctx.Err()
}

// Values is what the function of that name is, for a server. A metric with more
// series than a query may read, and what could not be asked, is left out.
func (s *Server) Values(ctx context.Context, counts map[string]Count, wanted map[string][]string) map[string]map[string]map[string]int {
	out := map[string]map[string]map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if counts[name].Series > s.MaxSeries {
			continue
		}
		out[name] = map[string]map[string]int{}
		for _, label := range wanted[name] {
			rows, err := s.Query(ctx, fmt.Sprintf("count by (%s) (%s)", LabelName(label), Selector([]string{name})))
			if err != nil {
				continue
			}
			values := map[string]int{}
			for _, r := range rows {
				values[r.Labels.Get(label)] = int(r.Value)
			}
			out[name][label] = values
		}
	}
	return out
}
