// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSortOfAReadIsThatOfTheStandardLibrary(t *testing.T) {
	_, ctx, remove := NewTable(nil).Add(t.Context(), Info{}, Limits{})
	defer remove()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 12, 255, 10_000} {
		// Elements that compare as equal show the order in which it works.
		s := make([][2]int, n)
		for i := range s {
			s[i] = [2]int{rng.IntN(n/4 + 1), i}
		}
		byFirst := func(a, b [2]int) int { return cmp.Compare(a[0], b[0]) }
		want := slices.Clone(s)
		slices.SortFunc(want, byFirst)
		for _, ctx := range []context.Context{ctx, context.Background()} {
			got := slices.Clone(s)
			require.NoError(t, SortFunc(ctx, got, byFirst))
			require.Equal(t, want, got)
		}
	}
}

func TestSortOfAReadEndsWithIt(t *testing.T) {
	r, ctx, remove := NewTable(nil).Add(t.Context(), Info{}, Limits{})
	defer remove()
	s := make([]int, 100_000)
	for i := range s {
		s[i] = i * 7919 % len(s)
	}
	stop := &Stop{Reason: ReasonOperator}
	compared := 0
	err := SortFunc(ctx, s, func(a, b int) int {
		compared++
		if compared == 10*yieldEvery {
			r.Stop(stop)
		}
		return cmp.Compare(a, b)
	})
	require.ErrorIs(t, err, stop)
	require.LessOrEqual(t, compared, 11*yieldEvery)
}
