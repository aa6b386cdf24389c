// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"fmt"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/promqltext"
)

func newRuleset(t testing.TB, tenants map[string][]Override, rules ...Rule) *Ruleset {
	t.Helper()
	s, err := NewRuleset(RulesetOptions{Global: DefaultOptions(), Tenants: tenants, Rules: rules})
	require.NoError(t, err)
	return s
}

func bytesMax(n int) Override { return func(o *Options) { o.QueryBytes.Max = n } }

func TestRuleMatchesIfEveryConditionHolds(t *testing.T) {
	yes, no := true, false
	who := Subject{
		Tenant: "a", Endpoint: "query", Class: ClassQuery, Dashboard: "d", Panel: "3", User: "ann", UserAgent: "Grafana/12", Alert: true,
	}
	texts := []string{"up", "sum(rate(x[5m]))"}
	own := Analyze("up", mustParse(t, "up")).Fingerprint
	for name, tc := range map[string]struct {
		match Match
		want  bool
	}{
		"nothing asked":             {Match{}, true},
		"one of several tenants":    {Match{Tenants: []string{"b", "a"}}, true},
		"another tenant":            {Match{Tenants: []string{"b"}}, false},
		"endpoint":                  {Match{Endpoints: []string{"query"}}, true},
		"another endpoint":          {Match{Endpoints: []string{"series"}}, false},
		"class":                     {Match{Classes: []Class{ClassStatus, ClassQuery}}, true},
		"another class":             {Match{Classes: []Class{ClassMetadata}}, false},
		"dashboard and panel":       {Match{Dashboards: []string{"d"}, Panels: []string{"3"}}, true},
		"dashboard, another panel":  {Match{Dashboards: []string{"d"}, Panels: []string{"4"}}, false},
		"user":                      {Match{Users: []string{"ann"}}, true},
		"another user":              {Match{Users: []string{"bob"}}, false},
		"alert":                     {Match{Alert: &yes}, true},
		"no alert":                  {Match{Alert: &no}, false},
		"user agent":                {Match{UserAgent: regexp.MustCompile(`^Grafana/`)}, true},
		"another user agent":        {Match{UserAgent: regexp.MustCompile(`curl`)}, false},
		"query, the second":         {Match{Query: regexp.MustCompile(`rate\(.*\[5m\]`)}, true},
		"another query":             {Match{Query: regexp.MustCompile(`rate\(.*\[6m\]`)}, false},
		"query and user agent":      {Match{Query: regexp.MustCompile(`^up$`), UserAgent: regexp.MustCompile(`Grafana`)}, true},
		"query, another user agent": {Match{Query: regexp.MustCompile(`^up$`), UserAgent: regexp.MustCompile(`curl`)}, false},
		"tenant and query":          {Match{Tenants: []string{"a"}, Query: regexp.MustCompile(`^up$`)}, true},
		"tenant, another query":     {Match{Tenants: []string{"a"}, Query: regexp.MustCompile(`^down$`)}, false},
		"tenant and user agent":     {Match{Tenants: []string{"a"}, UserAgent: regexp.MustCompile(`12$`)}, true},
		"fingerprint":               {Match{Fingerprints: []string{own}}, true},
		"another fingerprint":       {Match{Fingerprints: []string{"0000000000000000"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newRuleset(t, nil, Rule{Name: "r", Match: tc.match, Deny: ModeEnforce})
			d := s.Decide(&who, texts, []string{own})
			require.Equal(t, tc.want, len(d.Rules) == 1)
			require.Equal(t, tc.want, d.Refusals.Err() != nil)
		})
	}
}

func TestNoRuleMatchesWhatNobodyVouchedFor(t *testing.T) {
	s := newRuleset(t, nil,
		Rule{Name: "tenant", Match: Match{Tenants: []string{"a"}}, Allow: true},
		Rule{Name: "query", Match: Match{Query: regexp.MustCompile(`^$`)}, Deny: ModeEnforce})
	require.Empty(t, s.Decide(&Subject{}, nil, nil).Rules)
	_, err := NewRuleset(RulesetOptions{Global: DefaultOptions(), Rules: []Rule{{Name: "r", Match: Match{Users: []string{""}}}}})
	require.EqualError(t, err, `rule "r": an empty text in a list matches nothing`)
}

func TestLimitsAreThoseOfAllThenOfTheTenantThenOfMatchingRulesInOrder(t *testing.T) {
	s := newRuleset(t, map[string][]Override{"a": {bytesMax(200)}},
		Rule{Name: "first", Match: Match{Dashboards: []string{"d"}}, Limits: []Override{bytesMax(300)}},
		Rule{Name: "second", Match: Match{Panels: []string{"3"}}, Limits: []Override{bytesMax(400)}},
		Rule{Name: "third", Match: Match{Endpoints: []string{"query"}}, Limits: []Override{func(o *Options) { o.QueryOperators.Max = 5 }}})
	for _, tc := range []struct {
		who              Subject
		bytes, operators int
	}{
		{Subject{}, 64 << 10, 1000},
		{Subject{Tenant: "b"}, 64 << 10, 1000},
		{Subject{Tenant: "a"}, 200, 1000},
		{Subject{Tenant: "a", Dashboard: "d"}, 300, 1000},
		{Subject{Tenant: "a", Dashboard: "d", Panel: "3"}, 400, 1000},
		{Subject{Panel: "3", Endpoint: "query"}, 400, 5},
	} {
		p := s.Decide(&tc.who, nil, nil).Policy
		require.Equal(t, tc.bytes, p.opts.QueryBytes.Max, "%+v", tc.who)
		require.Equal(t, tc.operators, p.opts.QueryOperators.Max, "%+v", tc.who)
		require.Equal(t, tc.who.Tenant, p.Tenant())
	}
	require.Equal(t, []string{"a"}, s.Tenants())
}

func TestDenyNamesRuleReasonAndTenantAndAllowExempts(t *testing.T) {
	deny := Rule{Name: "no-yearly", Match: Match{Query: regexp.MustCompile(`\[1y\]`)}, Deny: ModeEnforce, Reason: "use the recording rule job:x:sum1y"}
	s := newRuleset(t, nil, deny)
	texts := []string{"sum_over_time(x[1y])"}
	require.EqualError(t, s.Decide(&Subject{Tenant: "a"}, texts, nil).Refusals.Err(),
		`use the recording rule job:x:sum1y. Limit deny of tenant a: this request is denied by the rule no-yearly; `+
			`an operator can change that in promguard.yml. `+
			`See https://github.com/promguard/promguard/blob/main/docs/limits/deny.md`)

	s = newRuleset(t, nil, deny, Rule{Name: "report", Match: Match{Tenants: []string{"a"}}, Allow: true})
	require.Empty(t, s.Decide(&Subject{Tenant: "a"}, texts, nil).Refusals)
	require.Error(t, s.Decide(&Subject{Tenant: "b"}, texts, nil).Refusals.Err())

	deny.Deny = ModeWarn
	d := newRuleset(t, nil, deny).Decide(&Subject{}, texts, nil)
	require.NoError(t, d.Refusals.Err())
	require.Len(t, d.Refusals.Warnings(), 1)
}

func TestEveryRuleThatDeniesIsLookedAt(t *testing.T) {
	s := newRuleset(t, nil,
		Rule{Name: "a", Match: Match{Query: regexp.MustCompile("up")}, Deny: ModeObserve},
		Rule{Name: "b", Match: Match{Query: regexp.MustCompile("up")}, Deny: ModeEnforce})
	d := s.Decide(&Subject{}, []string{"up"}, nil)
	require.Equal(t, []string{"a", "b"}, d.Rules)
	require.ErrorContains(t, d.Refusals.Err(), "rule b")
}

func TestWrongRulesetIsRefusedByName(t *testing.T) {
	for want, opts := range map[string]RulesetOptions{
		`tenant "a": query_bytes is 0: use 1 to 1048576`: {Tenants: map[string][]Override{"a": {bytesMax(0)}}},
		`rule "r": query_bytes is 0: use 1 to 1048576`:   {Rules: []Rule{{Name: "r", Limits: []Override{bytesMax(0)}}}},
		`rule "": it needs a name`:                       {Rules: []Rule{{}}},
		`rule "r": another rule has the same name`:       {Rules: []Rule{{Name: "r"}, {Name: "r"}}},
	} {
		opts.Global = DefaultOptions()
		_, err := NewRuleset(opts)
		require.EqualError(t, err, want)
	}
}

func TestFingerprintIsTheSameForQueriesThatDifferInValuesOnly(t *testing.T) {
	same := [][]string{
		{`rate(x{job="a"}[5m])`, `rate( x{job="b"}[1h] )`, `rate(x{job="a"}[5m] offset 1d)`},
		{`topk(3, x > 5)`, `topk(10, x > 7)`},
		{`label_replace(x, "a", "b", "c", "d")`, `label_replace(x, "e", "f", "g", "h")`},
		{`sum by (job) (x)`},
		{`sum by (pod) (x)`},
		{`sum without (job) (x)`},
		{`sum(x) by (job, pod)`},
		{`x{job="a"}`},
		{`x{job=~"a"}`},
		{`y{job="a"}`},
		{`x{pod="a"}`},
		{`a + b`},
		{`a - b`},
		{`a + on(x) b`},
		{`a + ignoring(x) b`},
		{`a + on(x) group_left b`},
		{`a + on(x) group_left(y) b`},
		{`a + on(x, y) group_left() b`},
		{`a > b`},
		{`a > bool b`},
		{`(a + b) * c`},
		{`a + b * c`},
		{`-a`},
		{`max_over_time(a[1h:1m])`, `max_over_time(a[2h:])`},
	}
	seen := map[string]string{}
	for _, group := range same {
		first := Analyze("", mustParse(t, group[0])).Fingerprint
		require.Len(t, first, 16)
		require.NotContains(t, seen, first, "%s", group[0])
		for _, text := range group {
			require.Equal(t, first, Analyze("", mustParse(t, text)).Fingerprint, text)
			seen[first] = text
		}
	}
}

func TestPatternMatchesWhatItsRegularExpressionMatches(t *testing.T) {
	for _, e := range []string{
		`up`, `^up$`, `rate\(`, `container_(cpu|memory)_usage`, `(?i)NODE_`, `a.c`, `[0-9]{3}`, `node_cpu_seconds_total|node_load1`,
		`(kube_pod_){2}`, `x+yz?kube_pod_info`, ``, `\[30d\]`, `ж{2}жж`,
	} {
		re := regexp.MustCompile(e)
		p := newPattern(re)
		for _, text := range []string{
			"", "up", "sum(up)", "rate(container_cpu_usage[5m])", "node_load1", "abc 123", "kube_pod_kube_pod_", "xxyzkube_pod_info[30d]",
			"жжжж", strings.Repeat("container_memory_usage", 3),
		} {
			require.Equal(t, re.MatchString(text), p.matches(text), "%s: %s", e, text)
		}
	}
}

func TestRulesAreAskedAboutNothingThatIsTooLongAnyway(t *testing.T) {
	matchesAll := Match{Query: regexp.MustCompile(`a`)}
	for name, tc := range map[string]struct {
		limits []Override
		tenant string
		length int
		asked  bool
	}{
		"as long as everybody may":           {nil, "", 64 << 10, true},
		"longer":                             {nil, "", 64<<10 + 1, false},
		"longer than everybody, of a tenant": {nil, "a", 100, true},
		"longer than the tenant may":         {nil, "a", 201, false},
		"a rule lets more pass":              {[]Override{bytesMax(100 << 10)}, "", 80 << 10, true},
		"a rule switches the limit off":      {[]Override{func(o *Options) { o.QueryBytes.Mode = ModeOff }}, "", 80 << 10, true},
		"over the ceiling":                   {[]Override{func(o *Options) { o.QueryBytes.Mode = ModeOff }}, "", promqltext.MaxBytes + 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newRuleset(t, map[string][]Override{"a": {bytesMax(200)}}, Rule{Name: "r", Match: matchesAll, Allow: true, Limits: tc.limits})
			r := &Request{Endpoint: FindEndpoint("query"), Who: Subject{Tenant: tc.tenant}, Texts: []string{strings.Repeat("a", tc.length)}}
			v, err := s.Judge(NewAnalyzer(0), r, time.Now())
			require.NoError(t, err)
			require.Equal(t, tc.asked, len(v.Rules) == 1)
			require.Equal(t, tc.asked, v.Refusals.Err() == nil)
		})
	}
}

