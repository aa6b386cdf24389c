// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
)

var testParser = parser.NewParser(parser.Options{
	EnableExperimentalFunctions: true,
	EnableUnquotedUTF8Names:     true,
	EnableBinopFillModifiers:    true,
})

func newPolicy(t testing.TB, change func(*Options)) *Policy {
	t.Helper()
	opts := DefaultOptions()
	if change != nil {
		change(&opts)
	}
	p, err := New(opts)
	require.NoError(t, err)
	return p
}

func parseSelector(t testing.TB, s string) []*labels.Matcher {
	t.Helper()
	ms, err := testParser.ParseMetricSelector(s)
	require.NoError(t, err)
	return ms
}

func mustParse(t testing.TB, text string) parser.Expr {
	t.Helper()
	expr, err := testParser.ParseExpr(text)
	require.NoError(t, err)
	return expr
}

func TestSelectorThatNamesNothingIsRefused(t *testing.T) {
	p := newPolicy(t, nil)
	for _, s := range []string{
		`{le!=""}`,
		`{foo=""}`,
		`{foo!="bar"}`,
		`{foo=~".+"}`,
		`{foo=~".*"}`,
		`{foo!~"bar"}`,
		`{foo=~"bar.*"}`, // a prefix of another label still goes through all its values
		`{foo=~"a|b|"}`,  // matches series without the label too
		`{foo=~"|a"}`,
		`{foo=~""}`,
		`{__name__=~".+"}`,
		`{__name__=~".*"}`,
		`{__name__!="up"}`,
		`{__name__!~"up"}`,
		`{__name__!=""}`,
		`{__name__=~".*_total"}`,
		`{__name__=~"node_.+|.*_total"}`,
		`{__name__=~"[nk].*"}`,
		`{__name__=~"a.*|b.*|c.*|d.*|e.*|f.*|g.*|h.*|i.*|j.*|k.*|l.*|m.*|n.*|o.*|p.*|q.*|r.*|s.*|t.*|u.*|v.*|w.*|x.*|y.*|z.*"}`,
		`{__name__=~"n.*|k.*"}`,
		`{__name__=~"(a|b|c|d).+"}`,
		`{__name__=~"[a-z][a-z].*"}`,
		`{__name__=~"[a-z]+"}`,
		`{__name__=~"(abc)?def.*"}`,
		`{__name__=~"(abc|).*"}`,
		`{__name__=~"(?i)[a-z].*"}`,
		"{__name__=~\"" + alphabet("%c%c.*") + "\"}",
		`{__name__=~"(node_)?.+"}`,
		`{__name__=~"node_.+|"}`,
		`{foo=~"(?i)bar.*"}`,
		`{foo=~"(?i)bar|baz"}`,
		`{foo=~"[0-9][0-9][0-9][0-9][0-9][0-9]"}`, // finite, but not a list
		`{foo=~"[^a]"}`,
		`{le!="",foo!="",__name__=~".+"}`,
	} {
		t.Run(s, func(t *testing.T) {
			err := p.Check(parseSelector(t, s)).Err()
			require.Error(t, err)
			var refusal *Refusal
			require.ErrorAs(t, err, &refusal)
			require.Equal(t, LimitSelectivity, refusal.Limit)
		})
	}
}

func TestSelectorThatNamesAMetricOrAValuePasses(t *testing.T) {
	p := newPolicy(t, nil)
	for _, s := range []string{
		`up`,
		`up{le!=""}`,
		`{"http.requests"}`,
		`{__name__="up"}`,
		`{__name__=~"up"}`,
		`{__name__=~"up|down"}`,
		`{__name__=~"node_.+"}`,
		`{__name__=~"^node_.+$"}`,
		`{__name__=~"node_.+|kube_.+"}`,
		`{__name__=~"(node|kube)_.+"}`,
		`{__name__=~"k.*"}`,
		`{__name__=~"[nk]ode_.*"}`,
		`{__name__=~"(a|b|c|d)bc.+"}`,
		`{__name__=~"node_(cpu|memory)?.+"}`,
		`{__name__=~"(job|instance):.+"}`,
		`{__name__=~"(?i)node_.+"}`,
		`{__name__=~"(?i)up"}`,
		`{foo="bar"}`,
		`{foo="bar",le!=""}`,
		`{foo=~"bar"}`,
		`{foo=~"bar|baz"}`,
		`{foo=~"ba[rz]"}`,
		`{foo=~"(?:bar|baz)"}`,
		`{foo=~"(bar|baz)"}`,
	} {
		t.Run(s, func(t *testing.T) {
			require.Nil(t, p.Check(parseSelector(t, s)))
		})
	}
}

