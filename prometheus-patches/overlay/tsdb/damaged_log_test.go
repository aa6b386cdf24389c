// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/promslog"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/tsdb/wlog"
	"github.com/prometheus/prometheus/util/compression"
)

// Whatever is damaged, a start ends as upstream's does, in memory and on disk, and
// whatever the repair takes out of the log is in the directory, which can be read.
func TestARepairEndsAsUpstreamsAndLosesNothing(t *testing.T) {
	kept := map[string]int{}
	for seed := range int64(60) {
		g := newReplayGenerator(t, seed, filepath.Join(t.TempDir(), "made"))
		g.snapshot, g.oooWindow = false, 1000
		g.generate()
		log := []string{wlog.WblDirName, filepath.Join("wal", "checkpoint*")}[seed%2]
		files, err := filepath.Glob(filepath.Join(g.dir, log, "0*"))
		require.NoError(t, err)
		if len(files) == 0 {
			files, err = filepath.Glob(filepath.Join(g.dir, "wal", "0*"))
			require.NoError(t, err)
		}
		g.damageFile(files[g.rnd.Intn(len(files))])
		note := fmt.Sprintf("seed %d (%s)", seed, g.describe())
		off, on := copyOf(t, g.dir), copyOf(t, g.dir)
		want := g.open(off, false, nil)
		require.Empty(t, firstDifference(want, g.open(on, true, nil)), note)
		made, repaired := logFiles(t, g.dir), logFiles(t, off)
		require.Equal(t, repaired, logFiles(t, on), note)
		require.Empty(t, keptLogs(off), note)
		names := keptLogs(on)
		require.LessOrEqual(t, len(names), 1, note)
		if len(names) == 0 {
			requireNothingButTheLastRecordLost(t, made, repaired, note)
			continue
		}
		requireNothingLost(t, made, logFiles(t, names[0]), note)

		// What can be read is all but what upstream itself takes off the damaged segment.
		undamaged := copyOf(t, g.dir)
		require.NoError(t, os.RemoveAll(mmappedChunksDir(undamaged)))
		for name := range logFiles(t, names[0]) {
			segment, ok := strings.CutSuffix(name, ".damaged")
			if !ok {
				continue
			}
			kept[filepath.Base(filepath.Dir(segment))[:3]]++
			if !strings.Contains(segment, "checkpoint") { // Which upstream does not repair.
				require.NoError(t, os.WriteFile(filepath.Join(undamaged, segment), []byte(repaired[segment]), 0o666))
				require.Equal(t, readOnly(t, undamaged), readOnly(t, names[0]), note)
			}
		}
	}
	require.Greater(t, kept["wal"], 5)
	require.NotZero(t, kept["wbl"])
	require.NotZero(t, kept["che"])
}

// A start that is killed in its repair has kept everything before. The next start
// ends as upstream's own does, and takes nothing of it away.
func TestARepairThatIsKilledAtAnyInstantLosesNothing(t *testing.T) {
	const damaged = 2
	made := t.TempDir()
	last := writeSegments(t, made)
	damageSegment(t, made, damaged)
	want := logFiles(t, made)
	g := newReplayGenerator(t, 1, made)
	require.False(t, g.snapshot)

	segment := func(dir string, i int) string { return wlog.SegmentName(filepath.Join(dir, "wal"), i) }
	steps := []func(dir string) error{func(string) error { return nil }} // Those of the repair.
	for i := damaged + 1; i <= last; i++ {
		steps = append(steps, func(dir string) error { return os.Remove(segment(dir, i)) })
	}
	for _, written := range []int{0, 1, 5000, 10000} {
		steps = append(steps, func(dir string) error {
			_ = os.Rename(segment(dir, damaged), segment(dir, damaged)+".repair")
			return os.WriteFile(segment(dir, damaged), []byte(want["wal/00000002"])[:written], 0o666)
		})
	}
	for n := range steps {
		on, off := copyOf(t, made), copyOf(t, made)
		keeperOf(on, promslog.NewNopLogger()).keep(damageOf(t, on, damaged), 0)
		for _, step := range steps[:n+1] {
			require.NoError(t, step(on))
			require.NoError(t, step(off))
		}
		require.Empty(t, firstDifference(g.open(off, false, nil), g.open(on, true, nil)), "after step %d", n)
		names := keptLogs(on)
		require.NotEmpty(t, names)
		if n == 0 {
			require.Len(t, names, 1, "all of it was linked already")
		}
		requireNothingLost(t, want, logFiles(t, names[0]), fmt.Sprintf("after step %d", n))
	}
}

