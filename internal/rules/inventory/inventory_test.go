// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
	"github.com/prometheus/prometheus/tsdb/wlog"
	"github.com/prometheus/prometheus/util/compression"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	minute = int64(60_000)
	start  = int64(1_700_000_400_000) / (120 * minute) * (120 * minute)
)

func series(name string) labels.Labels { return labels.FromStrings("__name__", name, "job", "x") }

func openStore(t *testing.T, dir string) *tsdb.DB {
	t.Helper()
	opts := tsdb.DefaultOptions()
	opts.WALCompression = compression.Snappy
	opts.RetentionDuration = math.MaxInt64 / 2
	db, err := tsdb.Open(dir, nil, nil, opts, nil)
	require.NoError(t, err)
	db.DisableCompactions()
	return db
}

// fill appends, over an hour: "kept" every minute, "slow" every five, "ended"
// until half an hour before the end, "stale" with a marker, "native" as a
// histogram every two minutes.
func fill(t *testing.T, db *tsdb.DB, from int64) {
	t.Helper()
	for m := range int64(60) {
		at := start + (from+m)*minute
		app := db.Appender(context.Background())
		add := func(name string, v float64) {
			_, err := app.Append(0, series(name), at, v)
			require.NoError(t, err)
		}
		add("kept", float64(m))
		if m%5 == 4 {
			add("slow", 1)
		}
		if m < 30 {
			add("ended", 1)
		}
		if m < 58 {
			add("stale", 1)
		} else if m == 58 {
			add("stale", math.Float64frombits(value.StaleNaN))
		}
		if m%2 == 1 {
			_, err := app.AppendHistogram(0, series("native"), at, tsdbutil.GenerateTestHistogram(m), nil)
			require.NoError(t, err)
			_, err = app.AppendHistogram(0, series("native_float"), at, nil, tsdbutil.GenerateTestHistogram(m).ToFloat(&histogram.FloatHistogram{}))
			require.NoError(t, err)
		}
		require.NoError(t, app.Commit())
	}
}

func read(t *testing.T, s Source) map[string]Series {
	t.Helper()
	out := map[string]Series{}
	require.NoError(t, s.Each(context.Background(), func(s Series) error {
		name := s.Labels.Copy().Get("__name__")
		require.NotContains(t, out, name, "every series comes once")
		out[name] = Series{Now: s.Now, Rate: math.Round(s.Rate*3600) / 3600}
		return nil
	}))
	return out
}

// content returns what every file in a directory has in it.
func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			out[path] = ""
			return err
		}
		b, err := os.ReadFile(path)
		out[path] = string(b)
		return err
	}))
	return out
}

func rate(perMinute float64) float64 { return math.Round(perMinute/60*3600) / 3600 }

func TestHeadOfADirectoryIsReadFromItsLogAndNothingIsWritten(t *testing.T) {
	dir := t.TempDir()
	db := openStore(t, dir)
	fill(t, db, 0)
	require.NoError(t, db.Close())
	before := content(t, dir)
	d, err := OpenDirectory(context.Background(), dir)
	require.NoError(t, err)
	want := map[string]Series{
		"kept": {Now: true, Rate: rate(1)}, "slow": {Now: true, Rate: rate(0.2)}, "ended": {Rate: rate(1)},
		"stale": {Rate: rate(1)}, "native": {Now: true, Rate: rate(0.5)}, "native_float": {Now: true, Rate: rate(0.5)},
	}
	require.Equal(t, want, read(t, d))
	require.Equal(t, want, read(t, d), "any number of times")
	require.Greater(t, d.WALBytesPerSample, 1.0)
	require.Zero(t, d.BlockBytesPerSample)
	require.Equal(t, before, content(t, dir))
}

func TestSeriesThatHasTwoReferencesIsOne(t *testing.T) {
	dir := t.TempDir()
	log, err := wlog.New(nil, nil, filepath.Join(dir, "wal"), compression.None)
	require.NoError(t, err)
	var enc record.Encoder
	at := func(m int64) int64 { return start + m*minute }
	require.NoError(t, log.Log(
		enc.Series([]record.RefSeries{{Ref: 1, Labels: series("kept")}, {Ref: 2, Labels: series("another")}}, nil),
		enc.Samples([]record.RefSample{{Ref: 1, T: at(0)}, {Ref: 1, T: at(1)}, {Ref: 7, T: at(1)}}, nil),
		enc.Series([]record.RefSeries{{Ref: 3, Labels: series("kept")}, {Ref: 1, Labels: series("kept")}}, nil),
		enc.Samples([]record.RefSample{{Ref: 3, T: at(2)}, {Ref: 3, T: at(3)}}, nil),
	))
	require.NoError(t, log.Close())
	d, err := OpenDirectory(context.Background(), dir)
	require.NoError(t, err)
	require.Equal(t, map[string]Series{"kept": {Now: true, Rate: rate(1)}}, read(t, d), "without a sample a series is nothing")
}

