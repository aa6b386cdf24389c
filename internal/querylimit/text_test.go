// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
)

func TestTextOverALimitIsRefusedByMode(t *testing.T) {
	bounds := map[string]func(*Options) *Bound{
		LimitQueryBytes:     func(o *Options) *Bound { return &o.QueryBytes },
		LimitQueryOperators: func(o *Options) *Bound { return &o.QueryOperators },
		LimitRegexSize:      func(o *Options) *Bound { return &o.RegexSize },
	}
	over := map[string]string{
		LimitQueryBytes:     strings.Repeat("a", 101),
		LimitQueryOperators: "a" + strings.Repeat("+a", 40),
		LimitRegexSize:      `{a=~"x{1000}"}`,
	}
	for limit, bound := range bounds {
		for _, mode := range Modes() {
			t.Run(limit+"/"+mode.String(), func(t *testing.T) {
				p := newPolicy(t, func(o *Options) { *bound(o) = Bound{mode, 30} })
				require.Nil(t, p.CheckText("up", `rate(x{a=~"b|c"}[5m])`))
				rs := p.CheckText(over[limit])
				if mode == ModeOff {
					require.Nil(t, rs)
					return
				}
				require.Len(t, rs, 1)
				require.Equal(t, limit, rs[0].Limit)
				require.Equal(t, mode == ModeEnforce, rs.Err() != nil)
				require.Len(t, rs.Warnings(), map[bool]int{true: 1}[mode == ModeWarn])
			})
		}
	}
}

func TestOperatorsAndRegexSizeAddUpOverAllTextsOfARequest(t *testing.T) {
	p := newPolicy(t, func(o *Options) {
		o.QueryOperators.Max, o.RegexSize.Max = 3, 2500
	})
	require.Nil(t, p.CheckText("a+a", "a+a"))
	require.Error(t, p.CheckText("a+a+a", "a+a+a").Err())
	require.Nil(t, p.CheckText(`{a=~"x{1000}"}`))
	require.Error(t, p.CheckText(`{a=~"x{1000}"}`, `{a=~"x{1000}"}`).Err())
	require.Error(t, p.CheckText(`{a=~"x{1000}"}`, `label_replace(a, "b", "$1", "c", "(x{1000})(y{1000})")`).Err())
}

func TestRegexSizeCountsWhateverPromQLCompiles(t *testing.T) {
	const big = 2000
	for text, want := range map[string]bool{ // Whether it is big.
		`a{b=~"x{1000}y{1000}"}`:                                         true,
		`a{b!~'x{1000}y{1000}'}`:                                         true,
		"a{b=~ # \"\n `x{1000}y{1000}`}":                                 true,
		`label_replace(a, "b", "$1", "c", "x{1000}y{1000}")`:             true,
		`label_replace(a, "b", "$1", "c", ('x\x7b1000}y\x7b1000}'))`:     true,
		"label_replace(a{d=\"}\"}, `b`, `$1`, `c`, `x{1000}y{1000}`)":    true,
		`LABEL_REPLACE(a, "b", "$1", "c", "x{1000})(?:y{1000}")`:         true,
		`label_replace(a, "b", "$1", "c", "5[0-9]{2}")`:                  false,
		`a{b="x{1000}y{1000}",c!="x{1000}y{1000}"}`:                      false,
		`{"x{1000}y{1000}","x{1000}y{1000}"="b"}`:                        false,
		`a # "x{1000}y{1000}"`:                                           false,
		`a{b=~"` + strings.Repeat(`\\pL`, 100) + `"}`:                    true,
		`a{b=~"` + strings.Repeat(`[\\pL\\pN]`, 50) + `"}`:               true,
		`label_replace(a, "b", "", "c", '(?:\\pL){30}')`:                 true,
		`a{b=~"` + strings.Repeat(`[a-z0-9]\\d\\W`, 40) + `"}`:           false,
		`label_join(a, "b", "{" , "c", "d") + count_values("x{", a) + 1`: false,
	} {
		t.Run(text, func(t *testing.T) {
			var s scan
			s.add(text)
			require.Equal(t, want, s.regexSize >= big, "%d", s.regexSize)
		})
	}
}

// tooLong is far from what anything here takes, and far below what a text takes
// whose cost grows with the square of its length: a busy machine must not matter.
const tooLong = 30 * time.Second