func TestWhatCannotBeKeptHoldsUpNoRepair(t *testing.T) {
	made := t.TempDir()
	writeSegments(t, made)
	damageSegment(t, made, 2)
	for name, hinder := range map[string]func(t *testing.T, dir string, d *damagedLogs){
		"the disk is nearly full": func(_ *testing.T, _ string, d *damagedLogs) {
			d.space = func(string) (uint64, uint64, error) { return 100_000, 4_000_000, nil }
		},
		"the repair would fill the disk": func(_ *testing.T, _ string, d *damagedLogs) {
			d.space = func(string) (uint64, uint64, error) { return 30_000, 40_000, nil }
		},
		"the log has what cannot be linked": func(t *testing.T, dir string, _ *damagedLogs) {
			require.NoError(t, os.Symlink(dir, filepath.Join(dir, "wal", "link")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := copyOf(t, made)
			var logged bytes.Buffer
			d := keeperOf(dir, slog.New(slog.NewTextHandler(&logged, nil)))
			hinder(t, dir, d)
			d.keep(damageOf(t, dir, 2), 0)
			require.Empty(t, keptLogs(dir))
			require.Contains(t, logged.String(), "of which nothing is kept")
			require.Equal(t, logFiles(t, made), logFiles(t, dir))
			unfinished, err := filepath.Glob(filepath.Join(dir, "wal-damaged*"))
			require.NoError(t, err)
			require.Empty(t, unfinished)
		})
	}
}

// As after most crashes: nobody can read what is not kept.
func TestWhatARepairRemovesIsKeptUnlessItIsATornRecordAtTheEnd(t *testing.T) {
	made := t.TempDir()
	last := writeSegments(t, made)
	name := wlog.SegmentName("wal", last)
	whole := strings.TrimRight(logFiles(t, made)[name], "\x00") // Closing it filled the page.
	for _, test := range []struct {
		what, text string
		kept       int
	}{
		{"a torn record", whole[:len(whole)-10], 0},
		{"a record with a wrong sum, the last one", whole[:len(whole)-10] + "x" + whole[len(whole)-9:], 0},
		{"a record with a wrong sum before the last one", whole[:len(whole)-600] + "x" + whole[len(whole)-599:], 1},
	} {
		t.Run(test.what, func(t *testing.T) {
			dir := copyOf(t, made)
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(test.text), 0o666))
			keeperOf(dir, promslog.NewNopLogger()).keep(damageOf(t, dir, last), 0)
			require.Len(t, keptLogs(dir), test.kept)
		})
	}
}

