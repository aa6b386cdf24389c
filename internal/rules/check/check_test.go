// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/relabel"
	"github.com/promguard/promguard/internal/rules/source"
)

// profile reads rules in the form of a file.
func profile(t testing.TB, rules string) relabel.Profile {
	t.Helper()
	p, err := relabel.ParseProfile("test.yaml", []byte("name: test\nsummary: for a test\nrules:\n"+rules))
	require.NoError(t, err)
	return p
}

// nameRule drops the names that match.
func nameRule(id, regex string) string {
	return "- {id: " + id + ", class: value-changing, source_labels: [__name__], regex: '" + regex + "', reason: for a test}\n"
}

// thinRule drops the bounds 0.2, 2 and 20 of a and b.
const thinRule = "- {id: thin, class: thin, histograms: [a, b], drop_le: [0.2, 2, 20], " +
	"bounds: [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50], reason: for a test}\n"

func expression(t testing.TB, kind source.Kind, text string) source.Expression {
	t.Helper()
	p := parser.NewParser(parser.Options{EnableExperimentalFunctions: true, EnableBinopFillModifiers: true})
	expr, err := p.ParseExpr(text)
	require.NoError(t, err, text)
	return source.Expression{File: "test", Place: text, Kind: kind, Text: text, Queries: []parser.Expr{expr}}
}

func check(t testing.TB, p relabel.Profile, exprs ...source.Expression) []Result {
	t.Helper()
	c, err := New(p, nil)
	require.NoError(t, err)
	return c.Check(exprs)
}

