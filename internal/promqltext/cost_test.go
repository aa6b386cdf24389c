// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package promqltext

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
)

var testParser = parser.NewParser(parser.Options{
	EnableExperimentalFunctions: true, EnableUnquotedUTF8Names: true, EnableBinopFillModifiers: true,
})

func costOf(texts ...string) Cost {
	var c Cost
	for _, text := range texts {
		c.Add(text)
	}
	return c
}

func TestErrorSaysWhichLimitIsExceededAndByHowMuch(t *testing.T) {
	most := Cost{Bytes: 30, Operators: 3, RegexSize: 20}
	require.NoError(t, Check(most, "up", `rate(x{a=~"b|c"}[5m])`))
	require.EqualError(t, Check(most, "up", strings.Repeat("a", 31)), strings.TrimSuffix(Bytes.Remedy, ".")+": a PromQL text of 31 bytes exceeds the 30 allowed")
	require.EqualError(t, Check(most, "a+a+a", "a+a+a"), strings.TrimSuffix(Operators.Remedy, ".")+": PromQL of 4 operators, calls and brackets exceeds the 3 allowed")
	require.EqualError(t, Check(most, `{a=~"x{11}"}`, `{a=~"x{11}"}`), strings.TrimSuffix(RegexSize.Remedy, ".")+": a set of regular expressions of about 50 instructions exceeds the 20 allowed")
}

func TestCostOfTwoRequestsTogetherIsThatOfTheirTexts(t *testing.T) {
	texts := []string{`a + b{c=~"d{9}"}`, `sum(e{f=~"[a-z]{3}"})`}
	require.Equal(t, costOf(texts...), costOf(texts[0]).Plus(costOf(texts[1])))
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
			size := costOf(text).RegexSize
			require.Equal(t, want, size >= big, "%d", size)
		})
	}
}

// tooLong is far from what anything here takes, and far below what a text takes
// whose cost grows with the square of its length: a busy machine must not matter.
const tooLong = time.Minute

// Every text here costs the parser seconds, or the process its stack, where it
// is as long as it may be at most.
func TestTextThatIsExpensiveToParseIsOverACeiling(t *testing.T) {
	ceilings := Cost{MaxBytes, MaxOperators, MaxRegexSize}
	fill := func(s string) string { return strings.Repeat(s, MaxBytes/len(s)/2) }
	for name, text := range map[string]string{
		"too long":    strings.Repeat("a", MaxBytes+1),
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
			err := Check(ceilings, text)
			if err == nil { // Left to the parser, which must then be quick.
				_, parseErr := testParser.ParseExpr(text)
				require.Error(t, parseErr)
			}
			require.Less(t, time.Since(start), tooLong)
			if name != "regex" {
				require.Error(t, err)
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
			require.Equal(t, want, costOf(text).Operators)
		})
	}
}

// FuzzCost checks the promise that a cost is at least what the parser builds: a
// text that hides its operators or its regular expressions could be arbitrarily
// expensive.
func FuzzCost(f *testing.F) {
	for _, seed := range []string{
		`-a + b`, `sum(a) by (b)`, `{a="}"} - b`, "`\\` - b", `"\"" == bool 1`, "a#\n-b", `a['x':1m]`,
		`x[5m:1m] offset -1m @ start()`, `a atan2 b`, `{a=~'\'}--'}`, `-1 ^ -1`, `a[-1m+2m]`, `{'a'='b'}`,
		`label_replace({a!~"b{2}"}, 'c', "$1", "d", ("\x65{3}"))`, "{a=~#\n`b{9}`}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c := costOf(text)
		if len(text) > 2048 || c.RegexSize > 10_000 {
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
		require.GreaterOrEqual(t, c.Operators, built, "%q", text)
		require.GreaterOrEqual(t, c.RegexSize, regexes, "%q", text)
	})
}

// regexSizeOf returns the size of the regular expressions that are the node's own.
func regexSizeOf(n parser.Node) int {
	size := 0
	switch n := n.(type) {
	case *parser.VectorSelector:
		for _, m := range n.LabelMatchers {
			if m.Type == labels.MatchRegexp || m.Type == labels.MatchNotRegexp {
				size += InstructionsOf(m.Value)
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
			size = InstructionsOf(s.Val)
		}
	}
	return size
}

func BenchmarkCost(b *testing.B) {
	for name, text := range map[string]string{
		"name":      `up`,
		"sum_rate":  `sum by (job) (rate(http_requests_total{job="api",code=~"5.."}[5m]))`,
		"repeat":    `rate(http_requests_total{code=~"5[0-9]{2}"}[5m])`,
		"long_list": `up{pod=~"` + strings.Repeat("pod-1234567890|", 1000) + `"}`,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sink = costOf(text)
			}
		})
	}
}

var sink Cost
