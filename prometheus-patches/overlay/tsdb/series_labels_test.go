// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"context"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promguard/reads"
	"github.com/prometheus/prometheus/storage"
)

// labelsOf returns what the set yields.
func labelsOf(t *testing.T, set storage.SeriesSet) []string {
	t.Helper()
	var out []string
	for set.Next() {
		out = append(out, set.At().Labels().String())
	}
	require.NoError(t, set.Err())
	return out
}

func TestSeriesLabelsAreThoseOfTheBlockSeriesSet(t *testing.T) {
	db := newTestDB(t)
	app := db.Appender(t.Context())
	for i := range 500 {
		for _, ts := range []int64{0, 1000, int64(i) * 100} {
			_, err := app.Append(0, labels.FromStrings("__name__", "m", "i", strconv.Itoa(i)), ts, 1)
			require.NoError(t, err)
			if ts == int64(i)*100 && i < 11 {
				break
			}
		}
	}
	require.NoError(t, app.Commit())
	require.NoError(t, db.Delete(t.Context(), 0, 100_000, labels.MustNewMatcher(labels.MatchRegexp, "i", "4.*")))
	ctx, cancel := limited(t, reads.Limits{})
	defer cancel()
	all := labels.MustNewMatcher(labels.MatchEqual, "__name__", "m")
	for _, tc := range []struct{ mint, maxt int64 }{{0, 100_000}, {1001, 20_000}, {30_000, 30_000}, {60_000, 70_000}} {
		for _, sorted := range []bool{false, true} {
			q, err := db.Querier(tc.mint, tc.maxt)
			require.NoError(t, err)
			hints := &storage.SelectHints{Start: tc.mint, End: tc.maxt, Func: "series"}
			want := labelsOf(t, q.Select(t.Context(), sorted, hints, all))
			set := q.Select(ctx, sorted, hints, all)
			require.IsType(t, &seriesLabelsSet{}, set)
			require.Equal(t, want, labelsOf(t, set))
			require.NoError(t, q.Close())
		}
	}
}

func TestSeriesLabelsOfTheHeadAllocateNothingForASeries(t *testing.T) {
	db := newTestDB(t)
	app := db.Appender(t.Context())
	const n = 4000
	for i := range n {
		_, err := app.Append(0, labels.FromStrings("__name__", "m", "i", strconv.Itoa(i)), 1, 1)
		require.NoError(t, err)
	}
	require.NoError(t, app.Commit())
	ctx, cancel := limited(t, reads.Limits{})
	defer cancel()
	allocs := testing.AllocsPerRun(3, func() {
		q, err := db.Querier(0, 10)
		require.NoError(t, err)
		set := q.Select(ctx, false, &storage.SelectHints{Start: 0, End: 10, Func: "series"}, labels.MustNewMatcher(labels.MatchEqual, "__name__", "m"))
		for set.Next() {
			_ = set.At().Labels()
		}
		require.NoError(t, set.Err())
		require.NoError(t, q.Close())
	})
	require.Less(t, allocs, float64(n)/20)
}

func TestSeriesLabelsAreOnlyForLimitedReads(t *testing.T) {
	require.Nil(t, seriesLabelsWithin(context.Background(), nil, nil, nil, 0, 0))
}