// A request may be a megabyte of which promguard understands a name.
func TestWhatIsRememberedDoesNotHoldTheRequest(t *testing.T) {
	p := newPolicy(t, nil)
	a := NewAnalyzer(8 << 20)
	before := heap()
	for i := range 100 {
		n := strconv.Itoa(i)
		request := "up" + n + strings.Repeat("x", 1<<20)
		text := request[:2+len(n)]
		_, _, err := a.Expr(p, text)
		require.NoError(t, err)
		_, _, err = a.Selectors(p, []string{text})
		require.NoError(t, err)
	}
	held := heap() - before
	runtime.KeepAlive(a)
	require.Less(t, held, int64(8<<20))
}

func FuzzRequiredLiteral(f *testing.F) {
	for _, seed := range [][2]string{{`a(bcd)+e?`, "abcdbcd"}, {`(?i)abcd`, "ABCD"}, {`^(ab|cd)efgh$`, "cdefgh"}, {`(x{3}y){2}`, "xxxyxxxy"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, expr, text string) {
		re, err := regexp.Compile(expr)
		if err != nil || len(expr) > 200 {
			return
		}
		if re.MatchString(text) {
			require.Contains(t, text, requiredLiteral(expr))
		}
	})
}

func TestCacheStaysWithinItsBoundAndKeepsWhatIsUsed(t *testing.T) {
	c := newTextCache[[]byte](1 << 20)
	c.put("used", []byte("v"), 1)
	for i := range 10_000 {
		c.put(strconv.Itoa(i), make([]byte, 1000), 1000)
		v, ok := c.get("used")
		require.True(t, ok)
		require.Equal(t, []byte("v"), v)
		held := 0
		for _, generation := range []map[string]*cached[[]byte]{c.young, c.old} {
			for text, e := range generation {
				held += len(text) + len(e.value)
			}
			if i%1000 > 0 {
				break
			}
		}
		require.LessOrEqual(t, held, 1<<20)
	}
	_, ok := c.get("1")
	require.False(t, ok)
	c.put("huge", make([]byte, 1<<19), 1<<19)
	_, ok = c.get("huge")
	require.False(t, ok, "one entry must not push out all others")
}

