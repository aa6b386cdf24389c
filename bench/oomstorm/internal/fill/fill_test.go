// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package fill

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/stretchr/testify/require"
)

func TestHeadHasTheSeriesThatWereAskedForAndMostAreBuckets(t *testing.T) {
	const series = 100_000
	dir := filepath.Join(t.TempDir(), "data")
	from := time.Now().Truncate(time.Second)
	to := from.Add(2 * Step)
	old := from.Add(-40 * time.Minute)
	require.NoError(t, Write(t.Context(), Options{Dir: dir, Series: series, Old: old, From: from, To: to}))

	db, err := tsdb.Open(dir, nil, nil, tsdb.DefaultOptions(), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	require.EqualValues(t, series, db.Head().NumSeries())
	require.Equal(t, old.UnixMilli(), db.Head().MinTime())
	require.Equal(t, to.UnixMilli(), db.Head().MaxTime())

	q, err := db.Querier(old.UnixMilli(), to.UnixMilli())
	require.NoError(t, err)
	defer q.Close()
	set := q.Select(t.Context(), false, nil, labels.MustNewMatcher(labels.MatchNotEqual, "le", ""))
	buckets, bytes, samples := 0, 0, 0
	for set.Next() {
		for it := set.At().Iterator(nil); buckets == 0 && it.Next() != chunkenc.ValNone; {
			samples++
		}
		b, err := set.At().Labels().MarshalJSON()
		require.NoError(t, err)
		buckets++
		bytes += len(b)
	}
	require.NoError(t, set.Err())
	require.Greater(t, buckets, series*3/4)
	require.Equal(t, 3+3, samples, "every 15 minutes, then every one")
	perSeries := bytes / buckets
	require.GreaterOrEqual(t, perSeries, 250)
	require.LessOrEqual(t, perSeries, 400)
}

func TestFewSeriesHaveAnAPIServerToo(t *testing.T) {
	require.NoError(t, Write(t.Context(), Options{Dir: filepath.Join(t.TempDir(), "data"), Series: MinSeries, From: time.Now(), To: time.Now()}))
}

func TestTooFewSeriesAndATakenDirectoryAreRefused(t *testing.T) {
	err := Write(t.Context(), Options{Dir: filepath.Join(t.TempDir(), "data"), Series: MinSeries - 1, From: time.Now()})
	require.ErrorContains(t, err, "series must be 5000 or more, got 4999")
	err = Write(t.Context(), Options{Dir: t.TempDir(), Series: MinSeries, From: time.Now()})
	require.ErrorContains(t, err, "file exists")
}
