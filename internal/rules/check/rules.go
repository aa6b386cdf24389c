// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promguard/promguard/internal/relabel"
	"github.com/promguard/promguard/internal/rules/automaton"
	"github.com/promguard/promguard/internal/rules/source"
)

const bucketSuffix = "_bucket"

// rule is a drop rule as a set of series.
type rule struct {
	relabel.Rule
	labels []string
	// parts has a set per label, or is nil if the rule cannot be taken apart.
	// What has every value in its part is dropped.
	parts []*automaton.Set
	// joined is the set of the joined values. It is nil if nothing else is dropped
	// than what the parts tell, because no part may contain a separator.
	joined *automaton.Set
	// name and le are the parts of these labels, or nil. bounds is set if the
	// rule reads nothing else, so that a bound goes from every series or none.
	name, le *automaton.Set
	bounds   bool
	// nameCrosses says that the name's part may contain a separator, and what
	// follows it come from values of other labels.
	nameCrosses bool
	// answers are shared by the rules of a profile.
	answers *automaton.Answers
}

func newRule(r relabel.Rule, answers *automaton.Answers) (*rule, error) {
	names, patterns, err := r.Split()
	if err != nil {
		return nil, err
	}
	out := &rule{Rule: r, labels: names, answers: answers}
	_, pattern := r.Joined()
	if patterns == nil {
		out.joined, err = automaton.Regexp(pattern)
		return out, err
	}
	for i, p := range patterns {
		set, err := automaton.Regexp(p)
		if err != nil {
			return nil, err
		}
		out.parts = append(out.parts, set)
		crosses, err := out.mayCross(set)
		if err != nil {
			return nil, err
		}
		if crosses && len(patterns) > 1 && out.joined == nil {
			if out.joined, err = automaton.Regexp(pattern); err != nil {
				return nil, err
			}
		}
		switch names[i] {
		case model.MetricNameLabel:
			out.name, out.nameCrosses = set, crosses
		case model.BucketLabel:
			out.le = set
		}
	}
	out.bounds = len(names) == 2 && out.name != nil && out.le != nil
	return out, nil
}

// mayCross reports whether a value with a separator is in the set.
func (r *rule) mayCross(set *automaton.Set) (bool, error) {
	separator, err := automaton.Regexp("(?s:.*;.*)")
	if err != nil {
		return false, err
	}
	_, ok, err := r.answers.Witness(set, separator)
	if errors.Is(err, automaton.ErrTooLarge) {
		return true, nil
	}
	return ok, err
}

// namesRuleOut reports whether the rule drops no series of the name.
func (r *rule) namesRuleOut(name string) bool {
	if r.name == nil || r.name.Contains(name) {
		return false
	}
	// The name is all before the first separator.
	return r.joined == nil || r.labels[0] == model.MetricNameLabel && !r.nameCrosses || r.namesAndJobs()
}

// namesAndJobs reports whether the rule reads only what has no separator.
func (r *rule) namesAndJobs() bool {
	return !slices.ContainsFunc(r.labels, func(l string) bool { return l != model.MetricNameLabel && l != model.JobLabel })
}

// dropsBound reports whether the rule drops the bucket with the bound, in either
// of its spellings, of a histogram.
func (r *rule) dropsBound(histogram string, bound float64) bool {
	if r.name == nil || !r.name.Contains(histogram+bucketSuffix) {
		return false
	}
	if r.le == nil {
		// The rule may take all buckets of some series.
		return false
	}
	return r.le.Contains(labels.FormatOpenMetricsFloat(bound)) || r.le.Contains(strconv.FormatFloat(bound, 'g', -1, 64))
}

// selector is a series selector as sets of label values.
type selector struct {
	text     string
	matchers map[string][]*automaton.Set
	// name is the metric's name if the selector names one.
	name string
	// anyName says that a variable gives the name.
	anyName bool
	// anyBound says that a variable may select by le.
	anyBound bool
}

// newSelector leaves out matchers whose value a variable decides, so that the
// selector sees at least what the dashboard asks for.
func newSelector(matchers []*labels.Matcher) (*selector, error) {
	s := &selector{matchers: map[string][]*automaton.Set{}, text: selectorText(matchers)}
	for _, m := range matchers {
		if source.HasMarker(m.Name) {
			s.anyBound = true
			continue
		}
		if source.HasMarker(m.Value) {
			s.anyBound = s.anyBound || m.Name == model.BucketLabel
			if m.Name == model.MetricNameLabel {
				s.anyName = true
			}
			if m.Type != labels.MatchEqual {
				continue
			}
		}
		set, err := matcherSet(m)
		if err != nil {
			return nil, err
		}
		s.matchers[m.Name] = append(s.matchers[m.Name], set)
		if m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual && !source.HasMarker(m.Value) {
			s.name = m.Value
		}
	}
	if s.name != "" {
		s.anyName = false
	}
	return s, nil
}

