// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
)

var testNow = time.Unix(1_700_000_000, 0)

func instant() Evaluation { return Evaluation{Start: testNow, End: testNow} }

func steps(length, step time.Duration) Evaluation {
	return Evaluation{Start: testNow.Add(-length), End: testNow, Step: step}
}

// evaluation is what the limits see of a query.
func evaluation(q *Query, e Evaluation) *asked {
	return &asked{Request: &Request{Endpoint: FindEndpoint("query_range")}, queries: []*Query{q}, at: e, now: testNow}
}

const day = 24 * time.Hour

// Each limit, with what is just allowed, what is not, and what is said then.
func TestEachLimitOfAQueryRefusesWhatIsOverIt(t *testing.T) {
	for _, tc := range []struct {
		limit    string
		set      func(*Options, Mode)
		when     Evaluation
		ok, over string
		says     []string
	}{
		{
			LimitRange, func(o *Options, m Mode) { o.Range = Bound{m, int(day)} }, steps(23*time.Hour, time.Minute),
			`rate(a[1h])`, `rate(a[1h] offset 1h) + b`,
			[]string{"a query that reads 1d1h of samples, with ranges, subqueries, offsets and lookback, exceeds the 1d allowed", "limits.range.max", "range.md"},
		},
		{
			LimitRange, func(o *Options, m Mode) { o.Range = Bound{m, int(day)} }, instant(),
			`max_over_time(a[23h:1m])`, `max_over_time(rate(a[1h])[23h30m:1m])`,
			[]string{"reads 1d30m of samples"},
		},
		{
			LimitRange, func(o *Options, m Mode) { o.Range = Bound{m, int(day)} }, instant(),
			`rate(a[12h + 12h])`, `rate(a[12h * 3])`,
			[]string{"reads 1d12h of samples"},
		},
		{
			LimitRange, func(o *Options, m Mode) { o.Range = Bound{m, int(day)} }, instant(), `a offset 10d`, `a - a offset 10d`, []string{"10d"},
		},
		{
			LimitRange, func(o *Options, m Mode) { o.Range = Bound{m, int(day)} }, instant(), `1 + 1`, `a - a @ 0`, nil,
		},
		{
			LimitOldest, func(o *Options, m Mode) { o.Oldest = Bound{m, int(30 * day)} }, instant(), `a offset 29d`, `a offset 30d`,
			[]string{"reads samples of 30d5m ago exceeds the 30d allowed", "limits.oldest.max", "oldest.md"},
		},
		{
			LimitOldest, func(o *Options, m Mode) { o.Oldest = Bound{m, int(30 * day)} }, instant(), `a`, `a @ 0`, []string{"ago exceeds"},
		},
	} {
		for _, mode := range Modes() {
			p := newPolicy(t, func(o *Options) {
				*o = Options{
					QueryBytes: o.QueryBytes, QueryOperators: o.QueryOperators, RegexSize: o.RegexSize, RequestBytesMax: 1, ParametersMax: 1,
				}
				tc.set(o, mode)
			})
			p.tenant = "team-a"
			check := func(text string) Refusals {
				q, rs, err := NewAnalyzer(0).Expr(p, text)
				require.NoError(t, err, text)
				return append(rs, p.check(evaluation(q, tc.when))...)
			}
			if tc.ok != "" {
				require.Empty(t, check(tc.ok), "%s %s", tc.limit, tc.ok)
			}
			if tc.over == "" {
				continue
			}
			rs := check(tc.over)
			if mode == ModeOff {
				require.Empty(t, rs)
				continue
			}
			require.Len(t, rs, 1, tc.over)
			require.Equal(t, tc.limit, rs[0].Limit)
			require.Equal(t, mode, rs[0].Mode)
			for _, part := range append(tc.says, "Limit "+tc.limit+" of tenant team-a: ") {
				require.Contains(t, rs[0].Error(), part)
			}
		}
	}
}

func TestMetadataRequestGetsAStartAndNotMoreThanTheMaximum(t *testing.T) {
	at := func(ago time.Duration) time.Time { return testNow.Add(-ago) }
	var none time.Time
	enforce := MetadataRange{ModeEnforce, day, 7 * day}
	for name, tc := range map[string]struct {
		bound      MetadataRange
		start, end time.Time
		want       time.Time // zero: not set
		says       string
	}{
		"off":                             {MetadataRange{ModeOff, day, 7 * day}, none, none, none, ""},
		"no start":                        {enforce, none, none, at(day), ""},
		"no start, an end":                {enforce, none, at(day), at(2 * day), ""},
		"no start, an end to come":        {enforce, none, testNow.Add(day), at(day), ""},
		"no start, no default":            {MetadataRange{ModeEnforce, 0, 7 * day}, none, none, at(7 * day), ""},
		"no start, no default or maximum": {MetadataRange{ModeEnforce, 0, 0}, none, none, none, ""},
		"no start, observed":              {MetadataRange{ModeObserve, day, 0}, none, none, none, "a request without start reads all time, and only the last 1d once the limit is enforced."},
		"in range":                        {enforce, at(7 * day), none, none, ""},
		"too long":                        {enforce, at(8 * day), none, none, "a request that reads 8d exceeds the 1w allowed; an operator can raise limits.metadata_range.max."},
		"too long ago but short":          {enforce, at(90 * day), at(89 * day), none, ""},
		"ends in the far future":          {enforce, at(day), time.Unix(1<<50, 0), none, ""},
		"from the beginning of time":      {enforce, time.Unix(-1<<53, 0), none, none, "a request that reads all time exceeds"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPolicy(t, func(o *Options) { o.MetadataRange = tc.bound })
			a := &asked{Request: &Request{Endpoint: FindEndpoint("series"), Start: tc.start, End: tc.end}, now: testNow}
			start, set := metadataRange{}.start(p, a)
			rs := p.check(a)
			require.Equal(t, !tc.want.IsZero(), set)
			if set {
				require.True(t, tc.want.Equal(start), "%s", start)
			}
			require.Equal(t, tc.says != "", rs != nil)
			if rs != nil {
				require.Contains(t, rs[0].Error(), tc.says)
				require.Contains(t, rs[0].Error(), "metadata-range.md")
			}
		})
	}
}