// alphabet is an alternative for every pair of letters.
func alphabet(format string) string {
	var all []string
	for a := 'a'; a <= 'z'; a++ {
		for b := 'a'; b <= 'z'; b++ {
			all = append(all, fmt.Sprintf(format, a, b))
		}
	}
	return strings.Join(all, "|")
}

func TestValuesOfTheLabelThatIsListedAreLookedThroughAndNoSeries(t *testing.T) {
	rules, err := NewRuleset(RulesetOptions{Global: DefaultOptions()})
	require.NoError(t, err)
	for _, tc := range []struct {
		label, selector string
		passes          bool
	}{
		{"__name__", `{__name__=~".*cpu.*"}`, true},
		{"__name__", `{__name__!=""}`, true},
		{"pod", `{pod!=""}`, true},
		{"pod", `{pod!="",pod!~"a.*"}`, true},
		{"pod", `{namespace!=""}`, false},
		{"pod", `{pod!="",namespace!=""}`, false},
		{"pod", `{pod=~"a.*",namespace="x"}`, true},
		{"__name__", `{__name__=~".*cpu.*",job!="x"}`, false},
		{"le", `{"le"!=""}`, true},
		{"", `{pod!=""}`, false},
	} {
		endpoint := "labels"
		if tc.label != "" {
			endpoint = "label/:name/values"
		}
		v, err := rules.Judge(NewAnalyzer(1<<20), &Request{Endpoint: FindEndpoint(endpoint), Texts: []string{tc.selector}, Label: tc.label, Limit: -1}, time.Now())
		require.NoError(t, err)
		require.Equal(t, tc.passes, v.Refusals.Err() == nil, "%s of %s", tc.selector, tc.label)
	}
}

func TestAlternationOfManyLiteralsCountsAsEquality(t *testing.T) {
	// Prometheus itself stops listing alternatives at 256.
	values := make([]string, 1000)
	for i := range values {
		values[i] = fmt.Sprintf("pod-%d", i)
	}
	ms := parseSelector(t, `{pod=~"`+strings.Join(values, "|")+`"}`)
	require.Empty(t, ms[0].SetMatches(), "the case this test is about")
	require.Nil(t, newPolicy(t, nil).Check(ms))
}

func TestOnlyListedLabelsCountWhereAListIsConfigured(t *testing.T) {
	p := newPolicy(t, func(o *Options) { o.EqualityLabels = []string{"namespace", "cluster"} })
	for s, passes := range map[string]bool{
		`{namespace="a",le!=""}`:       true,
		`{cluster=~"a|b"}`:             true,
		`up{job!=""}`:                  true,
		`{job="api"}`:                  false,
		`{job="api",namespace!="a"}`:   false,
		`{job="api",namespace=~"a.*"}`: false,
	} {
		t.Run(s, func(t *testing.T) {
			rs := p.Check(parseSelector(t, s))
			require.Equal(t, passes, rs == nil)
			if !passes {
				require.Contains(t, rs.Err().Error(), "namespace, cluster")
			}
		})
	}
}

func TestUnselectiveSelectorIsFoundWhereverItStands(t *testing.T) {
	p := newPolicy(t, nil)
	for _, tc := range []struct {
		expr    string
		refused bool
	}{
		{`up`, false},
		{`1 + 1`, false},
		{`"text"`, false},
		{`sum by (job) (rate(http_requests_total[5m]))`, false},
		{`{le!=""}`, true},
		{`({le!=""})`, true},
		{`-{le!=""}`, true},
		{`sum({le!=""})`, true},
		{`up + on() {le!=""}`, true},
		{`{le!=""} + on() up`, true},
		{`up and {le!=""}`, true},
		{`up == bool on() {le!=""}`, true},
		{`rate({le!=""}[5m])`, true},
		{`max_over_time({le!=""}[1h:5m])`, true},
		{`max_over_time(sum({le!=""})[1h:5m] @ end() offset 1h)`, true},
		{`{le!=""} offset 5m`, true},
		{`{le!=""} @ 1609746000`, true},
		{`{le!=""} @ start() offset -5m`, true},
		{`topk(scalar({le!=""}), up)`, true},
		{`quantile(scalar(sum({le!=""})), up)`, true},
		{`count_values("x", {le!=""})`, true},
		{`label_replace({le!=""}, "a", "b", "c", "d")`, true},
		{`histogram_quantile(0.9, {le!=""})`, true},
		{`absent({le!=""})`, true},
		{`absent_over_time({le!=""}[5m])`, true},
		{`info({le!=""})`, true},
		{`info(up)`, false},
		{`info(up, {le!=""})`, true},
		{`info(up, {k8s_cluster_name=~".+"})`, true},
		{`info(up, {__name__="target_info",k8s_cluster_name=~".+"})`, false},
		{`info(up, {k8s_cluster_name="a"})`, false},
		{`info(up, {__name__="build_info"})`, false},
		{`info(up, {__name__=~".+"})`, true},
		{`info(up, {__name__!="target_info"})`, true},
		{`info(up, {__name__=~"(target|build)_info"})`, false},
		{`rate({le!=""}[5m + 1m])`, true},
		{`{le!=""}[5m] anchored`, true},
		{`limitk(2, {le!=""})`, true},
		{`up + fill(0) {le!=""}`, true},
	} {
		t.Run(tc.expr, func(t *testing.T) {
			expr, err := testParser.ParseExpr(tc.expr)
			require.NoError(t, err)
			rs := p.checkSelectivity(Analyze("", expr))
			require.Equal(t, tc.refused, rs.Err() != nil, "%v", rs)
		})
	}
}

