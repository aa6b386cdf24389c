// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package relabel

import (
	"fmt"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
)

func coveringProfile() Profile {
	rule := func(id, regex string, jobs []string, source ...string) Rule {
		return Rule{ID: id, Class: ClassUnused, SourceLabels: append([]string{"__name__"}, source...), Regex: regex, Jobs: jobs, Reason: "for tests"}
	}
	return Profile{Name: "test", Rules: []Rule{
		rule("name", "unread|unread_.*", nil),
		rule("bounds", `seen_bucket;(0\.1|3)(\.0)?`, nil, "le"),
		rule("scoped", "scoped", []string{"kubelet", "node"}),
		rule("unset", "pods;;.*", nil, "container", "pod"),
		rule("joined", `edge\b;x`, nil, "side"),
	}}
}

func TestSelectorIsCoveredIfARuleDropsAllThatItSelects(t *testing.T) {
	d := mustCompile(t, coveringProfile())
	for selector, want := range map[string]string{
		`unread`:                                 "name",
		`unread_too{a="b"}`:                      "name",
		`{__name__=~"unread|unread_too"}`:        "name",
		`{__name__=~"unread|seen_sum"}`:          "",
		`{__name__=~"unread_.*"}`:                "", // Names no metric.
		`{__name__!="x",a="b"}`:                  "",
		`{__name__=~"a|b",__name__="c"}`:         "", // Selects nothing.
		`seen_bucket`:                            "",
		`seen_bucket{le="3"}`:                    "bounds",
		`seen_bucket{le="3.0"}`:                  "bounds",
		`seen_bucket{le=~"0\\.1|3\\.0"}`:         "bounds",
		`seen_bucket{le=~"0\\.1|1"}`:             "",
		`seen_bucket{le=~"0\\.1|1",le!="1"}`:     "bounds",
		`seen_bucket{le=~"0.1"}`:                 "", // A pattern, as the dot is not quoted.
		`seen_bucket{le!="+Inf"}`:                "",
		`seen_sum`:                               "",
		`scoped`:                                 "scoped",
		`scoped{job="node"}`:                     "scoped",
		`scoped{job=~".+"}`:                      "scoped",
		`scoped{job="mine"}`:                     "",
		`scoped{job!~"kubelet|node"}`:            "",
		`pods{container=""}`:                     "unset",
		`pods{container="",pod="x"}`:             "unset",
		`pods{container="",pod="x;y"}`:           "", // Joined, it may be another series.
		`pods{container!=""}`:                    "",
		`pods`:                                   "",
		`edge{side="x"}`:                         "", // Not taken apart label by label.
		`{"unread;x"}`:                           "",
		`{__name__=~"unread|unread_(a|b)",a=""}`: "name",
	} {
		matchers, err := parser.NewParser(parser.Options{}).ParseMetricSelector(selector)
		require.NoError(t, err, selector)
		rule, covered := d.Covers(matchers)
		require.Equal(t, want != "", covered, selector)
		if covered {
			require.Equal(t, want, d.Profile().Rules[rule].ID, selector)
		} else {
			require.Equal(t, -1, rule, selector)
		}
	}
}

func TestNoSeriesOfACoveredSelectorIsKept(t *testing.T) {
	for _, name := range []string{ProfileMinimal, ProfileRecommended, ProfileAggressive} {
		require.NotZero(t, requireCoveredAreDropped(t, mustCompile(t, mustProfile(t, name)), syntheticSeries(t, 3_000)))
	}
}

func TestNoRealSeriesOfACoveredSelectorIsKept(t *testing.T) {
	d := mustCompile(t, mustProfile(t, ProfileRecommended))
	for _, series := range realExpositions(t) {
		require.NotZero(t, requireCoveredAreDropped(t, d, series))
	}
}

// requireCoveredAreDropped asks for selectors of each series, and fails if one is
// covered and selects any series that is not dropped. It returns how many are
// covered.
func requireCoveredAreDropped(t *testing.T, d *Dropper, series []labels.Labels) (covered int) {
	t.Helper()
	asked := map[string]bool{}
	for _, lset := range series {
		for _, s := range selectorsOf(lset, asked) {
			rule, ok := d.Covers(s)
			if !ok {
				continue
			}
			covered++
			jobs := d.Profile().Rules[rule].Jobs
			for _, other := range series {
				if !matchesSeries(s, other) || len(jobs) > 0 && !slices.Contains(jobs, other.Get("job")) {
					continue
				}
				_, dropped := d.Drop(other)
				require.True(t, dropped, "%v covers %s", s, other)
			}
		}
	}
	return covered
}

// selectorsOf returns selectors of the series by its name, and by its name and one
// more label, without those that were asked before.
func selectorsOf(lset labels.Labels, asked map[string]bool) [][]*labels.Matcher {
	name := labels.MustNewMatcher(labels.MatchEqual, "__name__", lset.Get("__name__"))
	var out [][]*labels.Matcher
	for _, l := range []string{"", "le", "container", "id", "scope", "job"} {
		s := []*labels.Matcher{name}
		if l != "" {
			s = append(s, labels.MustNewMatcher(labels.MatchEqual, l, lset.Get(l)))
		}
		if key := fmt.Sprint(s); !asked[key] {
			asked[key] = true
			out = append(out, s)
		}
	}
	return out
}

func matchesSeries(matchers []*labels.Matcher, lset labels.Labels) bool {
	return !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(lset.Get(m.Name)) })
}
