// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package evaluate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/promguard/promguard/internal/relabel"
	"github.com/promguard/promguard/internal/rules/check"
	"github.com/promguard/promguard/internal/rules/source"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const rules = `
name: test
summary: for a test
rules:
  - {id: gone, class: unused, source_labels: [__name__], regex: gone, reason: for a test}
  - {id: empty, class: disjoint, source_labels: [__name__, container], regex: 'part;', reason: for a test}
  - {id: jobbed, class: unused, source_labels: [__name__], regex: jobbed, jobs: [one], reason: for a test}
  - {id: thin, class: thin, histograms: [a], drop_le: [0.2, 2, 20], bounds: [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50], reason: for a test}
  - {id: low, class: thin, histograms: [b], drop_le: [0.1], bounds: [0.1, 0.2, 0.5, 1], reason: for a test}
`

func profile(t testing.TB) relabel.Profile {
	t.Helper()
	p, err := relabel.ParseProfile("test.yaml", []byte(rules))
	require.NoError(t, err)
	return p
}

// exposition has a few series of each metric that the rules are about.
func exposition(rnd *rand.Rand) string {
	var b strings.Builder
	histogram := func(name string, bounds ...float64) {
		fmt.Fprintf(&b, "# TYPE %s histogram\n", name)
		for _, pod := range []string{"x", "y"} {
			n := 0
			for _, bound := range bounds {
				n += rnd.IntN(50)
				fmt.Fprintf(&b, "%s_bucket{pod=%q,le=\"%g\"} %d\n", name, pod, bound, n)
			}
			n += rnd.IntN(5)
			fmt.Fprintf(&b, "%s_bucket{pod=%q,le=\"+Inf\"} %d\n%s_sum{pod=%q} 7\n%s_count{pod=%q} %d\n", name, pod, n, name, pod, name, pod, n)
		}
	}
	for _, name := range []string{"up", "gone", "jobbed", "kept"} {
		fmt.Fprintf(&b, "# TYPE %s gauge\n%s{pod=\"x\"} %d\n%s{pod=\"y\"} 1\n", name, name, rnd.IntN(3), name)
	}
	b.WriteString("# TYPE part counter\n")
	for _, c := range []string{"", "c", "d"} {
		fmt.Fprintf(&b, "part{pod=\"x\",container=%q} %d\n", c, 1+rnd.IntN(9))
	}
	histogram("a", 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50)
	histogram("b", 0.1, 0.2, 0.5, 1)
	return b.String()
}

func testSeries(t testing.TB, seed uint64) []Series {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 1))
	var all []Series
	for _, job := range []string{"one", "two"} {
		s, err := ParseExposition([]byte(exposition(rnd)), labels.FromStrings("job", job))
		require.NoError(t, err)
		all = append(all, s...)
	}
	return all
}

func expr(t testing.TB, text string) source.Expression {
	t.Helper()
	e, err := source.NewParser().ParseExpr(text)
	require.NoError(t, err, text)
	return source.Expression{File: "test", Place: text, Kind: source.KindQuery, Text: text, Queries: []parser.Expr{e}}
}

