// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package grammar

import (
	"math/rand/v2"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/bench/oomstorm/internal/family"
)

func TestWhatIsMadeUpIsMostlyWhatPrometheusReads(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	p := parser.NewParser(parser.Options{})
	g, parsed, paths := Random(r), 0, map[string]bool{}
	const tries = 200
	for range tries {
		if g = g.Mutate(r); r.IntN(5) == 0 {
			g = Random(r)
		}
		f, ok := g.Family("found")
		if !ok {
			continue
		}
		require.NoError(t, f.Check())
		paths[f.Path] = true
		req, err := f.Request(t.Context(), "http://server", family.Data{Points: 1})
		require.NoError(t, err)
		require.NoError(t, req.ParseForm())
		if _, err := p.ParseExpr(req.Form.Get("query")); err == nil || f.Params["query"] == "" {
			parsed++
		}
	}
	require.Greater(t, parsed, tries/2)
	require.GreaterOrEqual(t, len(paths), 5)
}

func TestTheSearchFindsTheWorstOfALandscape(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	taken := func(g Genes) (bytes int64) { // The deeper and the wider.
		return int64(1+g.Selector) * int64(1+len(g.Wraps))
	}
	bred, random := &Population{}, int64(0)
	for range 600 {
		g := bred.Next(r)
		if _, ok := g.Family(""); ok {
			bred.Add(Found{g, taken(g)})
		}
		if g := Random(r); taken(g) > random {
			random = taken(g)
		}
	}
	require.Greater(t, bred.Best[0].Bytes, random, "more than chance alone finds")
	kinds := map[string]bool{}
	for i, f := range bred.Best {
		require.False(t, kinds[f.Genes.kind()], "one of each kind")
		kinds[f.Genes.kind()] = true
		require.LessOrEqual(t, f.Bytes, bred.Best[max(0, i-1)].Bytes, "the worst first")
	}
	require.LessOrEqual(t, len(bred.Best), population)
}