func TestVerdictOfAnExpressionThatReadsDroppedSeries(t *testing.T) {
	p := profile(t, nameRule("gone", "gone|gone_too")+
		"- {id: empty, class: disjoint, source_labels: [__name__, container, image], regex: 'part;;', reason: for a test}\n"+
		"- {id: jobbed, class: unused, source_labels: [__name__], regex: jobbed, jobs: [kubelet], reason: for a test}\n"+
		"- {id: joined, class: unused, source_labels: [__name__, pod], regex: 'joined(;x|y;).*', reason: for a test}\n"+
		thinRule)
	for _, tc := range []struct {
		expr string
		want Verdict
		why  string
	}{
		{"up", Invisible, ""},
		{"vector(1)", Invisible, ""},
		{"gone", Gone, "It returns nothing any more: rule gone drops all that gone selects."},
		{"sum(rate(gone[5m])) / 2", Gone, ""},
		{"gone + up", Gone, ""},
		{"up + on() group_left gone", Gone, ""},
		{"count(gone)", Gone, ""},
		{"gone == 0", Gone, ""},
		{"count(gone) == 0", Gone, ""},
		{"up or gone", Changed, "lose series"},
		{"gone or up", Changed, "what stands after or takes its place"},
		{"gone or gone_too", Gone, ""},
		{"sum(gone) or vector(0)", Changed, "It may lose series, show series that should not be there"},
		{"(sum(gone) or vector(0)) == 0", Changed, ""},
		{"up unless gone", Changed, "so that unless no longer takes away what it should"},
		{"up unless on(pod) gone > 5", Changed, ""},
		{"gone unless up", Gone, ""},
		{"up and gone", Gone, ""},
		{"up unless part{image!=\"\"}", Invisible, ""},
		{"absent(gone)", Changed, "absent() is always true"},
		{"absent(part)", Changed, "absent() may become true"},
		{"absent_over_time(gone[5m])", Changed, ""},
		{"up * on() group_left absent(gone)", Changed, ""},
		{"scalar(gone)", Changed, "scalar()"},
		{"up > scalar(part)", Changed, ""},
		{"gone{x=\"a\",x=\"b\"}", Invisible, ""},
		{`{__name__=~"gone.*"}`, Changed, ""},
		{`{__name__=~"gon[ex]"}`, Changed, ""},
		{`{__name__!="gone",job="x"}`, Changed, "gone_too"},
		{`{__name__!~"gone.*|part|jobbed|joined.*|(a|b)_bucket",job="x"}`, Invisible, ""},
		{`part`, Changed, `part{container="",image=""}`},
		{`part{container!=""}`, Invisible, ""},
		{`part{image=~".+"}`, Invisible, ""},
		{`part{container="",image=""}`, Gone, ""},
		{`part{container!~".+",image!="x"}`, Changed, ""},
		{`count(part)`, Changed, ""},
		{`group(part)`, Changed, ""},
		{`topk(5, part)`, Changed, ""},
		{`up * on(pod) group_left(node) part`, Changed, "lose series"},
		{`jobbed`, Changed, ""},
		{`jobbed{job="kubelet"}`, Gone, ""},
		{`jobbed{job!="kubelet"}`, Invisible, ""},
		{`jobbed{job=~"apiserver|etcd"}`, Invisible, ""},
		{`joined{pod="x1"}`, Gone, ""},
		{`joined{pod="z"}`, Invisible, ""},
		{`joinedy{pod="z"}`, Gone, ""},

		{"rate(a_bucket[5m])", Thinned, "The rows of some bounds are missing"},
		{"sum by (le) (rate(a_bucket[5m]))", Thinned, ""},
		{"sum by (job) (rate(a_bucket[5m]))", Changed, "sum does not keep le apart"},
		{"sum without (le) (a_bucket)", Changed, ""},
		{"sum without (job) (a_bucket)", Thinned, ""},
		{"count(a_bucket)", Changed, ""},
		{"group by (job) (a_bucket)", Invisible, ""},
		{"absent(a_bucket)", Invisible, ""},
		{"up unless on (job) a_bucket", Invisible, ""},
		{"up and on (job) a_bucket", Invisible, ""},
		{`a_bucket{le="0.1"}`, Invisible, ""},
		{`a_bucket{le="2"}`, Gone, ""},
		{`a_bucket{le="2.0"}`, Gone, ""},
		{`a_bucket{le=~"2(\\.0)?"}`, Gone, ""},
		{`a_bucket{le="+Inf"} / on (job) a_count`, Invisible, ""},
		{`a_bucket{le=~"1|2"}`, Changed, ""},
		{`a_count`, Invisible, ""},
		{"histogram_quantile(0.99, sum by (le) (rate(a_bucket[5m])))", Thinned, "p99 moves by at most x5 (bucket 0.1 to 0.5): rule thin"},
		{"histogram_quantile(0.99, a_bucket) * 1000", Thinned, "p99 moves by at most x5 (bucket 0.1 to 0.5)"},
		{`histogram_quantiles(a_bucket, "q", 0.999, 0.5)`, Thinned, "p50 and p99.9 move by at most x5 (bucket 0.1 to 0.5)"},
		{"histogram_quantile(1 - 0.05 * 2, a_bucket)", Thinned, ""},
		{"histogram_quantile(0, a_bucket)", Changed, "the quantile 0 depends on whether there is anything below the lowest bound"},
		{"histogram_quantile(2 * (0.5 - 1/2), a_bucket)", Changed, "the quantile 0"},
		{"histogram_quantile(scalar(up), a_bucket)", Undecided, "which quantile is asked for"},
		{"sum(histogram_quantile(0, a_bucket)) > 7", Changed, "the quantile 0"},
		{"-histogram_quantile(0.99, a_bucket)", Thinned, ""},
		{"histogram_quantile(0.99, a_bucket) + 1", Changed, ""},
		{"histogram_quantile(0.99, a_bucket) > 0.3", Changed, "the threshold 0.3 lies in the merged bucket from 0.1 to 0.5"},
		{"histogram_quantile(0.99, a_bucket) > 0.5", Thinned, ""},
		{"histogram_quantile(0.99, a_bucket) > bool 0.7", Invisible, ""},
		{"0.3 < histogram_quantile(0.99, a_bucket)", Changed, ""},
		{"histogram_quantile(0.99, a_bucket) * 1000 > 700", Thinned, ""},
		{"histogram_quantile(0.99, a_bucket) * 1000 > 300", Changed, ""},
		{"histogram_quantile(0.99, a_bucket) > on () up", Changed, ""},
		{"avg(histogram_quantile(0.99, a_bucket)) > 0.7", Changed, ""},
		{"max(histogram_quantile(0.99, a_bucket)) > 0.7", Thinned, ""},
		{"max_over_time(histogram_quantile(0.99, a_bucket)[1h:]) > 0.7", Thinned, ""},
		{"deriv(histogram_quantile(0.99, a_bucket)[1h:])", Changed, ""},
		{"count(histogram_quantile(0.99, a_bucket))", Invisible, ""},
		{"topk(3, histogram_quantile(0.99, a_bucket))", Changed, ""},
		{"histogram_quantile(0.99, a_bucket) and on (job) up", Thinned, ""},
		{"up unless on (job) histogram_quantile(0.99, a_bucket) > 0.3", Changed, ""},
		{"histogram_fraction(0, 0.2, a_bucket)", Changed, ""},
		{`histogram_quantile(0.99, {__name__=~"(a|b)_bucket"})`, Thinned, ""},
		{`histogram_quantile(0.99, sum by (le) ({__name__=~"(a|c)_bucket"}))`, Changed, ""},
		{"histogram_quantile(0.9, a_bucket + a_bucket)", Thinned, ""},
		{"histogram_quantile(0.9, a_bucket + b_bucket)", Changed, ""},
		{"histogram_quantile(0.9, a_bucket - b_bucket)", Changed, ""},
		{"a_bucket / ignoring (le) group_left a_count", Thinned, ""},
		{"a_bucket / on (job, le) a_bucket", Thinned, ""},
		{"a_bucket or on (job) up", Changed, ""},
		{"a_bucket or up", Changed, ""},
		{"sum by (le) (a_bucket) or sum by (le) (b_bucket)", Thinned, ""},
		{`label_replace(a_bucket, "le", "1", "x", "")`, Changed, ""},
		{`label_replace(a_bucket, "x", "1", "y", "")`, Thinned, ""},
		{"up + fill(0) gone", Changed, ""},
		{"info(up)", Invisible, ""},
	} {
		t.Run(tc.expr, func(t *testing.T) {
			r := check(t, p, expression(t, source.KindQuery, tc.expr))[0]
			require.Equal(t, tc.want, r.Verdict, "%+v", r.Findings)
			require.Equal(t, tc.want == Invisible, len(r.Findings) == 0)
			if tc.why != "" {
				require.Contains(t, r.Findings[0].Why, tc.why)
			}
			for _, f := range r.Findings {
				require.True(t, strings.HasSuffix(f.Why, ".") && !strings.Contains(f.Why, "  "), f.Why)
				require.NotContains(t, f.Why, "rule "+f.Rule+" .", "a sentence needs a reason")
			}
		})
	}
}