// manyExpressions puts selectors into everything that the proofs know how to
// follow.
func manyExpressions(t testing.TB) []source.Expression {
	t.Helper()
	inner := []string{
		"up", "gone", "part", `part{container!=""}`, `part{container=""}`, "jobbed", `jobbed{job="two"}`, "a_bucket", `a_bucket{le="2.0"}`,
		`a_bucket{le="+Inf"}`, "rate(a_bucket[5m])", "sum by (le, job) (a_bucket)", "b_bucket", "a_count", "rows", `rows{le="1.0"}`, "quantile", "from_gone",
		"histogram_quantile(0.9, a_bucket)", "histogram_quantile(0.5, sum by (le, job) (rate(b_bucket[5m])))", `{__name__=~"gone|kept"}`, `{__name__=~"(a|b)_bucket"}`,
		"a_bucket == 3", "a_bucket > 4", `a_bucket{le=~"0.1|20(.0)?|[+]Inf"}`, "a_bucket and on (job, le) b_bucket", "a_bucket - b_bucket",
		"a_bucket * on (job, le) group_left () sum by (job, le) (b_bucket)",
	}
	unary := []string{
		"%s", "sum(%s)", "sum by (job) (%s)", "sum by (le) (%s)", "sum without (le) (%s)", "count(%s)", "group by (job) (%s)", "max by (pod) (%s)",
		"avg(%s)", "stddev(%s)", "topk(2, %s)", "quantile(0.5, %s)", "absent(%s)", "-(%s)", "(%s) > 0.3", "0.5 <= (%s)", "(%s) > bool 0.7", "(%s) >= bool 0.5", "(%s) < 1", "(%s) == bool 5", "-(%s) > bool -0.5", "sum((%s) or vector(-15))",
		"(%s) * 2", "(%s) + 1",
		"1 / (%s)", "scalar(%s)", "(%s) or vector(0)", "up unless on (job) (%s)", "up and on (job) (%s)", "histogram_quantile(0.5, %s)",
		"histogram_quantile(0.99, sum by (le) (%s))", "max_over_time((%s)[10m:1m])", "avg_over_time((%s)[10m:1m])", "deriv((%s)[10m:1m])",
		"abs(%s)", "sort(%s)", "timestamp(%s)", "absent_over_time((%s)[10m:1m])", "clamp_max(%s, 1)", `label_replace(%s, "x", "y", "", "")`,
		`count_values("v", %s)`, "histogram_fraction(0, 0.3, %s)",
	}
	binary := []string{
		"(%s) and on (job) (%s)", "(%s) unless on (job) (%s)", "(%s) unless (%s)", "(%s) or (%s)", "(%s) or on (job) (%s)",
		"(%s) * on (job) group_left () sum by (job) (%s)", "(%s) > on (job) group_left () max by (job) (%s)", "(%s) / (%s)", "sum by (le) (%s) / sum by (le) (%s)",
		"histogram_quantile(0.9, (%s) or (%s))", "sum(%s) / sum(%s)", "sum by (job) (%s) unless count by (job) (%s) > 1",
	}
	out := recordingRules(t)
	for n, i := range inner {
		for _, u := range unary {
			out = append(out, expr(t, fmt.Sprintf(u, i)))
		}
		for m, j := range inner {
			for k, b := range binary {
				// A third of all pairs is plenty.
				if (n+2*m+k)%3 == 0 {
					out = append(out, expr(t, fmt.Sprintf(b, i, j)))
				}
			}
		}
	}
	return out
}

func recordingRules(t testing.TB) []source.Expression {
	t.Helper()
	var out []source.Expression
	for _, r := range [][2]string{
		{"second", "from_gone"}, // Before what it reads.
		{"rows", "sum by (le, job, pod) (a_bucket)"},
		{"quantile", "histogram_quantile(0.9, rate(a_bucket[5m]))"},
		{"from_gone", "gone * 2"},
	} {
		e := expr(t, r[1])
		e.Kind, e.Record = source.KindRecord, r[0]
		out = append(out, e)
	}
	return out
}

// The proofs are tested against the data: whatever they call invisible is equal,
// what they call thinned within the bound, and what they call gone is empty.
func TestWhatIsProvedHoldsOnData(t *testing.T) {
	p := profile(t)
	checker, err := check.New(p, nil)
	require.NoError(t, err)
	results := checker.Check(manyExpressions(t))
	seen := map[string]int{}
	d, err := Load(p, testSeries(t, 1), recordingRules(t))
	require.NoError(t, err)
	defer d.Close()
	for i, m := range d.Compare(results) {
		requireAgreement(t, results[i], m)
		seen[string(results[i].Verdict)+" "+string(m.Outcome)]++
	}
	t.Log(seen)
	// A check that finds everything changed would pass too.
	for _, pair := range []string{"invisible equal", "thinned within the bound", "gone gone", "changed changed"} {
		require.Greater(t, seen[pair], 20, pair)
	}
}

func requireAgreement(t *testing.T, r check.Result, m Measured) {
	t.Helper()
	var fits bool
	switch r.Verdict {
	case check.Invisible:
		fits = m.Outcome == Equal || m.Outcome == Failed
	case check.Thinned:
		fits = m.Outcome == Equal || m.Outcome == Within || m.Outcome == Failed
	case check.Gone:
		fits = m.Outcome == Gone || m.Outcome == Failed || m.Outcome == Equal && m.Rows == 0
	default:
		fits = true
	}
	require.True(t, fits, "%s: proved %s, measured %+v\n%+v", r.Expression.Text, r.Verdict, m, r.Findings)
}

func TestCountersGrowAndGaugesStay(t *testing.T) {
	p := profile(t)
	d, err := Load(p, testSeries(t, 1), nil)
	require.NoError(t, err)
	defer d.Close()
	for query, want := range map[string]bool{
		"sum(rate(a_count[1m])) > 0": true, "sum(increase(a_bucket[3d])) > 0": true, "sum(rate(part[5m])) > 0": true, "changes(up[1h]) > 0": false,
	} {
		rows, err := d.evaluate(d.full, query, now)
		require.NoError(t, err)
		require.Equal(t, want, len(rows) > 0, query)
	}
	require.Equal(t, len(testSeries(t, 1)), d.Series)
	require.Equal(t, []int{4, 2, 2, 12, 4}, d.PerRule)
	require.Equal(t, 24, d.Dropped)
}

