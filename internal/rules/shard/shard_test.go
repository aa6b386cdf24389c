// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/rules/source"
)

func parse(t testing.TB, text string) []parser.Expr {
	t.Helper()
	e, err := source.NewParser().ParseExpr(text)
	require.NoError(t, err, text)
	return []parser.Expr{e}
}

func record(t testing.TB, name, text string) source.Expression {
	t.Helper()
	return source.Expression{Kind: source.KindRecord, Record: name, Text: text, Queries: parse(t, text)}
}

func alert(t testing.TB, name, text string) source.Expression {
	t.Helper()
	return source.Expression{Kind: source.KindAlert, Alert: name, Text: text, Queries: parse(t, text)}
}

// rules are what expressions of the table read.
func rules(t testing.TB) []source.Expression {
	t.Helper()
	moved := record(t, "moved", "m")
	moved.Labels = map[string]string{"instance": "x"}
	return []source.Expression{
		record(t, "instance:m:sum", "sum by (instance) (m)"),
		record(t, "job:m:sum", "sum by (job) (m)"),
		record(t, "of:job:m", "job:m:sum * 2"),
		record(t, "ksm:sum", `sum by (namespace) (k{job="ksm"})`),
		record(t, "one", "vector(1)"),
		record(t, "circle:a", "circle:b + 1"),
		record(t, "circle:b", "circle:a + 1"),
		moved,
		alert(t, "Local", "m > 1"),
		alert(t, "Spread", "sum(m) > 1"),
	}
}

func TestRuleThatTellsRowsApartByInstanceMayRunInAShard(t *testing.T) {
	for _, tc := range []struct {
		expr string
		why  string // A part of it; empty if the rule may.
	}{
		{"m", ""},
		{"1", ""},
		{"vector(time())", ""},
		{"hour() > 5", ""},
		{"rate(m[5m]) > 0.1", ""},
		{"-m", ""},
		{"max_over_time(rate(m[5m])[1h:1m])", ""},
		{"up == 0", ""},
		{"m > time() - 600", ""},
		{`{job="a"}`, "is recorded over all shards"},
		{`{__name__=~"one|m"}`, "selects what every shard has beside what one has"},

		{"sum(m)", "sum takes rows of several shards together"},
		{"sum by (job) (m)", "sum by (job) takes"},
		{"sum by (instance) (m)", ""},
		{"sum by (job, instance) (m)", ""},
		{"sum without (cpu) (m)", ""},
		{"sum without (instance) (m)", "sum without (instance) takes"},
		{"topk by (instance) (1, m)", ""},
		{"topk(1, m)", "topk takes"},
		{"sum by (instance) (topk by (instance) (1, m))", ""},
		{"topk by (instance) (scalar(n), m)", "scalar()"},
		{`count_values by (instance) ("v", m)`, ""},
		{`count_values by (instance) ("instance", m)`, "count_values by (instance) takes"},
		{`sum by (instance) (count_values by (instance) ("instance", k{job="ksm"}))`, ""},
		{"sum(vector(1))", ""},
		{"count(sum by (instance) (m))", "count takes"},

		{`sum(k{job="ksm"})`, ""},
		{`sum by (namespace) (k{job="ksm"}) / on (namespace) count by (namespace) (k{job="ksm"})`, ""},
		{`k{job="ksm"} * on (namespace) group_left k{job="api"}`, "does not match by instance"},
		{`sum(k{job=~"ksm"})`, "sum takes"},
		{`sum(k{job="ksm"}) or m`, "or looks for partners"},
		{`absent(k{job="ksm"})`, "absent() finds nothing in shards that have nothing of"},

		{"m / n", ""},
		{"m / on (job) n", "/ on (job) looks for partners in other shards"},
		{"m / on (instance) n", ""},
		{"m / ignoring (cpu) n", ""},
		{"m / ignoring (instance) n", "does not match by instance"},
		{"m * on (node) group_left (pod) n", "does not match by instance"},
		{"sum by (instance) (m * on (instance) group_left (pod) n)", ""},
		{"sum by (instance) (m * on (instance, cpu) group_right () n)", ""},
		{"sum by (instance) (m * on (cpu) group_left (instance) one)", "sum by (instance) takes"},
		{"sum by (instance) (m * on () one)", "sum by (instance) takes"},
		{"m and n", ""},
		{"m or n", ""},
		{"m unless n", ""},
		{"m unless on (job) n", "does not match by instance"},
		{"m and on () one", ""},
		{"m unless on () one", ""},
		{"m or on () one", "keeps rows that every shard has"},
		{"sum by (instance) (m) or vector(0)", "keeps rows that every shard has"},
		{"one and on () m", "keeps rows that every shard has"},
		{"one unless on () m", "keeps rows that every shard has"},
		{"one * on () group_right () m", ""},
		{"m + fill(0) n", ""},
		{"m + on () fill(0) one", "keeps rows that every shard has"},
		{"one or vector(2)", ""},

		{"absent(m)", "absent() finds nothing"},
		{"absent_over_time(m[5m])", "absent_over_time() finds nothing"},
		{"absent(one)", ""},
		{"m > scalar(n)", "scalar() finds nothing"},
		{"m > scalar(one)", ""},
		{"histogram_quantile(0.9, rate(m_bucket[5m]))", ""},
		{"histogram_quantile(0.9, sum by (le) (rate(m_bucket[5m])))", "sum by (le) takes"},
		{"histogram_quantile(0.9, sum by (instance, le) (rate(m_bucket[5m])))", ""},
		{`histogram_quantile(0.9, label_replace(m_bucket, "instance", "", "", ""))`, "histogram_quantile() takes buckets of several shards"},
		{`sum by (instance) (label_replace(m, "node", "$1", "instance", "(.*):.*"))`, ""},
		{`sum by (instance) (label_replace(m, ("instance"), "", "", ""))`, "sum by (instance) takes"},
		{"info(m)", ""},
		{`info(m, {version!=""})`, ""},
		{`info(m, {__name__="other_info"})`, ""},
		{`info(m, {__name__="job:m:sum"})`, "is recorded over all shards"},
		{`info(label_replace(m, "instance", "", "", ""))`, "info() looks for series of other shards"},

		{"sum by (instance) (instance:m:sum)", ""},
		{"job:m:sum > 5", "job:m:sum is recorded over all shards"},
		{"of:job:m", "of:job:m is recorded over all shards"},
		{"sum(ksm:sum)", ""},
		{"circle:a", "is recorded over all shards"},
		{"sum by (instance) (moved)", "sum by (instance) takes"},
		{"moved", ""},
		{`sum by (instance) (moved{instance="y"})`, ""},
		{`ALERTS{alertname="Local"}`, ""},
		{`ALERTS{alertname="Spread"}`, "is recorded over all shards"},
		{"ALERTS", "is recorded over all shards"},
	} {
		all := append(rules(t), alert(t, "Tested", tc.expr))
		got := Check(all, []string{"ksm", "api"})
		why := got[len(got)-1].Why
		if tc.why == "" {
			require.Empty(t, why, tc.expr)
		} else {
			require.Contains(t, why, tc.why, tc.expr)
		}
	}
}