// thinRule merges 0.1 to 0.5, 1 to 5 and 10 to 50.
func TestQuantileOfSomeOfTheBoundsIsNotBounded(t *testing.T) {
	p := profile(t, thinRule)
	for text, want := range map[string]Verdict{
		`histogram_quantile(0.99, a_bucket{le=~"0.1|20(.0)?|[+]Inf"})`:                      Changed,
		`histogram_quantile(0.99, a_bucket{le!~"50(.0)?|10(.0)?"})`:                         Changed,
		`histogram_quantile(0.99, a_bucket{le=~".+"})`:                                      Thinned,
		`histogram_quantile(0.99, a_bucket{le!=""})`:                                        Thinned,
		`histogram_quantile(0.99, a_bucket{le=~"` + source.Marker(0) + `"})`:                Changed,
		`histogram_quantile(0.0001, a_bucket > 5)`:                                          Changed,
		`histogram_quantile(0.0001, a_bucket > bool 5)`:                                     Changed,
		`histogram_quantile(0.5, a_bucket and on(le) other)`:                                Changed,
		`histogram_quantile(0.5, a_bucket and on(job) other)`:                               Thinned,
		`histogram_quantile(0.5, a_bucket unless on(le) other)`:                             Changed,
		`histogram_quantile(0.5, a_bucket * on(job, le) other)`:                             Changed,
		`histogram_quantile(0.5, a_bucket * on(job) group_left other)`:                      Changed,
		`histogram_quantile(0.5, a_bucket * -1)`:                                            Changed,
		`histogram_quantile(0.5, -a_bucket)`:                                                Changed,
		`histogram_quantile(0.5, 1 / a_bucket)`:                                             Changed,
		`histogram_quantile(0.5, 2 * a_bucket / 3 - 1)`:                                     Thinned,
		`histogram_quantile(0.5, a_bucket ^ 2)`:                                             Changed,
		`histogram_quantile(0.5, a_bucket / a_bucket)`:                                      Changed,
		`histogram_quantile(0.5, delta(a_bucket[5m]))`:                                      Changed,
		`histogram_quantile(0.5, topk by (le) (3, a_bucket))`:                               Changed,
		`histogram_quantile(0.5, stddev by (le) (a_bucket))`:                                Changed,
		`histogram_quantile(0.5, max by (le) (a_bucket))`:                                   Thinned,
		`histogram_quantile(0.5, a_bucket or on(job) label_replace(up, "le", "2", "", ""))`: Changed,
	} {
		r := check(t, p, expression(t, source.KindPanel, text))[0]
		require.Equal(t, want, r.Verdict, "%s: %+v", text, r.Findings)
	}
	require.Equal(t, Changed, check(t, p, expression(t, source.KindAlert, `histogram_quantile(0.99, a_bucket{le=~"0.1|20(.0)?|[+]Inf"}) > 10`))[0].Verdict)
}