func TestLogWithACheckpointIsReadToItsEnd(t *testing.T) {
	dir := t.TempDir()
	for hour := range int64(7) {
		db := openStore(t, dir)
		fill(t, db, 60*hour)
		require.NoError(t, db.Close())
	}
	db := openStore(t, dir)
	fill(t, db, 60*7)
	require.NoError(t, db.CompactHead(tsdb.NewRangeHead(db.Head(), start, start+240*minute-1)))
	require.NoError(t, db.Close())
	db = openStore(t, dir)
	require.NoError(t, db.CompactHead(tsdb.NewRangeHead(db.Head(), start+240*minute, start+360*minute-1)))
	fill(t, db, 60*8)
	require.NoError(t, db.Close())
	checkpoints, err := filepath.Glob(filepath.Join(dir, "wal", "checkpoint.*"))
	require.NoError(t, err)
	require.NotEmpty(t, checkpoints)
	d, err := OpenDirectory(context.Background(), dir)
	require.NoError(t, err)
	got := read(t, d)
	require.Equal(t, Series{Now: true, Rate: rate(1)}, got["kept"])
	require.True(t, got["slow"].Now)
	require.Greater(t, d.WALBytesPerSample, 1.0)
	require.Greater(t, d.BlockBytesPerSample, 1.0)
}

func TestSnapshotIsReadFromItsNewestBlock(t *testing.T) {
	dir, snapshot := t.TempDir(), t.TempDir()
	db := openStore(t, dir)
	fill(t, db, 0)
	require.NoError(t, db.Snapshot(snapshot, true))
	require.NoError(t, db.Close())
	d, err := OpenDirectory(context.Background(), snapshot)
	require.NoError(t, err)
	require.Contains(t, d.Note, "newest block")
	got := read(t, d)
	require.Len(t, got, 6)
	require.True(t, got["kept"].Now)
	require.False(t, got["ended"].Now)
	// All have the mean: 60 + 12 + 30 + 59 + 30 + 30 samples of 6 series an hour.
	require.InDelta(t, 221.0/6/3600, got["kept"].Rate, 0.001)
	require.Greater(t, d.BlockBytesPerSample, 1.0)
}

func TestTornEndOfALogIsToldAndADamagedLogIsAnError(t *testing.T) {
	dir := t.TempDir()
	db := openStore(t, dir)
	fill(t, db, 0)
	require.NoError(t, db.Close())
	segments, err := filepath.Glob(filepath.Join(dir, "wal", "0*"))
	require.NoError(t, err)
	largest, size := "", int64(0)
	for _, s := range segments {
		info, err := os.Stat(s)
		require.NoError(t, err)
		if info.Size() >= size {
			largest, size = s, info.Size()
		}
	}
	for _, s := range segments {
		if s != largest {
			require.NoError(t, os.Remove(s))
		}
	}
	text, err := os.ReadFile(largest)
	require.NoError(t, err)
	end := len(text)
	for end > 0 && text[end-1] == 0 {
		end--
	}
	torn := append([]byte(nil), text[:end]...)
	torn[end-1] ^= 0xff
	require.NoError(t, os.WriteFile(largest, torn, 0o644))
	d, err := OpenDirectory(context.Background(), dir)
	require.NoError(t, err)
	require.Contains(t, d.Note, "was not completed")
	require.Contains(t, read(t, d), "kept")

	// The same before the last segment is damage.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "wal", "00000009"), nil, 0o644))
	require.NoError(t, os.Rename(largest, filepath.Join(dir, "wal", "00000008")))
	_, err = OpenDirectory(context.Background(), dir)
	require.ErrorContains(t, err, "segment "+filepath.Join(dir, "wal", "00000008"))
}

func TestDirectoryWithoutDataIsAnError(t *testing.T) {
	dir := t.TempDir()
	_, err := OpenDirectory(context.Background(), dir)
	require.ErrorContains(t, err, "neither a block nor a write-ahead log")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "wal"), 0o755))
	_, err = OpenDirectory(context.Background(), dir)
	require.ErrorContains(t, err, "neither a block nor a write-ahead log")
	_, err = OpenDirectory(context.Background(), filepath.Join(dir, "none"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "01ARZ3NDEKTSV4RRFFQ69G5FAV"), 0o755))
	_, err = OpenDirectory(context.Background(), dir)
	require.ErrorContains(t, err, "block "+dir)
}

func TestReadingStopsWithTheVisitor(t *testing.T) {
	dir := t.TempDir()
	db := openStore(t, dir)
	fill(t, db, 0)
	require.NoError(t, db.Close())
	d, err := OpenDirectory(context.Background(), dir)
	require.NoError(t, err)
	stop := errors.New("stop")
	require.ErrorIs(t, d.Each(context.Background(), func(Series) error { return stop }), stop)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, d.Each(ctx, func(Series) error { return nil }), context.Canceled)
}
