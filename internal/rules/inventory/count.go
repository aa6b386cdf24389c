// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"cmp"
	"context"
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