func TestInfiniteBoundStandsForOthersOnlyUnfiltered(t *testing.T) {
	p := profile(t, thinRule)
	for text, want := range map[string]Verdict{
		`absent(a_bucket == 7)`:                                  Changed,
		`absent(a_bucket < 7)`:                                   Changed,
		`absent(a_bucket == bool 7)`:                             Invisible,
		`group by (job) (a_bucket == 7)`:                         Changed,
		`count(group by (job) (increase(a_bucket[5m]) == 0))`:    Changed,
		`up unless on(job) (a_bucket == 7)`:                      Changed,
		`up and on(job) (a_bucket == 7)`:                         Changed,
		`(a_bucket == 7) or on(job) up`:                          Changed,
		`absent(a_bucket and on(le) a_other{le="0.2"})`:          Changed,
		`absent(a_bucket unless on(le) a_other)`:                 Changed,
		`absent(a_bucket + on(le) a_other)`:                      Changed,
		`absent(a_bucket{le=~"` + source.Marker(0) + `"})`:       Changed,
		`absent(max_over_time((a_bucket == 7)[1h:]))`:            Changed,
		`up unless on(job) (a_bucket unless on(le) b_count)`:     Changed,
		`group by (job) (a_bucket or on(job) up)`:                Changed,
		`up unless on(job) sum by (job, le) (a_bucket)`:          Invisible,
		`up unless on(job) (sum by (job, le) (a_bucket) > 0.01)`: Changed,
	} {
		r := check(t, p, expression(t, source.KindPanel, text))[0]
		require.Equal(t, want, r.Verdict, "%s: %+v", text, r.Findings)
	}
}

// A copy of le tells the bounds apart as le does.
func TestCopyOfLeIsNoLabelThatEveryBoundHas(t *testing.T) {
	p := profile(t, thinRule)
	const copied = `label_replace(a_bucket, "bound", "$1", "le", "(.+)")`
	for text, want := range map[string]Verdict{
		`label_replace(vector(1), "bound", "0.2", "", "") unless on(bound) ` + copied: Changed,
		`label_replace(vector(1), "bound", "0.2", "", "") and on(bound) ` + copied:    Changed,
		`group by (bound) (` + copied + `)`:                                           Changed,
		`count by (bound) (` + copied + `)`:                                           Changed,
		`group by (bound) (label_join(a_bucket, "bound", "-", "job", "le"))`:          Changed,
		`group by (bound) (label_join(a_bucket, "bound", "-", "job", "pod"))`:         Invisible,
		`group by (bound) (label_replace(a_bucket, "bound", "$1", "job", "(.+)"))`:    Invisible,
		`group by (bound) (label_replace(a_bucket, ("bound"), "$1", ("le"), "(.+)"))`: Changed,
		`group by (bound) (count_values("bound", a_bucket))`:                          Changed,
		`group by (bound) (count_values by (job) ("bound", sum by (le) (a_bucket)))`:  Changed,
		`group(count_values("v", histogram_quantile(0.9, a_bucket)))`:                 Changed,
		`sum by (le) (up{le="2"} or a_bucket)`:                                        Changed,
		`sum by (le) (a_bucket or on(job) up{le="2"})`:                                Changed,
	} {
		r := check(t, p, expression(t, source.KindPanel, text))[0]
		require.Equal(t, want, r.Verdict, "%s: %+v", text, r.Findings)
	}
	record := expression(t, source.KindRecord, copied)
	record.Record = "copied"
	for _, r := range check(t, p, record,
		expression(t, source.KindPanel, `label_replace(vector(1), "bound", "0.2", "", "") unless on(bound) copied`),
		expression(t, source.KindPanel, `group by (bound) (copied)`)) {
		require.Equal(t, Changed, r.Verdict, r.Expression.Text)
	}
}

