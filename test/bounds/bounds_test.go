// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package bounds

import (
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/relabel"
)

func theFacts(t *testing.T) (*facts, []*histogram) {
	t.Helper()
	f, err := readFacts("testdata")
	require.NoError(t, err)
	hs, err := f.histograms()
	require.NoError(t, err)
	require.NotEmpty(t, hs)
	return f, hs
}

// left are the bounds that a rule leaves.
func left(r relabel.Rule) []float64 {
	return slices.DeleteFunc(slices.Clone(r.Thinning.Bounds), func(b float64) bool { return slices.Contains(r.Thinning.Drop, b) })
}

func TestRecommendedLeavesTheBoundsThatTheSearchFinds(t *testing.T) {
	_, hs := theFacts(t)
	for _, h := range hs {
		require.Equal(t, h.search(measuredLimit, recommendedLimit), left(h.rule), h.rule.ID)
	}
}

func TestQuantilesThatAreDrawnMoveByNoMoreThanRecommendedMay(t *testing.T) {
	_, hs := theFacts(t)
	var all []float64
	for _, h := range hs {
		factors := h.factors(h.rows, left(h.rule))
		all = append(all, factors...)
		if h.rule.ID != "scheduler-extension-bounds" { // Nothing draws it.
			require.NotEmpty(t, factors, h.rule.ID)
		}
		for _, f := range append(factors, h.factors(h.slower(), left(h.rule))...) {
			require.LessOrEqual(t, f, 2+1e-9, h.rule.ID)
		}
	}
	slices.Sort(all)
	require.LessOrEqual(t, all[len(all)/2], 1.1)
}

func TestTheDocumentationHasTheTables(t *testing.T) {
	f, hs := theFacts(t)
	docs, err := os.ReadFile("../../docs/drop-rules.md")
	require.NoError(t, err)
	table, err := curve(f, hs)
	require.NoError(t, err)
	require.Contains(t, string(docs), table)
	table, err = shares(f)
	require.NoError(t, err)
	require.Contains(t, string(docs), table)
}

// TestTheSearchFindsTheFewestBounds compares it with trying all sets of bounds.
func TestTheSearchFindsTheFewestBounds(t *testing.T) {
	bounds := []float64{0.1, 0.2, 0.3, 0.5, 0.8, 1.3, 2.1}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		h := &histogram{bounds: bounds, must: []float64{0.5}}
		for range 1 + rnd.IntN(4) {
			r := row{quantiles: []float64{0.5, 0.9, 0.99}, times: 1}
			sum := 0.0
			for range len(bounds) + 1 {
				sum += float64(rnd.IntN(4) * rnd.IntN(30))
				r.counts = append(r.counts, sum)
			}
			if sum > 0 {
				h.rows = append(h.rows, r)
			}
		}
		anyData := 2 + 4*rnd.Float64()
		got := h.search(1.5, anyData)
		require.True(t, h.allowed(got, 1.5, anyData))
		for set := range 1 << (len(bounds) - 1) {
			var stay []float64
			for i, b := range bounds {
				if set>>i&1 == 1 || i == len(bounds)-1 {
					stay = append(stay, b)
				}
			}
			if len(stay) < len(got) {
				require.False(t, h.allowed(stay, 1.5, anyData), "%v is fewer than %v", stay, got)
			}
		}
	}
}

// allowed reports whether these bounds may be what stays.
func (h *histogram) allowed(stay []float64, measured, anyData float64) bool {
	first := 0
	for i, b := range h.bounds {
		if !slices.Contains(stay, b) {
			continue
		}
		if _, ok := h.may(first, i, measured, anyData); !ok {
			return false
		}
		first = i + 1
	}
	return first == len(h.bounds)
}

func TestAMergedBucketIsInterpolatedAsPrometheusDoes(t *testing.T) {
	h := &histogram{bounds: []float64{1, 2, 4}}
	r := row{quantiles: []float64{0.5}, counts: []float64{0, 8, 10, 10}, times: 1}
	// 5 of 8 between 1 and 2, and 5 of 10 between 1 and 4.
	require.InDelta(t, 1.625, r.value(h.bounds, 0.5, 1, 1), 1e-12)
	require.InDelta(t, 2.5, r.value(h.bounds, 0.5, 1, 2), 1e-12)
	require.InDeltaSlice(t, []float64{2.5 / 1.625}, h.factors([]row{r}, []float64{1, 4}), 1e-12)
	require.Empty(t, h.factors([]row{{quantiles: []float64{0.99}, counts: []float64{0, 0, 0, 9}, times: 1}}, h.bounds), "beyond all bounds nothing moves")
}