func TestWhatIsNoRuleIsNotJudged(t *testing.T) {
	require.Empty(t, Check([]source.Expression{{Kind: source.KindAutoscaler, Queries: parse(t, "sum(m)")}}, nil))
	asked := source.Expression{Kind: source.KindAnnotation, Queries: parse(t, "sum(m)")}
	require.NotEmpty(t, Check([]source.Expression{asked}, nil)[0].Why)
}

// TestKubePrometheusInShards has the rules of kube-prometheus, whose recording rules
// have lost their labels. With -v it lists those that may run in a shard.
func TestKubePrometheusInShards(t *testing.T) {
	text, err := os.ReadFile("../../../../shared/kube-prometheus/expressions.json")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("no expressions beside the repository")
	}
	require.NoError(t, err)
	var list []struct{ Expr, Kind, Where string }
	require.NoError(t, json.Unmarshal(text, &list))
	var all []source.Expression
	for _, l := range list {
		switch l.Kind {
		case "alert":
			all = append(all, alert(t, l.Where, l.Expr))
		case "record":
			all = append(all, record(t, l.Where, l.Expr))
		}
	}
	for _, tc := range []struct {
		single  []string
		records int
		alerts  int
	}{
		{nil, 22, 91},
		{[]string{"kube-state-metrics"}, 31, 106},
	} {
		records, alerts := 0, 0
		for _, r := range Check(all, tc.single) {
			if r.Why != "" {
				continue
			}
			t.Logf("%v: %s%s", tc.single, r.Expression.Record, r.Expression.Alert)
			if r.Expression.Record != "" {
				records++
			} else {
				alerts++
			}
		}
		require.Equal(t, tc.records, records)
		require.Equal(t, tc.alerts, alerts)
	}
}
