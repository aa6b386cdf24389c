// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
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
	all := labels.MustNewMatcher(labels.MatchEqual, "__name__", "m")
	for _, tc := range []struct{ mint, maxt int64 }{{0, 100_000}, {1001, 20_000}, {30_000, 30_000}, {60_000, 70_000}} {
		for _, sorted := range []bool{false, true} {
			q, err := db.Querier(tc.mint, tc.maxt)
			require.NoError(t, err)
			hints := &storage.SelectHints{Start: tc.mint, End: tc.maxt}
			want := labelsOf(t, q.Select(t.Context(), sorted, hints, all))
			hints.Func = "series"
			got := q.Select(t.Context(), sorted, hints, all)
			require.IsType(t, &seriesLabelsSet{}, got)
			require.Equal(t, want, labelsOf(t, got))
			require.NoError(t, q.Close())
		}
	}
}

func TestSeriesLabelsOfTheHeadAllocateLittleForASeries(t *testing.T) {
	if labels.ImplementationName == "slicelabels" {
		t.Skip("its labels are slices")
	}
	db := newTestDB(t)
	app := db.Appender(t.Context())
	const n = 4000
	for i := range n {
		_, err := app.Append(0, labels.FromStrings("__name__", "m", "i", strconv.Itoa(i)), 1, 1)
		require.NoError(t, err)
	}
	require.NoError(t, app.Commit())
	allocs := testing.AllocsPerRun(3, func() {
		q, err := db.Querier(0, 10)
		require.NoError(t, err)
		set := q.Select(t.Context(), false, &storage.SelectHints{Start: 0, End: 10, Func: "series"}, labels.MustNewMatcher(labels.MatchEqual, "__name__", "m"))
		for set.Next() {
			_ = set.At().Labels()
		}
		require.NoError(t, set.Err())
		require.NoError(t, q.Close())
	})
	require.Less(t, allocs, float64(n)/20)
}

func TestSeriesLabelsStayAfterTheNextSeries(t *testing.T) {
	db := manySeries(t, 3*seriesLabelsBatch)
	q, err := db.Querier(0, 2000)
	require.NoError(t, err)
	defer q.Close()
	set := q.Select(t.Context(), false, &storage.SelectHints{Start: 0, End: 2000, Func: "series"}, labels.MustNewMatcher(labels.MatchEqual, "__name__", "m"))
	var series []storage.Series
	var want []string
	for set.Next() {
		series = append(series, set.At())
		want = append(want, set.At().Labels().String())
	}
	require.NoError(t, set.Err())
	require.Len(t, series, 3*seriesLabelsBatch)
	for i, s := range series {
		require.Equal(t, want[i], s.Labels().String())
		require.Equal(t, chunkenc.ValNone, s.Iterator(nil).Next(), "it has no samples")
	}
}
