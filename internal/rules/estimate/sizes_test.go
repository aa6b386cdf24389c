// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/util/compression"
	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/kubelike"
)

// builtWith returns the sizes of the build that the tests are compiled with: make
// test-sizes puts the patched tree in the place of upstream's module.
func builtWith() Sizes {
	if os.Getenv("PROMGUARD_PATCHED_SIZES") != "" {
		return ModelSizes().Patched()
	}
	return ModelSizes()
}

// TestModelSizesAreThoseOfARealStore scrapes a modelled cluster every 30 s for
// two hours into Prometheus's own store, and compares what it takes with what
// estimates count with.
func TestModelSizesAreThoseOfARealStore(t *testing.T) {
	const (
		series   = 10_000
		interval = 30 * time.Second
		scrapes  = int(2 * time.Hour / interval)
	)
	start := time.UnixMilli(1_700_000_000_000).Truncate(2 * time.Hour)
	cluster, err := kubelike.New(kubelike.Config{Series: series, Seed: 1, Start: start})
	require.NoError(t, err)
	dir := t.TempDir()
	opts := tsdb.DefaultOptions()
	opts.WALCompression = compression.Snappy
	db, err := tsdb.Open(dir, nil, nil, opts, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	db.DisableCompactions()
	before := heapInUse()
	refs := make([]storage.SeriesRef, series)
	for i := range scrapes {
		appendScrape(t, db, cluster, refs, start, time.Duration(i)*interval)
	}
	head := float64(heapInUse()-before) / series

	samples := float64(series * scrapes)
	wal := float64(size(t, filepath.Join(dir, "wal"))) / samples
	require.NoError(t, db.CompactHead(tsdb.NewRangeHead(db.Head(), start.UnixMilli(), start.Add(2*time.Hour).UnixMilli()-1)))
	require.Len(t, db.Blocks(), 1)
	block := float64(db.Blocks()[0].Size()) / float64(db.Blocks()[0].Meta().Stats.NumSamples)
	t.Logf("%.0f bytes of heap per series, %.2f bytes per sample in the log, %.2f in a block", head, wal, block)
	require.InEpsilon(t, builtWith().HeadBytesPerSeries, head, 0.15)
	require.InEpsilon(t, modelWALBytesPerSample, wal, 0.15)
	require.InEpsilon(t, modelBlockBytesPerSample, block, 0.15)
}

func appendScrape(t *testing.T, db *tsdb.DB, cluster *kubelike.Cluster, refs []storage.SeriesRef, start time.Time, at time.Duration) {
	t.Helper()
	app := db.Appender(context.Background())
	var (
		values []float64
		lsets  []labels.Labels
		n      int
	)
	for _, target := range cluster.Targets() {
		for _, g := range target.Groups() {
			values = g.AppendValues(values[:0], 0, at)
			lsets = lsets[:0]
			if at == 0 {
				lsets = g.AppendLabels(lsets, 0)
			}
			for i, v := range values {
				var lset labels.Labels
				if at == 0 {
					lset = lsets[i]
				}
				var err error
				refs[n], err = app.Append(refs[n], lset, start.Add(at).UnixMilli(), v)
				require.NoError(t, err)
				n++
			}
		}
	}
	require.Len(t, refs, n)
	require.NoError(t, app.Commit())
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func size(t *testing.T, dir string) int64 {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var n int64
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		n += info.Size()
	}
	return n
}
