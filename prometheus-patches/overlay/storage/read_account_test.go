// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/accounttest"
)

func TestSortOfAReadIsThatOfTheStandardLibrary(t *testing.T) {
	_, ctx := accounttest.New(t.Context(), storage.ReadBounds{})
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
			require.NoError(t, storage.SortRead(ctx, got, byFirst))
			require.Equal(t, want, got)
		}
	}
}

func TestAccountIsFoundInItsContextAndNowhereElse(t *testing.T) {
	account, ctx := accounttest.New(t.Context(), storage.ReadBounds{})
	require.Same(t, account, storage.ReadAccountFrom(ctx))
	require.Nil(t, storage.ReadAccountFrom(t.Context()))
	require.NoError(t, storage.ReadEnded(ctx))
	stop := errors.New("stopped")
	account.Stop(stop)
	require.ErrorIs(t, storage.ReadEnded(ctx), stop)
	require.NoError(t, storage.ReadEnded(t.Context()))
}

func TestSortOfAReadEndsWithIt(t *testing.T) {
	account, ctx := accounttest.New(t.Context(), storage.ReadBounds{})
	s := make([]int, 100_000)
	for i := range s {
		s[i] = i * 7919 % len(s)
	}
	stop := errors.New("stopped")
	compared := 0
	err := storage.SortRead(ctx, s, func(a, b int) int {
		compared++
		if compared == 10*storage.SortYieldEvery {
			account.Stop(stop)
		}
		return cmp.Compare(a, b)
	})
	require.ErrorIs(t, err, stop)
	require.LessOrEqual(t, compared, 11*storage.SortYieldEvery)
}