func TestAlertThatIsGoneIsGoneFromWhatReadsAlerts(t *testing.T) {
	p := profile(t, thinRule+nameRule("gone", "gone"))
	alert := func(name, text string, labels map[string]string) source.Expression {
		e := expression(t, source.KindAlert, text)
		e.Alert, e.Labels = name, labels
		return e
	}
	alerts := []source.Expression{
		alert("X", `gone > 5`, map[string]string{"severity": "critical"}),
		alert("Stays", `up == 0`, map[string]string{"severity": "warning"}),
		alert("Quantile", `histogram_quantile(0.9, a_bucket) > 3`, nil),
		alert("Told", `histogram_quantile(0.9, a_bucket) > 10`, map[string]string{"level": source.Marker(0)}),
		alert("Absent", `absent(gone)`, nil),
	}
	for text, want := range map[string]Verdict{
		`ALERTS{alertname="X"}`:                             Gone,
		`ALERTS_FOR_STATE{alertname="X"}`:                   Gone,
		`ALERTS{alertname="Stays"}`:                         Invisible,
		`ALERTS{severity="warning"}`:                        Changed, // Told may have any.
		`ALERTS{severity="critical"}`:                       Changed,
		`ALERTS{alertname="Quantile"}`:                      Changed,
		`ALERTS{alertname="Told"}`:                          Changed,
		`ALERTS{alertname="Absent"}`:                        Changed,
		`ALERTS{alertstate="firing"}`:                       Changed,
		`count(ALERTS{alertname=~"X|Stays"})`:               Changed,
		`up unless on(job) ALERTS{alertname="X"}`:           Changed,
		`absent(ALERTS{alertname="X"})`:                     Changed,
		`{__name__=~"ALERTS.*",alertname="X"}`:              Changed,
		`ALERTS{alertname="X",severity="warning"}`:          Invisible,
		`ALERTS{alertname="Another"}`:                       Invisible,
		`up and on(job) ALERTS_FOR_STATE{alertname="Gone"}`: Invisible,
	} {
		results := check(t, p, append(slices.Clone(alerts), expression(t, source.KindPanel, text))...)
		r := results[len(alerts)]
		require.Equal(t, want, r.Verdict, "%s: %+v", text, r.Findings)
	}
}

func TestInfoKeepsTheRowsThatItHasNoLabelsFor(t *testing.T) {
	p := profile(t, nameRule("gone", "gone|target_info"))
	for text, want := range map[string]Verdict{
		`info(up)`:                                Changed,
		`info(up, {version="1"})`:                 Changed,
		`info(gone)`:                              Gone,
		`info(up, {__name__="build_info"})`:       Invisible,
		`info(up, {__name__=~"build_info|gone"})`: Changed,
		`absent(info(up))`:                        Changed,
		`up unless on(version) info(up)`:          Changed,
	} {
		r := check(t, p, expression(t, source.KindPanel, text))[0]
		require.Equal(t, want, r.Verdict, "%s: %+v", text, r.Findings)
	}
}

func TestRecordedSeriesOfOneNameAmongOthersDoNotMakeAllGone(t *testing.T) {
	p := profile(t, nameRule("gone", "gone|both"))
	var rules []source.Expression
	for name, text := range map[string]string{"lost": "gone", "left": "up", "both": "up"} {
		e := expression(t, source.KindRecord, text)
		e.Record = name
		rules = append(rules, e)
	}
	for text, want := range map[string]Verdict{
		`{__name__=~"lost|left"}`: Changed,
		`{__name__=~"lost|up"}`:   Changed,
		`both`:                    Changed,
		`lost`:                    Gone,
		`left`:                    Invisible,
	} {
		r := check(t, p, append(slices.Clone(rules), expression(t, source.KindPanel, text))...)[len(rules)]
		require.Equal(t, want, r.Verdict, "%s: %+v", text, r.Findings)
	}
}

