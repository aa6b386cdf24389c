// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package relabel

import (
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// Covers reports whether the profile drops every series that the matchers select,
// and the index of the rule that does, or -1. Of a rule that holds in some jobs
// that is said of the series of these jobs, if the matchers select one of them.
//
// The matchers must name their metrics, one or several as a|b: it is false for what
// selects by other patterns of names, and for what only several rules together
// cover, but for several names.
func (d *Dropper) Covers(matchers []*labels.Matcher) (rule int, covered bool) {
	names, ok := valuesOf(model.MetricNameLabel, matchers)
	if !ok || len(names) == 0 {
		return -1, false
	}
	first := -1
	for _, name := range names {
		i := slices.IndexFunc(d.concerned(name), func(i int) bool { return d.covers(i, name, matchers) })
		if i < 0 {
			return -1, false
		}
		if first < 0 {
			first = d.concerned(name)[i]
		}
	}
	return first, true
}

// covers reports whether the rule drops every series of the name that the matchers
// select.
func (d *Dropper) covers(i int, name string, matchers []*labels.Matcher) bool {
	c, jobs := &d.rules[i], d.profile.Rules[i].Jobs
	if c.parts == nil || strings.Contains(name, separator) {
		return false
	}
	own := len(c.labels)
	if len(jobs) > 0 {
		own-- // The scope is the last label, see Joined.
		selected := func(job string) bool { return admits(model.JobLabel, job, matchers) }
		if !slices.ContainsFunc(jobs, selected) {
			return false
		}
	}
	for k, l := range c.labels[:own] {
		values, ok := []string{name}, true
		if l != model.MetricNameLabel {
			values, ok = valuesOf(l, matchers)
		}
		if !ok && !matchesAll(c.parts[k]) {
			return false
		}
		for _, v := range values {
			if strings.Contains(v, separator) || !c.parts[k].MatchString(v) {
				return false
			}
		}
	}
	return true
}

// valuesOf returns the values of a label that the matchers leave, or false if
// those have no list of them.
func valuesOf(label string, matchers []*labels.Matcher) ([]string, bool) {
	for _, m := range matchers {
		if m.Name != label {
			continue
		}
		var values []string
		switch {
		case m.Type == labels.MatchEqual:
			values = []string{m.Value}
		case m.Type == labels.MatchRegexp && len(m.SetMatches()) > 0:
			values = slices.Clone(m.SetMatches())
		default:
			continue
		}
		return slices.DeleteFunc(values, func(v string) bool { return !admits(label, v, matchers) }), true
	}
	return nil, false
}

// admits reports whether the matchers select series with the value.
func admits(label, value string, matchers []*labels.Matcher) bool {
	return !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return m.Name == label && !m.Matches(value) })
}

// matchesAll reports whether the regex is one that matches every value.
func matchesAll(m *labels.FastRegexMatcher) bool {
	re, err := syntax.Parse(m.GetRegexString(), syntax.Perl|syntax.DotNL)
	return err == nil && re.Op == syntax.OpStar && re.Sub[0].Op == syntax.OpAnyChar
}