func TestTheOldestThatAreKeptGoFirst(t *testing.T) {
	dir := t.TempDir()
	d := keeperOf(dir, promslog.NewNopLogger())
	var all []string
	for i := range 6 {
		all = append(all, filepath.Join(dir, fmt.Sprintf("wal-damaged-20260102T03040%d.000Z", i)))
	}
	theirs := filepath.Join(dir, "wal-damaged-20200102T030405.000Z-for-later")
	for _, name := range append([]string{theirs, filepath.Join(dir, "wal")}, all...) {
		require.NoError(t, os.MkdirAll(name, 0o777))
		require.NoError(t, os.WriteFile(filepath.Join(name, "00000000"), make([]byte, 1000), 0o666))
	}
	d.tidy(0)
	require.Equal(t, all[2:], keptLogs(dir))
	require.EqualValues(t, 4000, d.size())

	free := uint64(100)
	d.space = func(string) (uint64, uint64, error) {
		free += 10 // That each one sets free.
		return free, 2200, nil
	}
	d.tidy(20)
	require.Equal(t, all[4:], keptLogs(dir))
	d.tidy(1000)
	require.Empty(t, keptLogs(dir))
	require.Zero(t, d.size())
	require.DirExists(t, theirs)
	require.DirExists(t, filepath.Join(dir, "wal"))
}

func TestAStartSaysWhatItKeeps(t *testing.T) {
	for _, sequential := range []bool{false, true} {
		t.Run(fmt.Sprint("replayed by upstream's code is ", sequential), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data[1]") // No pattern.
			writeSegments(t, dir)
			damageSegment(t, dir, 2)
			if sequential {
				require.NoError(t, os.WriteFile(filepath.Join(dir, replayMarker), nil, 0o666))
			}
			startThatKeeps(t, dir)
		})
	}
}

func startThatKeeps(t *testing.T, dir string) {
	unfinished := filepath.Join(dir, "wal-damaged-20260102T030405.678Z.tmp") // By a start that was killed.
	require.NoError(t, os.MkdirAll(filepath.Join(unfinished, "wal"), 0o777))
	var logged bytes.Buffer
	reg := prometheus.NewRegistry()
	opts := DefaultOptions()
	opts.ParallelWALReplay = true
	db, err := Open(dir, slog.New(slog.NewTextHandler(&logged, nil)), reg, opts, nil)
	require.NoError(t, err)
	names := keptLogs(dir)
	require.Len(t, names, 1)
	require.NoDirExists(t, unfinished)
	size := 0
	for _, text := range logFiles(t, names[0]) {
		size += len(text)
	}
	require.Contains(t, logged.String(), "dir="+names[0])
	require.Contains(t, logged.String(), fmt.Sprintf("kept_bytes=%d", size))
	require.Contains(t, logged.String(), "removed_from=1970-01-01T0")
	requireMetric := func(value int) {
		t.Helper()
		families, err := reg.Gather()
		require.NoError(t, err)
		i := slices.IndexFunc(families, func(f *dto.MetricFamily) bool {
			return f.GetName() == "prometheus_guard_wal_damaged_kept_bytes"
		})
		require.EqualValues(t, value, families[i].GetMetric()[0].GetGauge().GetValue())
	}
	requireMetric(size)
	require.NoError(t, os.RemoveAll(names[0]))
	requireMetric(0)
	require.NoError(t, db.Close())
}

func keeperOf(dir string, logger *slog.Logger) *damagedLogs {
	return &damagedLogs{dir: dir, logger: logger, space: diskSpace}
}

// keptLogs returns the directories that are kept, the oldest first.
func keptLogs(dir string) []string {
	return keeperOf(dir, promslog.NewNopLogger()).list()
}

// logFiles returns the files of both logs, by name.
func logFiles(t *testing.T, dir string) map[string]string {
	files := map[string]string{}
	for _, log := range []string{"wal", wlog.WblDirName} {
		err := filepath.WalkDir(filepath.Join(dir, log), func(path string, e fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) || err == nil && !e.Type().IsRegular() {
				return nil
			}
			require.NoError(t, err)
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			name, err := filepath.Rel(dir, path)
			files[name] = string(text)
			return err
		})
		require.NoError(t, err)
	}
	return files
}

func requireNothingLost(t *testing.T, made, kept map[string]string, note string) {
	t.Helper()
	for name, text := range made {
		if kept[name] != text {
			require.Equal(t, text, kept[name+".damaged"], "%s: %s", note, name)
		}
	}
}