func TestThresholdAtTheEndOfAMergedBucket(t *testing.T) {
	p := profile(t, thinRule)
	for text, want := range map[string]Verdict{
		"histogram_quantile(0.007, a_bucket) >= bool 5":                  Changed,
		"histogram_quantile(0.007, a_bucket) >= 5":                       Changed,
		"histogram_quantile(0.007, a_bucket) < 5":                        Changed,
		"histogram_quantile(0.007, a_bucket) == 5":                       Changed,
		"histogram_quantile(0.007, a_bucket) != 5":                       Changed,
		"5 <= histogram_quantile(0.007, a_bucket)":                       Changed,
		"5 > histogram_quantile(0.007, a_bucket)":                        Changed,
		"count_over_time((histogram_quantile(0.5, a_bucket) >= 5)[5m:])": Changed,
		"histogram_quantile(0.007, a_bucket) > bool 5":                   Invisible,
		"histogram_quantile(0.007, a_bucket) <= bool 5":                  Invisible,
		"5 < bool histogram_quantile(0.007, a_bucket)":                   Invisible,
		"5 >= bool histogram_quantile(0.007, a_bucket)":                  Invisible,
		"histogram_quantile(0.007, a_bucket) >= bool 7":                  Invisible,
		"-histogram_quantile(0.007, a_bucket) > bool -5":                 Changed,
		"histogram_quantile(0.007, a_bucket) * -1 <= bool -5":            Changed,
		"-(-histogram_quantile(0.007, a_bucket)) > bool 5":               Invisible,
	} {
		r := check(t, p, expression(t, source.KindPanel, text))[0]
		require.Equal(t, want, r.Verdict, "%s: %+v", text, r.Findings)
	}
}

func TestSumOfValuesOfEitherSignIsNotBounded(t *testing.T) {
	p := profile(t, thinRule+
		"- {id: below, class: thin, histograms: [c], drop_le: [2], bounds: [-10, -5, 1, 2, 5], reason: for a test}\n")
	for text, want := range map[string]Verdict{
		`sum(histogram_quantile(0.8, a_bucket))`:                                                 Thinned,
		`sum(histogram_quantile(0.8, a_bucket) > 7)`:                                             Thinned,
		`sum(histogram_quantile(0.8, a_bucket) or label_replace(vector(-15), "x", "y", "", ""))`: Changed,
		`avg_over_time((histogram_quantile(0.8, a_bucket) or vector(-15))[5m:])`:                 Changed,
		`max(histogram_quantile(0.8, a_bucket) or vector(-15))`:                                  Thinned,
		`sum(histogram_quantile(0.8, a_bucket) or -histogram_quantile(0.8, b_bucket))`:           Changed,
		`sum(histogram_quantile(0.8, a_bucket) * on(job) group_left other)`:                      Changed,
		`histogram_quantile(0.8, a_bucket) * on(job) group_left other`:                           Thinned,
		`sum(histogram_quantile(0.8, c_bucket))`:                                                 Changed,
		`histogram_quantile(0.8, c_bucket)`:                                                      Thinned,
	} {
		r := check(t, p, expression(t, source.KindPanel, text))[0]
		require.Equal(t, want, r.Verdict, "%s: %+v", text, r.Findings)
	}
}

func TestValuesWithTheSeparatorAreJoinedAsPrometheusDoes(t *testing.T) {
	p := profile(t, "- {id: semi, class: unused, source_labels: [__name__, y, z], regex: 'semi;.*;c', reason: for a test}\n"+
		"- {id: last, class: unused, source_labels: [__name__, pod, container], regex: 'up;x;.*', reason: for a test}\n"+
		"- {id: name, class: unused, source_labels: [__name__, y], regex: 'n.*z;b', reason: for a test}\n"+
		"- {id: jobs, class: unused, source_labels: [__name__], regex: 'etcd_.*', jobs: [apiserver], reason: for a test}\n")
	for text, want := range map[string]Verdict{
		`semi{z="q;c"}`:           Changed,
		`semi{z="q"}`:             Invisible,
		`semi{y="a",z="c"}`:       Gone,
		`up{pod="x;y"}`:           Changed,
		`nx{y="q;z;b"}`:           Changed,
		`nx{y="b"}`:               Invisible,
		`up{pod="y"}`:             Invisible,
		`etcd_x{job=~".*etcd.*"}`: Invisible,
		`etcd_x{job=~".*api.*"}`:  Changed,
	} {
		r := check(t, p, expression(t, source.KindPanel, text))[0]
		require.Equal(t, want, r.Verdict, "%s: %+v", text, r.Findings)
	}
}

