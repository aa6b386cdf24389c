// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package fill

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/stretchr/testify/require"
)

func TestHeadHasTheSeriesThatWereAskedForAndMostAreBuckets(t *testing.T) {
	const series = 100_000
	dir := filepath.Join(t.TempDir(), "data")
	from := time.Now().Truncate(time.Second)
	to := from.Add(2 * Step)
	stats, err := Write(t.Context(), Options{Dir: dir, Series: series, Seed: 1, From: from, To: to, Exemplars: true})
	require.NoError(t, err)
	require.Equal(t, series, stats.Series)
	require.Equal(t, 3*series, stats.Samples)
	require.Greater(t, stats.Buckets, series*3/4)

	db, err := tsdb.Open(dir, nil, nil, tsdb.DefaultOptions(), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	require.EqualValues(t, series, db.Head().NumSeries())
	require.Equal(t, from.UnixMilli(), db.Head().MinTime())
	require.Equal(t, to.UnixMilli(), db.Head().MaxTime())

	q, err := db.Querier(from.UnixMilli(), to.UnixMilli())
	require.NoError(t, err)
	defer q.Close()
	set := q.Select(t.Context(), false, nil, labels.MustNewMatcher(labels.MatchNotEqual, "le", ""))
	buckets, bytes := 0, 0
	for set.Next() {
		b, err := set.At().Labels().MarshalJSON()
		require.NoError(t, err)
		buckets++
		bytes += len(b)
	}
	require.NoError(t, set.Err())
	require.Equal(t, stats.Buckets, buckets)
	perSeries := bytes / buckets
	require.GreaterOrEqual(t, perSeries, 250)
	require.LessOrEqual(t, perSeries, 400)
}

func TestFewSeriesHaveAnAPIServerToo(t *testing.T) {
	stats, err := Write(t.Context(), Options{Dir: filepath.Join(t.TempDir(), "data"), Series: MinSeries, From: time.Now(), To: time.Now()})
	require.NoError(t, err)
	require.Equal(t, MinSeries, stats.Series)
	require.Greater(t, stats.Buckets, MinSeries/4)
}

func TestTooFewSeriesAndATakenDirectoryAreRefused(t *testing.T) {
	_, err := Write(t.Context(), Options{Dir: filepath.Join(t.TempDir(), "data"), Series: MinSeries - 1, From: time.Now()})
	require.ErrorContains(t, err, "series must be 5000 or more, got 4999")
	_, err = Write(t.Context(), Options{Dir: t.TempDir(), Series: MinSeries, From: time.Now()})
	require.ErrorContains(t, err, "file exists")
}