func TestQueryCacheHoldsNoMoreMemoryThanItsBound(t *testing.T) {
	const bound = 4 << 20
	p := newPolicy(t, func(o *Options) {
		o.RegexSize.Max, o.QueryOperators.Max = promqltext.MaxRegexSize, promqltext.MaxOperators
	})
	for name, query := range map[string]func(int) string{
		"names":       func(i int) string { return fmt.Sprintf("sum by (job) (rate(metric_%d[5m]))", i) },
		"one regexp":  func(i int) string { return fmt.Sprintf(`up{pod=~"a.*b+[c-d]?%d(x|y+)*z"}`, i) },
		"counted":     func(i int) string { return fmt.Sprintf(`up{pod=~"(x{9}y{%d}){3}",i="%d"}`, 1+i%30, i) },
		"many labels": func(i int) string { return fmt.Sprintf(`up{a%d="1"%s}`, i, strings.Repeat(`,b!="c"`, 50)) },
		"classes":     func(i int) string { return fmt.Sprintf(`up{pod=~"%s%d"}`, strings.Repeat(`\\pL`, 1+i%30), i) },
		"many selectors": func(i int) string {
			return fmt.Sprintf("up%d", i) + strings.Repeat(" + up", 20)
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := NewAnalyzer(bound)
			before := heap()
			for i := 0; len(a.queries.old) == 0 || a.queries.bytes < a.queries.limit*9/10; i++ {
				_, rs, err := a.Expr(p, query(i))
				require.NoError(t, err)
				require.Nil(t, rs)
			}
			held := heap() - before
			runtime.KeepAlive(a)
			require.Less(t, held, int64(bound))
			t.Logf("%d KiB held of %d", held>>10, bound>>10)
		})
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkDecide has 1,000 rules of one kind and a request that matches one of them.
func BenchmarkDecide(b *testing.B) {
	const n = 1000
	for name, match := range map[string]func(i int) Match{
		"dashboard": func(i int) Match { return Match{Tenants: []string{"a"}, Dashboards: []string{"d" + strconv.Itoa(i)}} },
		"panel": func(i int) Match {
			return Match{Dashboards: []string{"d" + strconv.Itoa(i/20)}, Panels: []string{strconv.Itoa(i % 20)}}
		},
		"regexp": func(i int) Match {
			return Match{Query: regexp.MustCompile(fmt.Sprintf(`rate\(metric_%05d\[\d+d\]\)`, i))}
		},
		"tenant_and_regexp": func(i int) Match {
			return Match{Tenants: []string{"a"}, Query: regexp.MustCompile(fmt.Sprintf(`metric_%05d\b`, i))}
		},
		"agent": func(i int) Match { return Match{UserAgent: regexp.MustCompile(fmt.Sprintf(`^bot-%d/`, i))} },
	} {
		rules := make([]Rule, n)
		for i := range rules {
			rules[i] = Rule{Name: strconv.Itoa(i), Match: match(i), Limits: []Override{bytesMax(1000)}}
		}
		s := newRuleset(b, nil, rules...)
		who := Subject{Tenant: "a", Endpoint: "query_range", Dashboard: "d77", Panel: "7", UserAgent: "Grafana/12"}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			texts := []string{`sum by (job) (rate(metric_00077[30d]))`}
			for b.Loop() {
				s.Decide(&who, texts, nil)
			}
		})
	}
}

// BenchmarkAnalyzeChain walks the longest chain that is ever parsed: its time must
// grow with its length, not with the square.
func BenchmarkAnalyzeChain(b *testing.B) {
	for _, n := range []int{promqltext.MaxOperators / 10, promqltext.MaxOperators} {
		expr := mustParse(b, "a"+strings.Repeat("+a", n))
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			for b.Loop() {
				Analyze("", expr)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/operator")
		})
	}
}

func BenchmarkAnalyzer(b *testing.B) {
	p := newPolicy(b, nil)
	const text = `histogram_quantile(0.99, sum by (le, job) (rate(http_request_duration_seconds_bucket{job=~"api|web"}[5m])))`
	for name, bytes := range map[string]int{"hit": 1 << 20, "miss": 0} {
		a := NewAnalyzer(bytes)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := a.Expr(p, text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
