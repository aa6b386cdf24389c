// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promguard/deadline"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/index"
)

func refs(n int) []storage.SeriesRef {
	out := make([]storage.SeriesRef, n)
	for i := range out {
		out[i] = storage.SeriesRef(i + 1)
	}
	return out
}

func TestPostingsWithinGivesTheSamePostings(t *testing.T) {
	ctx, cancel := deadline.Bind(t.Context(), &deadline.ExceededError{Timeout: time.Hour})
	defer cancel()
	for _, n := range []int{0, 1, checkPostingsEvery, 3*checkPostingsEvery + 1} {
		got, err := index.ExpandPostings(postingsWithin(ctx, index.NewListPostings(refs(n))))
		require.NoError(t, err)
		require.Len(t, got, n)
		for i, ref := range got {
			require.EqualValues(t, i+1, ref)
		}
	}
	p := postingsWithin(ctx, index.NewListPostings(refs(10)))
	require.True(t, p.Seek(7))
	require.EqualValues(t, 7, p.At())
}

func TestPostingsWithinEndSoonAfterTheClientHasLeft(t *testing.T) {
	for name, next := range map[string]func(index.Postings, int) bool{
		"next": func(p index.Postings, _ int) bool { return p.Next() },
		"seek": func(p index.Postings, i int) bool { return p.Seek(storage.SeriesRef(i)) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := deadline.Bind(t.Context(), &deadline.ExceededError{Timeout: time.Hour})
			p := postingsWithin(ctx, index.NewListPostings(refs(100*checkPostingsEvery)))
			require.True(t, next(p, 1))
			cancel()
			i := 2
			for next(p, i) {
				i++
			}
			require.LessOrEqual(t, i, checkPostingsEvery+2)
			require.ErrorIs(t, p.Err(), context.Canceled)
			require.False(t, next(p, i+1), "ended postings stay ended")
		})
	}
}

func TestSortWithinStopsAfterTheClientHasLeft(t *testing.T) {
	ctx, cancel := deadline.Bind(t.Context(), &deadline.ExceededError{Timeout: time.Hour})
	defer cancel()
	series := make([]*memSeries, 0, 50000)
	for i := range cap(series) {
		series = append(series, &memSeries{lset: labels.FromStrings("i", fmt.Sprint((i*7919)%cap(series)))})
	}
	want := slices.Clone(series)
	slices.SortFunc(want, compareLabels)

	got := slices.Clone(series)
	require.NoError(t, sortWithin(postingsWithin(ctx, index.EmptyPostings()), got))
	require.Equal(t, want, got)
	got = slices.Clone(series)
	require.NoError(t, sortWithin(index.EmptyPostings(), got))
	require.Equal(t, want, got)

	cancel()
	p := postingsWithin(ctx, index.EmptyPostings())
	require.ErrorIs(t, sortWithin(p, slices.Clone(series)), context.Canceled)
	require.Less(t, p.(*boundPostings).read, 10*len(series), "the sort ends instead of comparing on")
}

func TestPostingsWithinLeavesAllOtherContextsAlone(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	p := index.NewListPostings(refs(3))
	require.Same(t, p, postingsWithin(ctx, p))
}
