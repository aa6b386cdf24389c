// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package readapi

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/promql/parser"
)

// nestings are the ways in which PromQL can be nested n times.
var nestings = map[string]func(n int) string{
	"parentheses": func(n int) string { return strings.Repeat("(", n) + "a" + strings.Repeat(")", n) },
	"calls":       func(n int) string { return strings.Repeat("abs(", n) + "a" + strings.Repeat(")", n) },
	"aggregations": func(n int) string {
		return strings.Repeat("sum by (x) (", n) + "a" + strings.Repeat(")", n)
	},
	"sums": func(n int) string {
		return "aaaaaaaaaa" + strings.Repeat("+ignoring(aaaaaaaaaa) aaaaaaaaaa", n)
	},
	"powers": func(n int) string { return strings.Repeat("a^", n) + "a" },
	"signs":  func(n int) string { return strings.Repeat("-", n) + "a" },
	"a large selector in parentheses": func(n int) string {
		return strings.Repeat("(", n) + `a{b=~"` + strings.Repeat("x", 100_000) + `"}` + strings.Repeat(")", n)
	},
	"sums in parentheses": func(n int) string {
		return strings.Repeat("(a+", n) + "a" + strings.Repeat(")", n)
	},
}

func TestPromQLIsPrintedOnlyIfThatTakesLittle(t *testing.T) {
	p := parser.NewParser(parser.Options{})
	for name, nested := range nestings {
		t.Run(name, func(t *testing.T) {
			n := 1
			for checkPrinted(nested(n+n/10+1)) == nil {
				n += n/10 + 1
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			expr, err := p.ParseExpr(nested(n))
			require.NoError(t, err)
			require.NotEmpty(t, expr.Pretty(0))
			runtime.ReadMemStats(&after)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(400<<20))
		})
	}
	require.ErrorContains(t, checkPrinted(nestings["parentheses"](9000)), "Split the expression")
	require.NoError(t, checkPrinted(`histogram_quantile(0.99, sum by (le, verb) (rate(apiserver_request_duration_seconds_bucket{job="apiserver"}[5m])))`))
}
