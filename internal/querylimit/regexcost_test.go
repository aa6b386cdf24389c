// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
)

// manyPods is a list of beginnings that have one byte in common.
var manyPods = "p(" + strings.TrimSuffix(strings.Repeat("od-a|od-b|", 100), "|") + ").+"

func TestRegexCostsWhatPrometheusRunsOnEachValue(t *testing.T) {
	for text, want := range map[string]int{
		`up`:                                                            0,
		`up{job!="api"}`:                                                0,
		`up{job=~".*",a=~".+",b!~""}`:                                   0,
		`up{job=~"api|web",a!~"node-[0-9]"}`:                            0,
		`up{job=~"kube_.+"}`:                                            1,
		`up{job!~"kube_.+",a=~".*-api-.*"}`:                             2,
		`{__name__=~"http_.+"}`:                                         1,
		`up{a=~"(?i:prod)-[0-9]+"}`:                                     1,
		`up{job=~"[a-z]+[0-9]+"}`:                                       12,
		`up{a=~"p.+",b=~".*-.*",c=~"-?.+"}`:                             2 + 4,
		`up{a=~"^p(a|b).*$",b!~"(p).*"}`:                                2,
		`up{a=~"(?i:p).*",b=~"(?i:p.*d)"}`:                              8 + 9,
		`up{a=~"p[a-z]+",b=~".*-[a-z]+"}`:                               7 + 9,
		`up{a=~"prod[a-z]+",b=~".+-[a-z]+-eu-1"}`:                       2,
		`up{a=~"` + manyPods + `"}`:                                     1,
		`up{pod=~"(.*[a-z0-9]{2}){15}[yz]"}`:                            139,
		`up{pod=~"p(.*[a-z0-9]{2}){15}[yz]"}`:                           140,
		`up{pod=~".*-(.*[a-z0-9]{2}){15}[yz]"}`:                         142,
		`up{job!~"[a-z]+[0-9]+"} / sum(rate(b{c=~"[a-z]+[0-9]+"}[5m]))`: 24,
		`label_replace(up, "a", "$1", "b", "[a-z]+[0-9]+")`:             0,
	} {
		q, rs, err := NewAnalyzer(0).Expr(newPolicy(t, nil), text)
		require.NoError(t, err, text)
		require.NoError(t, rs.Err(), text)
		require.Equal(t, want, q.regexCost, text)
	}
	list, rs, err := NewAnalyzer(0).Selectors(newPolicy(t, nil), []string{`up{job=~"[a-z]+[0-9]{3}"}`})
	require.NoError(t, err)
	require.NoError(t, rs.Err())
	require.Greater(t, list[0].regexCost, 3)
	rs = newPolicy(t, func(o *Options) { o.RegexCost = Bound{ModeEnforce, 3} }).check(&asked{queries: list})
	require.ErrorContains(t, rs.Err(), "Limit regex_cost: PromQL whose regular expressions take")
	require.ErrorContains(t, rs.Err(), "docs/limits/regex-cost.md")
}

func TestQueryWhoseTimesAreComputedIsParsedOnceForEachEvaluation(t *testing.T) {
	p := newPolicy(t, nil)
	for text, want := range map[string]int{`max_over_time(rate(a[5m * 2])[range():1m])`: 1, `info(max_over_time(a[1h:1m]))`: 1, `max_over_time(a[1h:1m])`: 0} {
		q, _, err := NewAnalyzer(0).Expr(p, text)
		require.NoError(t, err)
		parsed, parse := 0, q.parse
		q.parse = func(s string) (parser.Expr, error) {
			parsed++
			return parse(s)
		}
		require.NoError(t, p.check(evaluation(q, steps(time.Hour, time.Minute))).Err())
		require.Equal(t, want, parsed, text)
	}
}
