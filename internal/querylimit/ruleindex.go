// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import "slices"

// field is a part of a Subject, or of the queries, that rules compare by
// equality and under whose values rules can be filed.
type field uint8

const (
	fieldFingerprint field = iota
	fieldDashboard
	fieldPanel
	fieldUser
	fieldTenant
	fieldEndpoint

	numFields
)

func (m *Match) values(f field) []string {
	switch f {
	case fieldFingerprint:
		return m.Fingerprints
	case fieldDashboard:
		return m.Dashboards
	case fieldPanel:
		return m.Panels
	case fieldUser:
		return m.Users
	case fieldTenant:
		return m.Tenants
	default:
		return m.Endpoints
	}
}

func (s *Subject) value(f field) string {
	switch f {
	case fieldDashboard:
		return s.Dashboard
	case fieldPanel:
		return s.Panel
	case fieldUser:
		return s.User
	case fieldTenant:
		return s.Tenant
	default:
		return s.Endpoint
	}
}

// crowded is how many rules may be filed under one value before a regular
// expression, if a rule has one, is the better place for it.
const crowded = 64

// ruleIndex finds the rules that match a request without looking at each. Every
// rule is filed once, under the condition that the fewest rules share; what is
// filed there is compared in full.
type ruleIndex struct {
	rules       []Rule
	byValue     [numFields]map[string][]int32
	byQuery     *patternSet
	byUserAgent *patternSet
	// queries and agents tell, for rules filed elsewhere, whether their regular
	// expressions match. They share one run for each text.
	queries, agents *patternSet
	rest            []int32
}

func newRuleIndex(rules []Rule) ruleIndex {
	x := ruleIndex{rules: rules, byQuery: newPatternSet(), byUserAgent: newPatternSet(), queries: newPatternSet(), agents: newPatternSet()}
	var counts [numFields]map[string]int
	for f := range numFields {
		x.byValue[f], counts[f] = map[string][]int32{}, map[string]int{}
		for i := range rules {
			for _, v := range rules[i].Match.values(f) {
				counts[f][v]++
			}
		}
	}
	for i := range rules {
		x.file(int32(i), &counts)
	}
	for _, s := range []*patternSet{x.byQuery, x.byUserAgent, x.queries, x.agents} {
		s.build()
	}
	return x
}

func (x *ruleIndex) file(id int32, counts *[numFields]map[string]int) {
	m := &x.rules[id].Match
	best, fewest := numFields, 0
	for f := range numFields {
		values := m.values(f)
		if len(values) == 0 {
			continue
		}
		most := 0
		for _, v := range values {
			most = max(most, counts[f][v])
		}
		if best == numFields || most < fewest {
			best, fewest = f, most
		}
	}
	switch {
	case best < numFields && (fewest <= crowded || m.Query == nil && m.UserAgent == nil):
		for _, v := range unique(m.values(best)) {
			x.byValue[best][v] = append(x.byValue[best][v], id)
		}
		x.remember(m, id)
	case m.Query != nil:
		x.byQuery.add(m.Query, id)
		if m.UserAgent != nil {
			x.agents.add(m.UserAgent, id)
		}
	case m.UserAgent != nil:
		x.byUserAgent.add(m.UserAgent, id)
	default:
		x.rest = append(x.rest, id)
	}
}

func (x *ruleIndex) remember(m *Match, id int32) {
	if m.Query != nil {
		x.queries.add(m.Query, id)
	}
	if m.UserAgent != nil {
		x.agents.add(m.UserAgent, id)
	}
}

func unique(values []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(values)))
}

// search is one request in front of the index. Every set of patterns is asked
// about it at most once.
type search struct {
	*ruleIndex

	who                                   *Subject
	texts, fingerprints                   []string
	byQuery, queries, byUserAgent, agents answer
}

// answer is what a set of patterns said.
type answer struct {
	ids   []int32
	asked bool
}

func (a *answer) of(s *patternSet, texts ...string) []int32 {
	if !a.asked {
		a.ids, a.asked = s.matchesAny(texts), true
	}
	return a.ids
}

// find returns the ids of the rules that match, in ascending order.
func (x *ruleIndex) find(who *Subject, texts, fingerprints []string) []int32 {
	if len(x.rules) == 0 {
		return nil
	}
	s := search{ruleIndex: x, who: who, texts: texts, fingerprints: fingerprints}
	var found []int32
	try := func(ids []int32) {
		for _, id := range ids {
			if s.matches(id) {
				found = append(found, id)
			}
		}
	}
	try(x.rest)
	for f := range numFields {
		if len(x.byValue[f]) == 0 {
			continue
		}
		if f == fieldFingerprint {
			for _, v := range fingerprints {
				try(x.byValue[f][v])
			}
			continue
		}
		if v := who.value(f); v != "" {
			try(x.byValue[f][v])
		}
	}
	try(s.byQuery.of(x.byQuery, texts...))
	try(s.byUserAgent.of(x.byUserAgent, who.UserAgent))
	slices.Sort(found)
	return slices.Compact(found) // Several fingerprints may have found the same rule.
}

// matches compares a rule in full, what is cheap first.
func (s *search) matches(id int32) bool {
	m, who := &s.rules[id].Match, s.who
	for f := fieldFingerprint + 1; f < numFields; f++ {
		if vs := m.values(f); len(vs) > 0 && !slices.Contains(vs, who.value(f)) {
			return false
		}
	}
	if len(m.Classes) > 0 && !slices.Contains(m.Classes, who.Class) || m.Alert != nil && *m.Alert != who.Alert {
		return false
	}
	if len(m.Fingerprints) > 0 && !slices.ContainsFunc(s.fingerprints, func(f string) bool { return slices.Contains(m.Fingerprints, f) }) {
		return false
	}
	return (m.UserAgent == nil || s.agentMatches(id)) && (m.Query == nil || s.queryMatches(id))
}

// A pattern is in one of two sets, by whether its rule is filed under it.

func (s *search) agentMatches(id int32) bool {
	return contains(s.byUserAgent.of(s.ruleIndex.byUserAgent, s.who.UserAgent), id) ||
		contains(s.agents.of(s.ruleIndex.agents, s.who.UserAgent), id)
}

func (s *search) queryMatches(id int32) bool {
	return contains(s.byQuery.of(s.ruleIndex.byQuery, s.texts...), id) ||
		contains(s.queries.of(s.ruleIndex.queries, s.texts...), id)
}

func contains(sorted []int32, id int32) bool {
	_, ok := slices.BinarySearch(sorted, id)
	return ok
}
