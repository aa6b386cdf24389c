// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slices"
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

// TestModelSizesAreThoseOfARealStore compares what a modelled cluster takes in
// Prometheus's own store with what estimates count with. A series is one of those
// that a cluster has more of when it grows: of nodes, pods and containers.
func TestModelSizesAreThoseOfARealStore(t *testing.T) {
	cluster, err := kubelike.New(kubelike.Config{Series: 30_000, Seed: 1, Start: scrapeStart})
	require.NoError(t, err)
	grows := slices.IndexFunc(cluster.Targets(), func(t *kubelike.Target) bool { return t.Pool == "kube-state-metrics" })
	small, large := store(t, cluster.Targets()[:grows]), store(t, cluster.Targets())
	head := (large.heap - small.heap) / (large.series - small.series)
	wal, block := large.wal/large.samples, large.block/large.blockSamples
	t.Logf("%.0f bytes of heap for each of %.0f further series, %.2f bytes per sample in the log, %.2f in a block", head, large.series-small.series, wal, block)
	require.InEpsilon(t, builtWith().HeadBytesPerSeries, head, 0.1)
	require.InEpsilon(t, modelWALBytesPerSample, wal, 0.15)
	require.InEpsilon(t, modelBlockBytesPerSample, block, 0.15)
}

var scrapeStart = time.UnixMilli(1_700_000_000_000).Truncate(2 * time.Hour)

// stored is what a store has, in bytes and numbers.
type stored struct{ series, samples, heap, wal, block, blockSamples float64 }

// store scrapes the targets every 30 s for two hours, in a transaction for each, and has
// chunks m-mapped as a server has each minute. Those of two hours end together: the last
// ones are full, which is the most that a head has.
func store(t *testing.T, targets []*kubelike.Target) (s stored) {
	t.Helper()
	const (
		interval = 30 * time.Second
		scrapes  = int(2 * time.Hour / interval)
	)
	dir := t.TempDir()
	opts := tsdb.DefaultOptions()
	opts.WALCompression = compression.Snappy
	refs := make([][]storage.SeriesRef, len(targets))
	before := heapInUse()
	db, err := tsdb.Open(dir, nil, nil, opts, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	db.DisableCompactions()
	for i := range scrapes {
		for n, target := range targets {
			refs[n] = appendScrape(t, db, target, refs[n], time.Duration(i)*interval)
			if i == 0 {
				s.series += float64(len(refs[n]))
				before += uint64(8 * cap(refs[n]))
			}
		}
		if i%2 == 0 {
			db.ForceHeadMMap()
		}
	}
	s.heap = float64(heapInUse() - before)
	s.samples = s.series * float64(scrapes)
	s.wal = float64(size(t, filepath.Join(dir, "wal")))
	require.NoError(t, db.CompactHead(tsdb.NewRangeHead(db.Head(), scrapeStart.UnixMilli(), scrapeStart.Add(2*time.Hour).UnixMilli()-1)))
	require.Len(t, db.Blocks(), 1)
	s.block, s.blockSamples = float64(db.Blocks()[0].Size()), float64(db.Blocks()[0].Meta().Stats.NumSamples)
	return s
}

// appendScrape appends the samples of a target at a time after the start, and returns
// the references of its series.
func appendScrape(t *testing.T, db *tsdb.DB, target *kubelike.Target, refs []storage.SeriesRef, at time.Duration) []storage.SeriesRef {
	t.Helper()
	app := db.Appender(context.Background())
	var (
		values []float64
		lsets  []labels.Labels
		n      int
	)
	for _, g := range target.Groups() {
		values = g.AppendValues(values[:0], 0, at)
		if at == 0 {
			lsets = g.AppendLabels(lsets[:0], 0)
			refs = append(refs, make([]storage.SeriesRef, len(values))...)
		}
		for i, v := range values {
			var lset labels.Labels
			if at == 0 {
				lset = lsets[i]
			}
			var err error
			refs[n], err = app.Append(refs[n], lset, scrapeStart.Add(at).UnixMilli(), v)
			require.NoError(t, err)
			n++
		}
	}
	require.NoError(t, app.Commit())
	return refs
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
