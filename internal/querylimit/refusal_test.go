// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"encoding/json"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// example finds the PromQL that a remedy gives as an example.
var example = regexp.MustCompile(`as in (.+?)(?:, or |, as in |\.$)`)

// Each limit, with a request that exceeds it and the same request once its sender has
// done what the refusal says.
func TestEveryRefusalSaysFirstWhatToDoAndIsGoneOnceThatIsDone(t *testing.T) {
	ask := func(endpoint string, texts ...string) Request {
		return Request{Endpoint: FindEndpoint(endpoint), Texts: texts, Limit: -1}
	}
	over := func(length, step time.Duration) Request {
		r := ask("query_range", "up")
		r.Start, r.End, r.Step, r.Given = testNow.Add(-length), testNow, step, true
		return r
	}
	with := func(r Request, change func(*Request)) Request {
		change(&r)
		return r
	}
	before := func(r Request) Request { r.Head = testHead(); return r }
	since := func(ago time.Duration) func(*Request) { return func(r *Request) { r.Start = testNow.Add(-ago) } }
	chain := func(n int, sep string) string { return strings.TrimSuffix(strings.Repeat("a"+sep, n), sep) }
	tries := map[string]struct {
		over, done Request
		set        func(*Options)
	}{
		LimitSelectivity:    {over: ask("query", `{le!=""}`), done: ask("query", `{job="api",le!=""}`)},
		LimitUnknownPromQL:  {over: with(ask("query", "guess(up)"), func(r *Request) { r.UnknownPromQL = []string{"guess"} }), done: ask("query", "up")},
		LimitQueryBytes:     {over: ask("query", strings.Repeat("x", 65<<10)), done: ask("query", `x{pod=~"x.+"}`)},
		LimitQueryOperators: {over: ask("query", chain(1002, "+")), done: ask("query", `{__name__=~"a|b"}`)},
		LimitRegexSize:      {over: ask("query", `x{a=~"`+strings.Repeat("b{1000}", 120)+`"}`), done: ask("query", `x{a=~"b+"}`)},
		LimitSeries:         {over: before(ask("query", "{job=\"api\"}")), done: before(ask("query", `x{job="api"}`)), set: func(o *Options) { o.Series.Max = 50 }},
		LimitSamples:        {over: before(over(day, time.Second)), done: before(over(day, time.Minute)), set: func(o *Options) { o.Samples.Max = 150_000 }},
		LimitRange:          {over: ask("query", "rate(a[40d])"), done: ask("query", "rate(a[1d])")},
		LimitOldest:         {over: ask("query", "a offset 500d"), done: ask("query", "a offset 5d")},
		LimitMetadataRange:  {over: with(ask("series", "a"), since(90*day)), done: with(ask("series", "a"), since(day))},
		LimitDeny:           {over: ask("query", "sum_over_time(x[1y])"), done: ask("query", "job:http_requests:sum1y")},
	}
	strict := func(p *Policy) map[string]*Refusal { // what nobody asks Judge about
		return map[string]*Refusal{
			LimitRequestBytes: p.RefuseRequestBytes(), LimitParameters: p.RefuseParameters(),
			LimitDeadline: p.RefuseDeadline(ClassQuery, "/api/v1/query", 2*time.Minute), LimitResponseBytes: p.RefuseResponse(ClassQuery, 512<<20),
		}
	}
	pages, quoted := os.DirFS("../../docs/limits"), 0
	if _, err := fs.Stat(pages, "."); err != nil {
		pages = nil // Prometheus's tree, where this package is copied to, has none.
	}
	for _, limit := range Limits() {
		t.Run(limit, func(t *testing.T) {
			o := DefaultOptions()
			try, judged := tries[limit]
			if try.set != nil {
				try.set(&o)
			}
			warnOf(&o, limit)
			s, err := NewRuleset(RulesetOptions{Global: o, Rules: []Rule{
				{Name: "no-yearly-sums", Match: Match{Query: regexp.MustCompile(`\[1y\]`)}, Deny: ModeEnforce, Reason: "Use the recording rule job:http_requests:sum1y"},
			}})
			require.NoError(t, err)
			of := func(r Request) *Refusal {
				v, err := s.Judge(NewAnalyzer(0), &r, testNow)
				require.NoError(t, err)
				for _, refusal := range v.Refusals {
					if refusal.Limit == limit {
						return refusal
					}
				}
				return nil
			}
			refusal := strict(s.Tenant(""))[limit]
			if judged {
				refusal = of(try.over)
				require.Nil(t, of(try.done))
			}
			require.NotNil(t, refusal)
			requireAdviceFirst(t, refusal)
			if pages != nil {
				quoted += requireQuotedRight(t, pages, refusal)
			}
			for _, text := range example.FindAllStringSubmatch(refusal.Remedy, -1) {
				requirePromQL(t, text[1])
			}
		})
	}
	require.True(t, pages == nil || quoted > 0, "%d pages quote the message", quoted)
}

