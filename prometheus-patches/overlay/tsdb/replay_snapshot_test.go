// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/promslog"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/tsdb/wlog"
)

// A snapshot that is not loaded is not missed: from the directories of servers
// that were stopped, with a snapshot, and of those that were killed later, the
// parallel replay gives the head that upstream's replay of the log gives.
func TestASnapshotThatIsNotLoadedIsNotMissed(t *testing.T) {
	ignored := 0
	for seed := range int64(40) {
		root := t.TempDir()
		g := newReplayGenerator(t, seed, filepath.Join(root, "made"))
		g.snapshot, g.damaged, g.exemplars = false, false, 0
		g.generate()
		if g.hasWBL {
			continue // The number of chunks depends on which of upstream's workers was first.
		}
		stopped := filepath.Join(root, "made")
		g.snapshot = true
		g.open(stopped, seed%2 == 0, nil)
		_, _, _, err := LastChunkSnapshot(stopped)
		require.NoError(t, err)
		if seed%3 == 0 { // Killed later.
			w, err := wlog.New(promslog.NewNopLogger(), nil, filepath.Join(stopped, "wal"), g.compress)
			require.NoError(t, err)
			g.wal, g.segments = w, 0
			for range 20 {
				g.step()
			}
			require.NoError(t, w.Close())
		}
		upstream, parallel := copyOf(t, stopped), copyOf(t, stopped)
		g.snapshot = false
		want := g.open(upstream, false, nil)
		g.snapshot = true
		var ended replayEnds
		got := g.open(parallel, true, &ended)
		if ended.Parallel == 0 || strings.Contains(got[0], "corruption") {
			continue
		}
		ignored++
		require.Empty(t, firstDifference(withoutSnapshotMetrics(want), withoutSnapshotMetrics(got)), "seed %d (%s)", seed, g.describe())
	}
	require.Greater(t, ignored, 8)
}

func withoutSnapshotMetrics(lines []string) []string {
	return slices.DeleteFunc(lines, func(line string) bool { return strings.Contains(line, "snapshot") })
}

func TestASnapshotIsLoadedWhereTheLogIsMuchLargerOrDamagedOrExemplarsAreKept(t *testing.T) {
	made := t.TempDir()
	writeManyChunks(t, made)
	open := func(dir string, parallel, snapshot bool, edit func(*HeadOptions)) *Head {
		wal, err := wlog.New(promslog.NewNopLogger(), nil, filepath.Join(dir, "wal"), "snappy")
		require.NoError(t, err)
		opts := DefaultHeadOptions()
		opts.ChunkDirRoot = dir
		opts.ParallelWALReplay, opts.EnableMemorySnapshotOnShutdown = parallel, snapshot
		edit(opts)
		h, err := NewHead(prometheus.NewRegistry(), promslog.NewNopLogger(), wal, nil, opts, nil)
		require.NoError(t, err)
		return h
	}
	asIs := func(*HeadOptions) {}
	h := open(made, true, true, asIs)
	require.NoError(t, h.Init(0))
	require.NoError(t, h.Close())
	snapshot, segment, _, err := LastChunkSnapshot(made)
	require.NoError(t, err)

	for _, tc := range []struct {
		name string
		want replaySnapshot
		edit func(*HeadOptions)
		do   func(dir string)
	}{
		{"the log is much larger", replayUsedSnapshot, asIs, func(string) {}},
		{"the snapshot is large", replaySlowerSnapshot, asIs, func(dir string) {
			require.NoError(t, os.Truncate(filepath.Join(dir, filepath.Base(snapshot), "00000000"), 1<<20))
		}},
		{"exemplars are kept", replayUsedSnapshot, func(o *HeadOptions) {
			o.EnableExemplarStorage = true
			o.MaxExemplars.Store(1)
		}, func(dir string) {
			require.NoError(t, os.Truncate(filepath.Join(dir, filepath.Base(snapshot), "00000000"), 1<<20))
		}},
		{"snapshots are off", replayNoSnapshot, func(o *HeadOptions) { o.EnableMemorySnapshotOnShutdown = false }, func(string) {}},
		{"there is none", replayNoSnapshot, asIs, func(dir string) {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, filepath.Base(snapshot))))
		}},
		{"much was logged since", replaySlowerSnapshot, asIs, func(dir string) {
			require.NoError(t, os.WriteFile(wlog.SegmentName(filepath.Join(dir, "wal"), segment), make([]byte, 1<<20), 0o666))
		}},
		{"the log is of another server", replayUsedSnapshot, asIs, func(dir string) {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "wal")))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := copyOf(t, made)
			tc.do(dir)
			h := open(dir, true, true, tc.edit)
			require.Equal(t, tc.want, h.findSnapshot())
			h.opts.EnableMemorySnapshotOnShutdown = false
			require.NoError(t, h.Close())
		})
	}
	t.Run("the log is damaged before it", func(t *testing.T) {
		dir := copyOf(t, made)
		large := filepath.Join(dir, filepath.Base(snapshot), "large") // Not read.
		require.NoError(t, os.WriteFile(large, make([]byte, 1<<20), 0o666))
		name := wlog.SegmentName(filepath.Join(dir, "wal"), 0)
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		b[len(b)/2] ^= 1
		require.NoError(t, os.WriteFile(name, b, 0o666))
		h := open(dir, true, true, asIs)
		require.Equal(t, replaySlowerSnapshot, h.findSnapshot())
		require.NoError(t, h.Init(0))
		require.False(t, h.opts.ParallelWALReplay, "it turned out to be")
		require.EqualValues(t, 50, h.NumSeries())
		require.EqualValues(t, 14_985_000, h.MaxTime(), "the snapshot has what the log has lost")
		require.NoError(t, h.Close())
	})
}