func TestNewLimitsAreValidated(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"range is -1s: use 0s to all time":                                   func(o *Options) { o.Range.Max = -int(time.Second) },
		"metadata_range: default 2d is more than max 1d":                     func(o *Options) { o.MetadataRange.Default, o.MetadataRange.Max = 2*day, day },
		"metadata_range is negative: use 0 for none, or a positive duration": func(o *Options) { o.MetadataRange.Max = -1 },
		"series is -1: use 0 to 1125899906842624":                            func(o *Options) { o.Series.Max = -1 },
	} {
		opts := DefaultOptions()
		change(&opts)
		_, err := New(opts)
		require.EqualError(t, err, want)
	}
}

// The times that a query reads are worked out without evaluating it. The engine
// of Prometheus is the judge.
func TestReachIsWhatTheEngineReads(t *testing.T) {
	for _, text := range corpus(t) {
		requireSameReach(t, text, 3600, 60)
		requireSameReach(t, text, 0, 0)
	}
}

// corpus returns the queries of Prometheus's own tests, and some that are odd.
func corpus(t testing.TB) []string {
	t.Helper()
	list := []string{
		`a`, `a offset 5m`, `a offset -5m`, `a @ 100`, `a @ start()`, `a @ end() offset 1h`, `rate(a[5m])`, `rate(a[5m] offset 1h @ 100)`,
		`a[5m] anchored`, `a[5m] smoothed`, `a smoothed`, `rate(a[5m] smoothed) + b`,
		`max_over_time(a[1h:1m])`, `max_over_time(a[1h:1m] offset 1d)`, `max_over_time(a[1h:1m] @ 100)`, `max_over_time(a[1h:1m] @ start())`,
		`max_over_time(max_over_time(rate(a[5m] offset 2m)[1h:1m] @ end() offset 3m)[1d:1h] offset 4m)`,
		`max_over_time(max_over_time((a @ 50)[1h:1m] offset 3m)[1d:1h] @ 77)`, `info(a)`, `info(a offset 5m, {x="y"})`, `info(rate(a[5m] @ 5))`,
		`rate(a[5m * 2])`, `a offset (step() * 2)`, `max_over_time(a[range():step()])`, `1`, `"text"`, `time()`, `vector(1)`, `-a`, `a + on() b offset 1w`,
		`rate(a[100y])`,
	}
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/prometheus/prometheus").Output()
	require.NoError(t, err)
	paths, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "promql", "promqltest", "testdata", "*.test"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			if _, rest, ok := strings.Cut(line, "eval instant at "); ok {
				_, query, _ := strings.Cut(rest, " ")
				list = append(list, strings.TrimSpace(query))
			}
		}
	}
	return list
}

func requireSameReach(t testing.TB, text string, length, step int64) {
	t.Helper()
	e := Evaluation{
		Start: testNow.Add(-time.Duration(length) * time.Second), End: testNow, Step: time.Duration(step) * time.Second, Lookback: 7 * time.Minute,
	}
	q, rs, err := NewAnalyzer(0).Expr(newPolicy(t, nil), text)
	if err != nil || rs.Err() != nil {
		return
	}
	expr, err := testParser.ParseExpr(text)
	require.NoError(t, err)
	if expr, err = promql.PreprocessExpr(expr, e.Start, e.End, e.Step); err != nil {
		return
	}
	wantFirst, wantLast := promql.FindMinMaxTime(&parser.EvalStmt{Expr: expr, Start: e.Start, End: e.End, Interval: e.Step, LookbackDelta: e.Lookback})
	got, _ := evaluation(q, e).estimate()
	const centuries = 300 * 365 * 24 * 3600 * 1000
	if len(q.selectors) == 0 || got.first < -centuries || got.last > centuries {
		return // The engine's sums overflow there. What is left is over every limit.
	}
	first := int64(got.first) + 1
	if strings.Contains(text, "info(") { // That bounds it.
		require.LessOrEqual(t, first, wantFirst, text)
		first = wantFirst
	}
	require.Equal(t, [2]int64{wantFirst, wantLast}, [2]int64{first, int64(got.last)}, "%s", text)
}

func TestSumsThatOverflowAreOverEveryLimit(t *testing.T) {
	p := newPolicy(t, func(o *Options) { o.Range = Bound{ModeEnforce, 1 << 61} })
	for _, text := range []string{`max_over_time(max_over_time(a[290y:1d])[290y:1d])`, `a - a @ 9223372036854`, `a - a @ -9223372036854`} {
		q, _, err := NewAnalyzer(0).Expr(p, text)
		require.NoError(t, err)
		require.Error(t, p.check(evaluation(q, steps(time.Hour, time.Minute))).Err(), text)
	}
}

func FuzzReach(f *testing.F) {
	for _, text := range corpus(f) {
		f.Add(text, int64(3600), int64(60))
	}
	f.Fuzz(func(t *testing.T, text string, length, step int64) {
		if length < 0 || step < 0 || length > 1<<30 || step > 1<<30 || len(text) > 1000 {
			return
		}
		requireSameReach(t, text, length, step)
	})
}
