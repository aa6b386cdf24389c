// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"errors"
	"slices"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promguard/promguard/internal/relabel"
	"github.com/promguard/promguard/internal/rules/automaton"
)

// scope is a rule as matchers.
type scope struct {
	// labels are what the rule reads.
	labels []string
	// name is the set of the names it may drop, if it can be taken apart and reads
	// the name; joined is set if it cannot be taken apart.
	name, joined *automaton.Set
	// matchers are those of its labels other than the name. They are nil if it
	// cannot be taken apart.
	matchers []*labels.Matcher
	// many says that it reads labels that may have very many values.
	many bool
	// wholeNames says that it drops every series of its names.
	wholeNames bool
}

func newScope(r relabel.Rule) (scope, error) {
	names, patterns, err := r.Split()
	if err != nil {
		return scope{}, err
	}
	s := scope{labels: names}
	for _, n := range names {
		s.many = s.many || n != model.MetricNameLabel && n != model.JobLabel && n != model.BucketLabel
	}
	if patterns == nil {
		_, pattern := r.Joined()
		s.joined, err = automaton.Regexp(pattern)
		return s, err
	}
	s.matchers = []*labels.Matcher{}
	for i, n := range names {
		if n == model.MetricNameLabel {
			if s.name, err = automaton.Regexp(patterns[i]); err != nil {
				return scope{}, err
			}
			continue
		}
		m, err := labels.NewMatcher(labels.MatchRegexp, n, patterns[i])
		if err != nil {
			return scope{}, err
		}
		s.matchers = append(s.matchers, m)
	}
	s.wholeNames = len(names) == 1 && s.name != nil
	return s, nil
}

// concerns reports whether the rule may drop series of the name.
func (s *scope) concerns(name string) (bool, error) {
	if s.joined == nil {
		return s.name == nil || s.name.Contains(name), nil
	}
	i := slices.Index(s.labels, model.MetricNameLabel)
	if i < 0 {
		return true, nil
	}
	values := make([][]*automaton.Set, len(s.labels))
	values[i] = []*automaton.Set{automaton.Literal(name)}
	_, ok, err := automaton.WitnessJoined(s.joined, ';', values)
	if errors.Is(err, automaton.ErrTooLarge) {
		return true, nil
	}
	return ok, err
}