// requireNothingButTheLastRecordLost holds that no segment but the last one with anything in
// it is another than it was.
func requireNothingButTheLastRecordLost(t *testing.T, made, repaired map[string]string, note string) {
	t.Helper()
	for name, text := range made {
		if repaired[name] == text {
			continue
		}
		for other, behind := range made {
			if filepath.Dir(other) == filepath.Dir(name) && other > name {
				require.Empty(t, behind, "%s: %s differs, %s was behind it", note, name, other)
			}
		}
	}
}

// writeSegments writes a WAL of many segments, and returns the number of the last one.
func writeSegments(t *testing.T, dir string) int {
	w, err := wlog.NewSize(promslog.NewNopLogger(), nil, filepath.Join(dir, "wal"), 32*1024, compression.None)
	require.NoError(t, err)
	var series []record.RefSeries
	for ref := range chunks.HeadSeriesRef(50) {
		series = append(series, record.RefSeries{Ref: ref + 1, Labels: labels.FromStrings("i", fmt.Sprint(ref))})
	}
	var enc record.Encoder
	require.NoError(t, w.Log(enc.Series(series, nil)))
	for i := range int64(500) {
		var samples []record.RefSample
		for _, s := range series {
			samples = append(samples, record.RefSample{Ref: s.Ref, T: i * 15_000, V: 1 / float64(i+int64(s.Ref))})
		}
		require.NoError(t, w.Log(enc.Samples(samples, nil)))
	}
	require.NoError(t, w.Close())
	_, last, err := wlog.Segments(filepath.Join(dir, "wal"))
	require.NoError(t, err)
	require.Greater(t, last, 4)
	return last
}

func damageSegment(t *testing.T, dir string, segment int) {
	name := wlog.SegmentName(filepath.Join(dir, "wal"), segment)
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	text[20_000] ^= 1
	require.NoError(t, os.WriteFile(name, text, 0o666))
}

// damageOf returns the error that the replay of a damaged segment ends with.
func damageOf(t *testing.T, dir string, segment int) error {
	s, err := wlog.OpenReadSegment(wlog.SegmentName(filepath.Join(dir, "wal"), segment))
	require.NoError(t, err)
	defer s.Close()
	r := wlog.NewReader(wlog.NewSegmentBufReader(s))
	for r.Next() {
	}
	require.Error(t, r.Err())
	return fmt.Errorf("read records: %w", r.Err())
}

// readOnly returns all samples that promtool finds.
func readOnly(t *testing.T, dir string) map[string][]string {
	blocks, err := filepath.Glob(filepath.Join(dir, "*", metaFilename))
	require.NoError(t, err)
	for _, meta := range blocks { // The generator writes no more of a block than this.
		require.NoError(t, os.RemoveAll(filepath.Dir(meta)))
	}
	db, err := OpenDBReadOnly(dir, t.TempDir(), promslog.NewNopLogger())
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	q, err := db.Querier(math.MinInt64, math.MaxInt64)
	require.NoError(t, err)
	defer q.Close()
	samples := map[string][]string{}
	set := q.Select(t.Context(), false, nil, labels.MustNewMatcher(labels.MatchRegexp, "any", ".*"))
	for set.Next() {
		name := set.At().Labels().String()
		for it := set.At().Iterator(nil); ; {
			switch it.Next() {
			case chunkenc.ValFloat:
				at, v := it.At()
				samples[name] = append(samples[name], fmt.Sprint(at, v))
				continue
			case chunkenc.ValHistogram:
				at, h := it.AtHistogram(nil)
				samples[name] = append(samples[name], fmt.Sprint(at, h))
				continue
			case chunkenc.ValFloatHistogram:
				at, h := it.AtFloatHistogram(nil)
				samples[name] = append(samples[name], fmt.Sprint(at, h))
				continue
			}
			require.NoError(t, it.Err())
			break
		}
	}
	require.NoError(t, set.Err())
	return samples
}