func TestLayoutsAreThoseOfTheData(t *testing.T) {
	series, err := ParseExposition([]byte("h_bucket{le=\"1\",a=\"x\"} 1\nh_bucket{le=\"2\",a=\"x\"} 1\nh_bucket{le=\"+Inf\",a=\"x\"} 1\nh_bucket{le=\"1\",a=\"y\"} 1\n"+
		"h_bucket{le=\"2\",a=\"z\"} 1\nh_bucket{le=\"1\",a=\"z\"} 1\nh_bucket{le=\"nonsense\"} 1\n"), labels.EmptyLabels())
	require.NoError(t, err)
	require.Equal(t, map[string][][]float64{"h": {{1, 2}, {1}}}, Layouts(series))
}

func TestPromguardThatIsNotMetIsFound(t *testing.T) {
	text := strings.Replace(rules, "regex: 'part;', reason", `requires: 'part{container!=""}', regex: 'part;', reason`, 1)
	p, err := relabel.ParseProfile("test.yaml", []byte(text))
	require.NoError(t, err)
	for exposition, want := range map[string]int{"part 1\n": 1, "part 1\npart{container=\"c\"} 1\n": 0, "part{container=\"c\"} 1\n": 0} {
		series, err := ParseExposition([]byte(exposition), labels.FromStrings("job", "x"))
		require.NoError(t, err)
		d, err := Load(p, series, nil)
		require.NoError(t, err)
		require.Len(t, d.Unguarded, want, exposition)
		require.NoError(t, d.Close())
	}
}

func TestExpositionIsReadWithItsTargetsLabels(t *testing.T) {
	path, target, err := splitTarget(`/a/b.prom{job="x",metrics_path="/metrics"}`)
	require.NoError(t, err)
	require.Equal(t, "/a/b.prom", path)
	require.Equal(t, labels.FromStrings("job", "x", "metrics_path", "/metrics"), target)
	_, err = ReadExpositions([]string{`x{job=}`})
	require.ErrorContains(t, err, "labels do not parse")
	_, err = ReadExpositions([]string{t.TempDir() + "/none"})
	require.ErrorContains(t, err, "no such file")
	_, err = ParseExposition([]byte("a{b=\"c\" 1\n"), labels.EmptyLabels())
	require.Error(t, err)
	s, err := ParseExposition([]byte("# TYPE a counter\na_total{job=\"own\"} 3\n# EOF\n"), labels.FromStrings("job", "x", "i", "y"))
	require.NoError(t, err)
	require.Equal(t, []Series{{labels.FromStrings("__name__", "a_total", "i", "y", "job", "own"), 3, true}}, s)
}

func TestBoundHoldsForRandomHistograms(t *testing.T) {
	bounds := []float64{0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50}
	checker, err := check.New(profile(t), nil)
	require.NoError(t, err)
	results := checker.Check([]source.Expression{
		expr(t, "histogram_quantile(0.5, h_bucket{x!=\"\"} or a_bucket)"), expr(t, "histogram_quantile(0.9, a_bucket)"), expr(t, "histogram_quantile(0.99, a_bucket) * 1000"),
	})
	rnd := rand.New(rand.NewPCG(3, 4))
	within := 0
	for range 40 {
		var b strings.Builder
		n := 0.0
		for _, bound := range bounds {
			n += math.Floor(1000 * math.Pow(rnd.Float64(), 6))
			fmt.Fprintf(&b, "a_bucket{le=\"%g\"} %g\n", bound, n)
		}
		fmt.Fprintf(&b, "a_bucket{le=\"+Inf\"} %g\n", n+1)
		series, err := ParseExposition([]byte(b.String()), labels.EmptyLabels())
		require.NoError(t, err)
		d, err := Load(profile(t), series, nil)
		require.NoError(t, err)
		for i, m := range d.Compare(results) {
			if i == 0 {
				continue
			}
			require.Contains(t, []Outcome{Equal, Within}, m.Outcome, "%s\n%+v", b.String(), m)
			if m.Outcome == Within {
				within++
			}
		}
		require.NoError(t, d.Close())
	}
	require.NotZero(t, within)
}

func FuzzExposition(f *testing.F) {
	f.Add([]byte(exposition(rand.New(rand.NewPCG(1, 1)))))
	f.Add([]byte("# TYPE a counter\na_total 1\n# EOF\n"))
	f.Fuzz(func(_ *testing.T, text []byte) {
		series, err := ParseExposition(text, labels.FromStrings("job", "x"))
		if err == nil {
			Layouts(series)
		}
	})
}