type unknownNode struct{ parser.Expr }

func TestUnknownNodeIsRefusedAndDoesNotPanic(t *testing.T) {
	p := newPolicy(t, func(o *Options) { o.Selectivity = ModeObserve })
	for name, expr := range map[string]parser.Expr{
		"unknown type": &parser.ParenExpr{Expr: unknownNode{}},
		"empty child":  &parser.ParenExpr{},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, p.checkSelectivity(Analyze("", expr)).Err(), "cannot be checked")
		})
	}
}

func TestLongSelectorIsShortenedInTheRefusal(t *testing.T) {
	text := newPolicy(t, nil).Check(parseSelector(t, `{a!="`+strings.Repeat("ж", 5000)+`"}`)).Err().Error()
	require.Less(t, len(text), 1000)
	require.Contains(t, text, "...}")
	require.True(t, isValidUTF8(text))
}

func isValidUTF8(s string) bool { return strings.ToValidUTF8(s, "\uFFFD") == s }

// FuzzCheckExpr looks for expressions that make the walker panic, or in which
// it misses a selector that Check alone would refuse, and for selectors whose refusal
// advises what is refused, too.
func FuzzCheckExpr(f *testing.F) {
	for _, seed := range []string{
		`{le!=""}`, `up`, `info(up, {a=~".+"})`, `sum(rate(x[5m])) / on() {a!="b"}`,
		`topk(scalar({a!=""}), up)`, `max_over_time({a!=""}[1h:5m] @ start() offset 1m)`,
		`x[5m] smoothed`, `{__name__=~"a.+|b.+"}`, `-(((1)))`, `a + fill(0) b`,
	} {
		f.Add(seed)
	}
	p := newPolicy(f, nil)
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 4096 {
			return
		}
		expr, err := testParser.ParseExpr(text)
		if err != nil {
			return
		}
		strict, refused := p.checkSelectivity(Analyze("", expr)), false
		for _, ms := range parser.ExtractSelectors(expr) {
			if p.Check(ms) == nil {
				continue
			}
			refused = true
			equality := byValue
			equality.Name = "job"
			for _, m := range []*labels.Matcher{&equality, byPrefix} { // What the refusal advises passes.
				if advised := formatSelector(with(m, ms)); len(advised) <= maxRemedy {
					require.Nil(t, p.Check(parseSelector(t, advised)), "%s of %s", advised, text)
				}
			}
		}
		require.Equal(t, refused, strict != nil, "%s", text)
	})
}

var sink Refusals

func BenchmarkCheckSelector(b *testing.B) {
	p := newPolicy(b, nil)
	for _, s := range []string{`up{job="api"}`, `{le!=""}`, `{__name__=~"node_.+|kube_.+"}`, `x{pod=~".*a.*"}`} {
		ms := parseSelector(b, s)
		b.Run(s, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sink = p.Check(ms)
			}
		})
	}
}

func BenchmarkCheckExpr(b *testing.B) {
	p := newPolicy(b, nil)
	for name, text := range map[string]string{
		"name":       `up`,
		"sum_rate":   `sum by (job) (rate(http_requests_total{job="api",code=~"5.."}[5m]))`,
		"histogram":  `histogram_quantile(0.99, sum by (le, job) (rate(http_request_duration_seconds_bucket{job=~"api|web"}[5m])))`,
		"hundred":    `a` + strings.Repeat(` + on(job) rate(http_requests_total{job="api"}[5m])`, 100),
		"unselected": `sum({le!=""})`,
	} {
		expr, err := testParser.ParseExpr(text)
		require.NoError(b, err)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sink = p.checkSelectivity(Analyze("", expr))
			}
		})
	}
}