// allBounds reports whether no bound is left out.
func (s *selector) allBounds(answers *automaton.Answers) bool {
	for _, set := range s.matchers[model.BucketLabel] {
		_, ok, err := answers.Witness(set.Not(), automaton.Literal("").Not())
		if err != nil || ok {
			return false
		}
	}
	return true
}

func matcherSet(m *labels.Matcher) (*automaton.Set, error) {
	switch m.Type {
	case labels.MatchEqual:
		if !source.HasMarker(m.Value) {
			return automaton.Literal(m.Value), nil
		}
		var parts []string
		for _, text := range source.SplitMarkers(m.Value) {
			parts = append(parts, regexp.QuoteMeta(text))
		}
		return automaton.Regexp(strings.Join(parts, ".*"))
	case labels.MatchNotEqual:
		return automaton.Literal(m.Value).Not(), nil
	case labels.MatchRegexp:
		return automaton.Regexp(m.Value)
	case labels.MatchNotRegexp:
		set, err := automaton.Regexp(m.Value)
		if err != nil {
			return nil, err
		}
		return set.Not(), nil
	}
	return nil, fmt.Errorf("the matcher %s is of no known type", m)
}

// meet says how the series that a rule drops and those that a selector selects
// lie to each other.
type meet int

const (
	disjoint meet = iota
	// overlap: some of the selected series may be dropped.
	overlap
	// covered: all of them are.
	covered
)

// meeting compares the rule with the selector. The example is a series that is
// dropped and selected; its unnamed labels are free. The error is
// automaton.ErrTooLarge.
func (r *rule) meeting(s *selector) (m meet, example string, err error) {
	// Names first: nearly every pair differs there, and a literal costs nothing.
	if s.name != "" && r.namesRuleOut(s.name) {
		return disjoint, "", nil
	}
	if ok, err := s.satisfiable(r.answers); err != nil || !ok {
		return disjoint, "", err
	}
	values := make([][]*automaton.Set, 0, len(r.labels))
	for _, l := range r.labels {
		values = append(values, s.matchers[l])
	}
	texts, ok, err := r.witness(values)
	if err != nil || !ok {
		return disjoint, "", err
	}
	m = overlap
	left, err := r.leaves(values)
	if err != nil {
		return disjoint, "", err
	}
	if !left {
		m = covered
	}
	names := r.labels
	if s.name != "" && !slices.Contains(names, model.MetricNameLabel) {
		names, texts = append(slices.Clone(names), model.MetricNameLabel), append(texts, s.name)
	}
	return m, seriesText(names, texts), nil
}

// satisfiable reports whether any series can be selected at all.
func (s *selector) satisfiable(answers *automaton.Answers) (bool, error) {
	for _, sets := range s.matchers {
		if len(sets) < 2 {
			continue
		}
		if _, ok, err := answers.Witness(sets...); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

// witness returns label values that the rule drops and the matchers select.
func (r *rule) witness(values [][]*automaton.Set) ([]string, bool, error) {
	if r.parts == nil {
		return r.answers.WitnessJoined(r.joined, ';', values)
	}
	texts, ok, err := r.witnessOfParts(values)
	if err != nil || ok || r.joined == nil {
		return texts, ok, err
	}
	// Names of metrics and jobs with a separator are taken for none that there are;
	// otherwise every rule for names that begin alike would concern every job.
	plain, err := automaton.Regexp("[^;]*")
	if err != nil {
		return nil, false, err
	}
	values = slices.Clone(values)
	for i, l := range r.labels {
		if l == model.MetricNameLabel || l == model.JobLabel {
			values[i] = append(slices.Clone(values[i]), plain)
		}
	}
	return r.answers.WitnessJoined(r.joined, ';', values)
}

func (r *rule) witnessOfParts(values [][]*automaton.Set) ([]string, bool, error) {
	var texts []string
	var undecided error
	for i, part := range r.parts {
		text, ok, err := r.answers.Witness(append(slices.Clone(values[i]), part)...)
		switch {
		case err != nil:
			undecided = err
		case !ok:
			// One label that cannot meet settles it.
			return nil, false, nil
		}
		texts = append(texts, text)
	}
	return texts, undecided == nil, undecided
}

// leaves reports whether the matchers may select a series that the rule does not
// drop.
func (r *rule) leaves(values [][]*automaton.Set) (bool, error) {
	if r.parts == nil {
		_, ok, err := r.answers.WitnessJoined(r.joined.Not(), ';', values)
		if errors.Is(err, automaton.ErrTooLarge) {
			return true, nil
		}
		return ok, err
	}
	for i, part := range r.parts {
		_, ok, err := r.answers.Witness(append(slices.Clone(values[i]), part.Not())...)
		if errors.Is(err, automaton.ErrTooLarge) || ok {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
	return false, nil
}

// coversNames reports whether the rule's names include all that the selector's
// do.
func (r *rule) coversNames(s *selector) bool {
	sets := append(slices.Clone(s.matchers[model.MetricNameLabel]), r.name.Not())
	_, ok, err := r.answers.Witness(sets...)
	return err == nil && !ok
}
