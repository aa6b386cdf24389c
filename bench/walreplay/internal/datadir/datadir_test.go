// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/prometheus/tsdb/fileutil"
	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/tsdb/wlog"
	"github.com/prometheus/prometheus/util/compression"
	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/bench/walreplay/internal/walgen"
)

func generate(t *testing.T) (string, walgen.Stats) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	stats, err := walgen.Generate(t.Context(), walgen.Options{
		Dir: dir, Series: 2000, Scrapes: 6, ScrapeInterval: 15 * time.Second, Seed: 1,
		Start: time.Unix(1_767_225_600, 0), Compression: "snappy", SegmentSize: 32 << 10,
	})
	require.NoError(t, err)
	return dir, stats
}

func TestCountFindsWhatWasGenerated(t *testing.T) {
	path, stats := generate(t)
	d, err := Open(path)
	require.NoError(t, err)
	got, err := d.Count(t.Context())
	require.NoError(t, err)
	require.Equal(t, Contents{Segments: stats.Segments, Bytes: stats.Bytes, Records: stats.Records, Series: stats.Series, Samples: stats.Samples}, got)
	require.Equal(t, stats.Bytes, d.WALBytes)

	bare, err := Open(filepath.Join(path, "wal"))
	require.NoError(t, err)
	again, err := bare.Count(t.Context())
	require.NoError(t, err)
	require.Equal(t, got, again)
}

func TestASampleIsOneOfSoManyLivingSeriesWithTheirLastValues(t *testing.T) {
	path, _ := generate(t)
	d, err := Open(path)
	require.NoError(t, err)
	all, err := d.Sample(t.Context(), 1, 4)
	require.NoError(t, err)
	require.InDelta(t, 2000, len(all), 200)
	require.Len(t, all[0].Values, 4)
	require.NotEmpty(t, all[0].Labels.Get("__name__"))
	some, err := d.Sample(t.Context(), 10, 4)
	require.NoError(t, err)
	require.InDelta(t, 200, len(some), 100)
	require.Subset(t, all, some)
	again, err := d.Sample(t.Context(), 10, 4)
	require.NoError(t, err)
	require.Equal(t, some, again)
}

func TestCountStartsAtTheLastCheckpoint(t *testing.T) {
	path, stats := generate(t)
	require.Greater(t, stats.Segments, 3)
	d, err := Open(path)
	require.NoError(t, err)
	all, err := d.Count(t.Context())
	require.NoError(t, err)
	// Segments 0 and 1 become a checkpoint of their own bytes.
	checkpoint := filepath.Join(path, "wal", "checkpoint.00000001")
	require.NoError(t, os.Mkdir(checkpoint, 0o777))
	for i := range 2 {
		require.NoError(t, os.Rename(wlog.SegmentName(filepath.Join(path, "wal"), i), wlog.SegmentName(checkpoint, i)))
	}
	got, err := d.Count(t.Context())
	require.NoError(t, err)
	require.Equal(t, all, got)
}

func TestCopyHoldsWhatIsReplayedAndNothingElse(t *testing.T) {
	path, _ := generate(t)
	for _, name := range []string{"lock", "queries.active", "chunks_head/000001", "chunk_snapshot.000003.0000000100/00000000", "01JGYH0Z9M3TQ4V7R2W5X8B6CD/meta.json"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(path, name)), 0o777))
		require.NoError(t, os.WriteFile(filepath.Join(path, name), []byte(name), 0o666))
	}
	d, err := Open(path)
	require.NoError(t, err)
	require.Equal(t, 1, d.Blocks)
	to := filepath.Join(t.TempDir(), "copy")
	require.NoError(t, d.Copy(t.Context(), to))

	var copied int64
	require.NoError(t, filepath.Walk(to, func(p string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			copied += info.Size()
			rel, _ := filepath.Rel(to, p)
			want, err := os.ReadFile(filepath.Join(path, rel))
			require.NoError(t, err)
			got, err := os.ReadFile(p)
			require.NoError(t, err)
			require.Equal(t, want, got, rel)
		}
		return err
	}))
	require.Equal(t, d.Bytes, copied)
	require.FileExists(t, filepath.Join(to, "chunks_head/000001"))
	require.FileExists(t, filepath.Join(to, "chunk_snapshot.000003.0000000100/00000000"))
	for _, name := range []string{"lock", "queries.active", "01JGYH0Z9M3TQ4V7R2W5X8B6CD"} {
		_, err := os.Lstat(filepath.Join(to, name))
		require.ErrorIs(t, err, os.ErrNotExist, name)
	}
}

