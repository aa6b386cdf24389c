// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tsdb

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/promslog"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/tsdb/wlog"
	"github.com/prometheus/prometheus/util/compression"
)

// A replay that cannot write the chunks that it cuts, here because a process may
// write no more than so many bytes to a file, ends as upstream's does: the
// process dies and says why, and the next start finds all of the WAL.
func TestReplayThatCannotWriteChunksEndsAsUpstreamDoes(t *testing.T) {
	if dir := os.Getenv("PROMGUARD_REPLAY_FULL_DISK"); dir != "" {
		replayOnFullDisk(t, dir, os.Getenv("PROMGUARD_REPLAY_PARALLEL") != "")
		return
	}
	made := t.TempDir()
	writeManyChunks(t, made)
	want := diskReplay(t, copyOf(t, made), false)
	for _, parallel := range []string{"", "1"} {
		dir := copyOf(t, made)
		cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "PROMGUARD_REPLAY_FULL_DISK="+dir, "PROMGUARD_REPLAY_PARALLEL="+parallel)
		out, err := cmd.CombinedOutput()
		require.Error(t, err, "parallel %q", parallel)
		require.Contains(t, string(out), "file too large")
		require.NotContains(t, string(out), "replayed without an error")
		if parallel != "" {
			again := copyOf(t, dir)
			h := diskHead(t, again, true)
			require.False(t, h.opts.ParallelWALReplay, "the start after one that was killed")
			require.Empty(t, firstDifference(want, fingerprintOnDisk(t, h)))
			require.NoError(t, h.Close())
			require.NoFileExists(t, filepath.Join(again, replayMarker))
			require.NoError(t, os.Remove(filepath.Join(dir, replayMarker)))
		}
		require.NoFileExists(t, filepath.Join(dir, replayMarker))
		require.Empty(t, firstDifference(want, diskReplay(t, dir, parallel != "")), "parallel %q", parallel)
		require.NoFileExists(t, filepath.Join(dir, replayMarker))
	}
}

func TestNothingThatHappensToTheMarkerFailsAStart(t *testing.T) {
	made := t.TempDir()
	writeManyChunks(t, made)
	start := func(dir string, parallel bool) {
		h := diskHead(t, dir, true)
		require.Equal(t, parallel, h.opts.ParallelWALReplay)
		require.EqualValues(t, 50, h.NumSeries())
		require.NoError(t, h.Close())
	}
	t.Run("it is there and cannot be removed", func(t *testing.T) {
		dir := copyOf(t, made)
		require.NoError(t, os.MkdirAll(filepath.Join(dir, replayMarker, "in", "the", "way"), 0o777))
		start(dir, false)
		start(dir, false)
	})
	t.Run("it is left by whatever", func(t *testing.T) {
		dir := copyOf(t, made)
		require.NoError(t, os.WriteFile(filepath.Join(dir, replayMarker), []byte("what"), 0o400))
		start(dir, false)
		start(dir, true)
	})
	t.Run("it cannot be written", func(t *testing.T) {
		dir := copyOf(t, made)
		require.NoError(t, os.Symlink(filepath.Join(dir, "no", "such"), filepath.Join(dir, replayMarker)))
		start(dir, false) // Something is there.
		h := diskHead(t, dir, true)
		h.opts.ChunkDirRoot = filepath.Join(dir, "no", "such")
		require.False(t, h.markReplay())
		h.unmarkReplay()
		require.NoError(t, h.Close())
	})
	t.Run("upstream's code replays", func(t *testing.T) {
		dir := copyOf(t, made)
		require.NoError(t, os.WriteFile(filepath.Join(dir, replayMarker), nil, 0o666))
		require.NoError(t, diskHead(t, dir, false).Close())
		require.FileExists(t, filepath.Join(dir, replayMarker), "it is no concern of upstream's")
	})
}

func replayOnFullDisk(t *testing.T, dir string, parallel bool) {
	signal.Ignore(syscall.SIGXFSZ)
	const limit = 100_000 // Less than the chunks, more than what the test itself writes.
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: limit, Max: limit}))
	diskReplay(t, dir, parallel)
	t.Log("replayed without an error")
}

func copyOf(t *testing.T, dir string) string {
	to := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.CopyFS(to, os.DirFS(dir)))
	return to
}

func writeManyChunks(t *testing.T, dir string) {
	w, err := wlog.New(promslog.NewNopLogger(), nil, filepath.Join(dir, "wal"), compression.Snappy)
	require.NoError(t, err)
	var series []record.RefSeries
	for ref := range chunks.HeadSeriesRef(50) {
		series = append(series, record.RefSeries{Ref: ref + 1, Labels: labels.FromStrings("i", strconv.Itoa(int(ref)))})
	}
	var enc record.Encoder
	require.NoError(t, w.Log(enc.Series(series, nil)))
	for i := range int64(1000) {
		var samples []record.RefSample
		for _, s := range series {
			samples = append(samples, record.RefSample{Ref: s.Ref, T: i * 15_000, V: 1 / float64(i+int64(s.Ref))})
		}
		require.NoError(t, w.Log(enc.Samples(samples, nil)))
	}
	require.NoError(t, w.Close())
}

func diskReplay(t *testing.T, dir string, parallel bool) []string {
	h := diskHead(t, dir, parallel)
	require.Equal(t, parallel, h.opts.ParallelWALReplay)
	fingerprint := fingerprintOnDisk(t, h)
	require.NoError(t, h.Close())
	return fingerprint
}

func diskHead(t *testing.T, dir string, parallel bool) *Head {
	wal, err := wlog.New(promslog.NewNopLogger(), nil, filepath.Join(dir, "wal"), compression.Snappy)
	require.NoError(t, err)
	opts := DefaultHeadOptions()
	opts.ChunkDirRoot = dir
	opts.ChunkRange = DefaultBlockDuration
	opts.ParallelWALReplay = parallel
	opts.WALReplayConcurrency = 2
	h, err := NewHead(prometheus.NewRegistry(), promslog.NewNopLogger(), wal, nil, opts, nil)
	require.NoError(t, err)
	require.NoError(t, h.Init(0))
	return h
}

func fingerprintOnDisk(t *testing.T, h *Head) []string {
	return slices.DeleteFunc(headFingerprint(t, h), func(line string) bool {
		return strings.HasPrefix(line, "replay status") // Each start adds a segment.
	})
}