// Every text here costs the parser seconds, or the process its stack, where it
// is as long as query_bytes lets it be at most.
func TestTextThatIsExpensiveToParseIsRefusedInEveryMode(t *testing.T) {
	p := newPolicy(t, func(o *Options) {
		o.QueryBytes, o.QueryOperators, o.RegexSize = Bound{ModeOff, 1}, Bound{ModeOff, 1}, Bound{ModeOff, 1}
	})
	fill := func(s string) string { return strings.Repeat(s, MaxQueryBytes/len(s)/2) }
	for name, text := range map[string]string{
		"too long":    strings.Repeat("a", MaxQueryBytes+1),
		"parentheses": fill("(") + "1" + fill(")"),
		"minus":       fill("-") + "a",
		"sums":        "a" + fill("+a"),
		"powers":      "1" + fill("^1"),
		"or":          "a" + fill(" or a"),
		"Unless":      "a" + fill(" Unless a"),
		"subqueries":  "a" + fill("[1m:]"),
		"functions":   fill("abs(") + "a" + fill(")"),
		"hidden":      "{a=\"\\\"}\"} + `" + `\` + "` " + fill("-") + "a",
		"regex":       `{a=~"` + fill("x{1000}") + `"} or {a=~ 'y{900}` + fill("z{1000}") + `'}`,
		"replace":     `label_replace(a, "b", "$1", "c", "` + strings.Repeat("x{1000}", 1001) + `")`,
		"classes":     `{a=~"` + fill(`\\pL`) + `"}`,
		"many":        strings.Repeat(`{a=~"`+strings.Repeat(`\\pL`, maxUnicodeClasses)+`"} or `, 80) + "a",
		"nested":      `{` + strings.Repeat(`a=~"((x{10}){10}){10}",`, 1000) + `}`,
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			rs := p.CheckText(text)
			if rs == nil { // Left to the parser, which must then be quick.
				_, err := testParser.ParseExpr(text)
				require.Error(t, err)
			}
			require.Less(t, time.Since(start), tooLong)
			if name != "regex" {
				require.Error(t, rs.Err())
			}
		})
	}
}

func TestOperatorsInStringsCommentsAndSelectorsAreNotCounted(t *testing.T) {
	for text, want := range map[string]int{
		`up`:                              0,
		`a{b="(((",c!="x+y",d=~"[a-z]+"}`: 0,
		"a # (((\n + b":                   1,
		"`(\\`+a":                         1,
		`"a\"((" + b`:                     1,
		`sum by (a) (rate(x[5m]))`:        4,
		`order or android`:                1,
		`a:or:b`:                          0,
		`a UNLESS b`:                      1,
		`x @ 1 offset 5m`:                 1,
		`{"(+(", "a"="b"}`:                0,
	} {
		t.Run(text, func(t *testing.T) {
			var s scan
			s.add(text)
			require.Equal(t, want, s.operators)
		})
	}
}

// FuzzScan checks the promise that scan counts at least what the parser builds:
// a text that hides its operators or its regular expressions from scan could be
// arbitrarily expensive.
func FuzzScan(f *testing.F) {
	for _, seed := range []string{
		`-a + b`, `sum(a) by (b)`, `{a="}"} - b`, "`\\` - b", `"\"" == bool 1`, "a#\n-b", `a['x':1m]`,
		`x[5m:1m] offset -1m @ start()`, `a atan2 b`, `{a=~'\'}--'}`, `-1 ^ -1`, `a[-1m+2m]`, `{'a'='b'}`,
		`label_replace({a!~"b{2}"}, 'c', "$1", "d", ("\x65{3}"))`, "{a=~#\n`b{9}`}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var s scan
		s.add(text)
		if len(text) > 2048 || s.regexSize > 10_000 {
			return
		}
		start := time.Now()
		expr, err := testParser.ParseExpr(text)
		require.Less(t, time.Since(start), tooLong, "%q", text)
		if err != nil {
			return
		}
		built, regexes := 0, 0
		parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
			regexes += regexSizeOf(n)
			switch n.(type) {
			case *parser.BinaryExpr, *parser.UnaryExpr, *parser.ParenExpr, *parser.Call,
				*parser.AggregateExpr, *parser.SubqueryExpr, *parser.MatrixSelector:
				built++
			}
			return nil
		})
		require.GreaterOrEqual(t, s.operators, built, "%q", text)
		require.GreaterOrEqual(t, s.regexSize, regexes, "%q", text)
	})
}

// regexSizeOf returns the size of the regular expressions that are the node's own.
func regexSizeOf(n parser.Node) int {
	size := 0
	switch n := n.(type) {
	case *parser.VectorSelector:
		for _, m := range n.LabelMatchers {
			if m.Type == labels.MatchRegexp || m.Type == labels.MatchNotRegexp {
				size += regexSize(m.Value)
			}
		}
	case *parser.Call:
		if n.Func.Name != "label_replace" {
			break
		}
		arg := n.Args[4]
		for p, ok := arg.(*parser.ParenExpr); ok; p, ok = arg.(*parser.ParenExpr) {
			arg = p.Expr
		}
		if s, ok := arg.(*parser.StringLiteral); ok {
			size = regexSize(s.Val)
		}
	}
	return size
}

func BenchmarkCheckText(b *testing.B) {
	p := newPolicy(b, nil)
	for name, text := range map[string]string{
		"name":      `up`,
		"sum_rate":  `sum by (job) (rate(http_requests_total{job="api",code=~"5.."}[5m]))`,
		"repeat":    `rate(http_requests_total{code=~"5[0-9]{2}"}[5m])`,
		"long_list": `up{pod=~"` + strings.Repeat("pod-1234567890|", 1000) + `"}`,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sink = p.CheckText(text)
			}
		})
	}
}