func TestLogsThatCannotBeReplayedAreRefused(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o666))
	empty := filepath.Join(dir, "empty")
	require.NoError(t, os.MkdirAll(filepath.Join(empty, "wal"), 0o777))
	gap := filepath.Join(dir, "gap")
	require.NoError(t, os.MkdirAll(gap, 0o777))
	for _, name := range []string{"00000000", "00000002"} {
		require.NoError(t, os.WriteFile(filepath.Join(gap, name), nil, 0o666))
	}
	for _, tc := range []struct{ path, want string }{
		{filepath.Join(dir, "missing"), "no such file or directory"},
		{file, file + " is a file; name a Prometheus data directory, or the wal directory in one"},
		{dir, dir + " holds no WAL: no wal directory, and no segments such as 00000000"},
		{empty, empty + " holds no WAL"},
		{gap, "segments are not sequential"},
	} {
		_, err := Open(tc.path)
		require.ErrorContains(t, err, tc.want)
	}
}

func TestFilesThatAreNoLogAreRefused(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "00000000"), []byte("not a log at all"), 0o666))
	d, err := Open(dir)
	require.NoError(t, err)
	_, err = d.Count(t.Context())
	require.ErrorContains(t, err, dir+" is not a readable WAL: ")
}

func TestCorruptionEndsTheCountAndIsTold(t *testing.T) {
	path, stats := generate(t)
	segment := wlog.SegmentName(filepath.Join(path, "wal"), 1)
	b, err := os.ReadFile(segment)
	require.NoError(t, err)
	b[100] ^= 0xff
	require.NoError(t, os.WriteFile(segment, b, 0o666))
	d, err := Open(path)
	require.NoError(t, err)
	got, err := d.Count(t.Context())
	require.NoError(t, err)
	require.ErrorContains(t, got.Corruption, segment+": ")
	require.Less(t, got.Samples, stats.Samples)
	require.Positive(t, got.Records)
}

func TestDirectoryOfARunningPrometheusIsRefusedUntilItStops(t *testing.T) {
	path, _ := generate(t)
	lock, _, err := fileutil.Flock(filepath.Join(path, "lock"))
	require.NoError(t, err)
	for _, p := range []string{path, filepath.Join(path, "wal")} {
		_, err = Open(p)
		require.ErrorContains(t, err, path+" is in use by a running Prometheus")
	}
	require.NoError(t, lock.Release())
	require.FileExists(t, filepath.Join(path, "lock"), "a killed Prometheus leaves its lock file")
	_, err = Open(path)
	require.NoError(t, err)
}

func TestTooFullADiskIsToldBeforeCopying(t *testing.T) {
	d := &Dir{Path: "data", Bytes: 1 << 61}
	require.ErrorContains(t, d.CheckSpace(t.TempDir(), 2), "name another place with --tmp-dir")
	d.Bytes = 1
	require.NoError(t, d.CheckSpace(t.TempDir(), 2))
}

// passed are the contents as reading and as decoding finds them.
func passed(t *testing.T, path string) (read, decoded Contents) {
	t.Helper()
	read, err := Read(t.Context(), []string{path, path}, false)
	require.NoError(t, err)
	decoded, err = Read(t.Context(), []string{path, path}, true)
	require.NoError(t, err)
	return read, decoded
}

func TestReadingCountsBytesAndDecodingRecordsToo(t *testing.T) {
	dir := t.TempDir()
	w, err := wlog.New(nil, nil, dir, compression.Snappy)
	require.NoError(t, err)
	var enc record.Encoder
	samples := make([]record.RefSample, 1000)
	for range 50 {
		require.NoError(t, w.Log(enc.Samples(samples, nil)))
	}
	require.NoError(t, w.Log([]byte{200})) // A type of the future.
	require.NoError(t, w.Close())
	path := wlog.SegmentName(dir, 0)
	info, err := os.Stat(path)
	require.NoError(t, err)
	read, decoded := passed(t, path)
	require.Equal(t, Contents{Segments: 2, Bytes: 2 * info.Size()}, read)
	require.Equal(t, Contents{Segments: 2, Bytes: 2 * info.Size(), Records: 102, Samples: 100_000}, decoded)
}

func TestInterruptEndsReading(t *testing.T) {
	path, _ := generate(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, decode := range []bool{false, true} {
		_, err := Read(ctx, []string{wlog.SegmentName(filepath.Join(path, "wal"), 0)}, decode)
		require.ErrorIs(t, err, context.Canceled)
	}
}