func TestAlertsAreToldByWhatTheyWouldDo(t *testing.T) {
	p := profile(t, nameRule("gone", "gone")+nameRule("part", "part_[a-c]")+thinRule)
	for expr, want := range map[string]string{
		"gone > 0":                                 "The alert can no longer fire: ",
		"absent(gone)":                             "The alert may fire where it should not: ",
		"up unless gone":                           "The alert may fire where it should not: ",
		"up and {__name__=~\"part_.\"}":            "The alert may stay silent where it should fire: ",
		"sum({__name__=~\"part_.\"}) > 0":          "The alert may fire or stay silent where it should not: ",
		"histogram_quantile(0.9, a_bucket) > 0.15": "The alert may fire or stay silent where it should not: ",
	} {
		r := check(t, p, expression(t, source.KindAlert, expr))[0]
		require.NotEmpty(t, r.Findings, expr)
		require.Contains(t, r.Findings[0].Why, want, expr)
	}
}

func TestAlertPerBoundIsChangedByThinning(t *testing.T) {
	p := profile(t, thinRule)
	r := check(t, p, expression(t, source.KindAlert, "rate(a_bucket[5m]) > 0"))[0]
	require.Equal(t, Changed, r.Verdict, "each bound that goes is an alert less")
}

func TestRecordingRulesAreFollowed(t *testing.T) {
	p := profile(t, nameRule("gone", "gone")+thinRule)
	record := func(name, text string, labels map[string]string) source.Expression {
		e := expression(t, source.KindRecord, text)
		e.Record, e.Labels = name, labels
		return e
	}
	exprs := []source.Expression{
		expression(t, source.KindPanel, "second > 5"),
		record("second", "first * 2", nil),
		record("first", "rate(gone[5m])", nil),
		record("rows", "sum by (le) (rate(a_bucket[5m]))", nil),
		expression(t, source.KindPanel, `rows{le=~"1(\\.0)?"}`),
		expression(t, source.KindPanel, `rows{le=~"2(\\.0)?"}`),
		expression(t, source.KindPanel, `histogram_quantile(0.9, rows)`),
		record("burn", "gone", map[string]string{"verb": "read"}),
		record("burn", "up", map[string]string{"verb": "write"}),
		expression(t, source.KindPanel, `burn{verb="read"}`),
		expression(t, source.KindPanel, `burn{verb="write"}`),
		expression(t, source.KindPanel, `burn`),
		record("quantile", "histogram_quantile(0.9, a_bucket)", nil),
		expression(t, source.KindAlert, `quantile > 0.15`),
		expression(t, source.KindAlert, `quantile > 0.5`),
		record("circle", "circle + gone", nil),
		expression(t, source.KindPanel, `histogram_quantile(0.9, sum by (le) ({__name__=~"rows|others"}))`),
		expression(t, source.KindPanel, `sum({__name__=~"others|more"})`),
	}
	want := []Verdict{
		Gone, Gone, Gone, Thinned, Invisible, Gone, Thinned, Gone, Invisible, Gone, Invisible, Changed,
		Thinned, Changed, Thinned, Gone, Changed, Invisible,
	}
	for i, r := range check(t, p, exprs...) {
		require.Equal(t, want[i], r.Verdict, "%d: %s: %+v", i, r.Expression.Text, r.Findings)
	}
	require.Contains(t, check(t, p, exprs...)[0].Findings[0].Why, "(through what is recorded as first, second)")
}

func TestVariableMayStandForAnything(t *testing.T) {
	p := profile(t, nameRule("gone", "gone_x")+thinRule)
	for text, want := range map[string]Verdict{
		"rate(" + source.Marker(0) + "[5m])": Undecided,
		"gone_" + source.Marker(0):           Undecided,
		"kept_" + source.Marker(0):           Invisible,
		"histogram_quantile(0.9, sum without (" + source.Marker(0) + ") (a_bucket))": Changed,
		"histogram_quantile(0.9, a_bucket) > 1.0000000000000002":                     Changed,
		"a_bucket * on (" + source.Marker(0) + ", le) a_bucket":                      Changed,
		`gone_x{job="` + source.Marker(0) + `"}`:                                     Gone,
		`{__name__=~"` + source.Marker(0) + `_x"}`:                                   Undecided,
	} {
		r := check(t, p, expression(t, source.KindPanel, text))[0]
		require.Equal(t, want, r.Verdict, text)
	}
}

