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
		require.Empty(t, firstDifference(want, diskReplay(t, dir, parallel != "")), "parallel %q", parallel)
	}
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
	require.Equal(t, parallel, h.opts.ParallelWALReplay)
	fingerprint := headFingerprint(t, h)
	require.NoError(t, h.Close())
	return slices.DeleteFunc(fingerprint, func(line string) bool {
		return strings.HasPrefix(line, "replay status") // Each start adds a segment.
	})
}