// warnOf sets the limit to warn if it can be, so that no other limit of the request
// comes first, and nothing is set in the place of a refusal.
func warnOf(o *Options, limit string) {
	for _, c := range Counts() {
		if c.Name == limit {
			c.Of(o).Mode = ModeWarn
		}
	}
	o.MetadataRange.Mode, o.Responses.Mode = ModeWarn, ModeWarn
}

func requireAdviceFirst(t *testing.T, r *Refusal) {
	t.Helper()
	begin := r.Remedy + " Limit " + r.Limit + ": " + r.Value + " "
	require.Regexp(t, `^[A-Z].*[^.]\.$`, r.Remedy)
	require.LessOrEqual(t, len(r.Remedy), maxRemedy, "Grafana shows two lines of it")
	require.True(t, strings.HasPrefix(r.Error(), begin), r.Error())
	require.True(t, strings.HasSuffix(r.Error(), ". See "+r.Doc()), r.Error())
}

// requireQuotedRight returns how many messages the page about the limit quotes.
func requireQuotedRight(t *testing.T, pages fs.FS, r *Refusal) (quotes int) {
	t.Helper()
	_, name, _ := strings.Cut(r.Doc(), "/docs/limits/")
	page, err := fs.ReadFile(pages, name)
	require.NoError(t, err, "the link leads nowhere")
	for _, m := range regexp.MustCompile(`"(?:error":|warnings":\[)("(?:[^"\\]|\\.)*")`).FindAllSubmatch(page, -1) {
		var text string
		require.NoError(t, json.Unmarshal(m[1], &text))
		require.True(t, strings.HasPrefix(text, r.Remedy+" Limit "+r.Limit+": "), "%s quotes\n%s\nand it is\n%s", name, text, r)
		quotes++
	}
	return quotes
}

func requirePromQL(t *testing.T, text string) {
	t.Helper()
	if strings.HasPrefix(text, "[") {
		text = "a" + text // A range belongs to a selector.
	}
	if text == "a|b" {
		text = `{a=~"` + text + `"}`
	}
	_, err := testParser.ParseExpr(text)
	require.NoError(t, err, text)
}

func TestTheSelectorsOfARefusalPassAndKeepWhatTheClientAskedFor(t *testing.T) {
	long := strings.Repeat("x", 200)
	for _, tc := range []struct {
		equality         []string
		selector, remedy string
	}{
		{nil, `{le!=""}`, `Name a metric, as in http_requests_total{le!=""}, or use an equality matcher, as in {job="api",le!=""}.`},
		{nil, `{job=~".+"}`, `Name a metric, as in http_requests_total{job=~".+"}, or use an equality matcher, as in {job="api"}.`},
		{nil, `{job!="",job=~".+",a!="b"}`, `Name a metric, as in http_requests_total{job!="",job=~".+",a!="b"}, or use an equality matcher, as in {job="api",a!="b"}.`},
		{nil, `{__name__=~".+"}`, `Name a metric, as in {__name__=~"http_.+"}, or use an equality matcher, as in {job="api",__name__=~".+"}.`},
		{nil, `{__name__!="up",a!=""}`, `Name a metric, as in {__name__=~"http_.+",a!=""}, or use an equality matcher, as in {job="api",__name__!="up",a!=""}.`},
		{nil, `{a!="` + long + `"}`, `Name a metric, as in http_requests_total, or use an equality matcher, as in {job="api"}.`},
		{nil, `{"dotted.name"!=""}`, `Name a metric, as in http_requests_total{"dotted.name"!=""}, or use an equality matcher, as in {job="api","dotted.name"!=""}.`},
		{[]string{"cluster", "job"}, `{cluster=~".+"}`, `Name a metric, as in http_requests_total{cluster=~".+"}, or use an equality matcher, as in {cluster="api"}.`},
		{[]string{"__name__"}, `{a!=""}`, `Name a metric, as in {__name__=~"http_.+",a!=""}.`},
	} {
		p := newPolicy(t, func(o *Options) { o.EqualityLabels = tc.equality })
		rs := p.Check(parseSelector(t, tc.selector))
		require.Len(t, rs, 1, tc.selector)
		if len(tc.remedy) <= maxRemedy {
			require.Equal(t, tc.remedy, rs[0].Remedy)
		}
		examples := example.FindAllStringSubmatch(rs[0].Remedy, -1)
		require.NotEmpty(t, examples)
		for _, text := range examples {
			require.Nil(t, p.Check(parseSelector(t, text[1])), "%s of %s", text[1], tc.selector)
		}
	}
}