func TestListingsLoseValuesOnlyWithSeries(t *testing.T) {
	p := profile(t, nameRule("gone", "gone")+thinRule+
		"- {id: part, class: disjoint, source_labels: [__name__, container], regex: 'part;', reason: for a test}\n")
	pql := parser.NewParser(parser.Options{})
	for _, tc := range []struct {
		selector, label string
		want            Verdict
	}{
		{"gone", "job", Gone},
		{"part", "pod", Changed},
		{`part{container!=""}`, "pod", Invisible},
		{"a_bucket", "job", Invisible},
		{"a_bucket", "le", Thinned},
		{"a_bucket", "", Thinned},
		{"a_bucket", "$l", Thinned},
		{"a_bucket", "[[l]]", Thinned},
		{"up", "job", Invisible},
		{"", "job", Undecided},
	} {
		e := source.Expression{Kind: source.KindVariable, Listing: &source.Listing{Label: tc.label}}
		if tc.selector != "" {
			var err error
			e.Listing.Matchers, err = pql.ParseMetricSelector(tc.selector)
			require.NoError(t, err)
		}
		require.Equal(t, tc.want, check(t, p, e)[0].Verdict, "%s, %s", tc.selector, tc.label)
	}
}

func TestRegexesThatAreTooLargeToCompareAreUndecided(t *testing.T) {
	p := profile(t, "- {id: large, class: unused, source_labels: [pod], regex: '(a|b)*a(a|b){24}', reason: for a test}\n")
	r := check(t, p, expression(t, source.KindPanel, `up{pod=~"(a|b)*b(a|b){25}",pod!~".{20,}"}`))[0]
	require.Equal(t, Undecided, r.Verdict)
	require.Contains(t, r.Findings[0].Why, "could not be checked")
}

func TestBoundIsThatOfTheWidestMergedBucketOfAllRules(t *testing.T) {
	p := profile(t, thinRule+
		"- {id: further, class: thin, histograms: [a], drop_le: [5], bounds: [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50], reason: for a test}\n"+
		"- {id: lowest, class: thin, histograms: [c], drop_le: [0.1], bounds: [0.1, 0.2, 0.4], reason: for a test}\n")
	r := check(t, p, expression(t, source.KindPanel, "histogram_quantile(0.9, a_bucket)"))[0]
	require.Len(t, r.Findings, 2)
	// 1 to 10 without 2 and 5.
	require.Equal(t, Bound{Relative: 9}, *r.Findings[0].Bound)
	r = check(t, p, expression(t, source.KindPanel, "histogram_quantile(0.9, c_bucket)"))[0]
	require.Equal(t, Bound{Low: 0.2}, *r.Findings[0].Bound)
	require.Contains(t, r.Findings[0].Why, "p90 moves by at most 0.2 below 0.2, and not at all above")

	// What data show counts more than what the rule states.
	c, err := New(p, map[string][][]float64{"a": {{0.1, 0.2, 0.4, 20}}})
	require.NoError(t, err)
	r = c.Check([]source.Expression{expression(t, source.KindPanel, "histogram_quantile(0.9, a_bucket)")})[0]
	require.Equal(t, Changed, r.Verdict)
	require.Contains(t, r.Findings[0].Why, "the largest finite one, 20")
}

func TestOnlyNamesThatAreReadOrDroppedMatter(t *testing.T) {
	c, err := New(profile(t, nameRule("gone", "gone_.+")), nil)
	require.NoError(t, err)
	concerns := c.Concerns([]source.Expression{
		expression(t, source.KindPanel, "a / b"), expression(t, source.KindPanel, `{__name__=~"c.*",__name__!="cc"}`),
	})
	for name, want := range map[string]bool{"a": true, "b": true, "c": true, "cx": true, "cc": false, "d": false, "gone_x": true, "gone": false} {
		require.Equal(t, want, concerns(name), name)
	}
}
