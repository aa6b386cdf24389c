// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/promslog"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/tsdb/tombstones"
	"github.com/prometheus/prometheus/tsdb/wlog"
	"github.com/prometheus/prometheus/util/compression"
)

// writeLife logs what happens to series: "series 1 a" with a metric's name, "sample 1",
// "exemplar 1", "delete 1", and "leave 1".
func writeLife(t *testing.T, dir string, compress compression.Type, life string) {
	t.Helper()
	w, err := wlog.New(promslog.NewNopLogger(), nil, filepath.Join(dir, "wal"), compress)
	require.NoError(t, err)
	var enc record.Encoder
	for i, event := range strings.Split(life, ", ") {
		var what, name string
		var ref chunks.HeadSeriesRef
		_, _ = fmt.Sscan(event, &what, &ref, &name)
		stone := tombstones.Stone{Ref: storage.SeriesRef(ref), Intervals: tombstones.Intervals{{Mint: 1, Maxt: math.MaxInt64}}}
		switch what {
		case "series":
			lset := labels.FromStrings("__name__", name, "long", strings.Repeat(name, 200))
			require.NoError(t, w.Log(enc.Series([]record.RefSeries{{Ref: ref, Labels: lset}}, nil)))
		case "sample":
			require.NoError(t, w.Log(enc.Samples([]record.RefSample{{Ref: ref, T: int64(i), V: 1}}, nil)))
		case "exemplar":
			require.NoError(t, w.Log(enc.Exemplars([]record.RefExemplar{{Ref: ref, T: int64(i), V: 1, Labels: labels.FromStrings("id", "x")}}, nil)))
		case "leave":
			stone.Intervals[0].Mint = math.MinInt64
			fallthrough
		case "delete":
			require.NoError(t, w.Log(enc.Tombstones([]tombstones.Stone{stone}, nil)))
		default:
			t.Fatal(event)
		}
	}
	require.NoError(t, w.Close())
	writeStaleBlock(t, dir)
}

// surveyed returns the references of the series that the survey of a directory finds.
func surveyed(t *testing.T, dir string) (refs []chunks.HeadSeriesRef) {
	t.Helper()
	opts := DefaultHeadOptions()
	opts.ChunkDirRoot = dir
	opts.MaxExemplars.Store(10)
	r := &walReplay{
		h: &Head{logger: promslog.NewNopLogger(), opts: opts}, refs: newReplayRefs(1), decoders: 2,
		oooMmapped: map[chunks.HeadSeriesRef][]*mmappedChunk{70: {{}}},
		units:      []*replayUnit{{files: []string{wlog.SegmentName(filepath.Join(dir, "wal"), 0)}}},
	}
	r.survey()
	for _, p := range r.refs.pages {
		for i := range replayPageRefs {
			if r.refs.leaver(p.ref(i)) != nil {
				refs = append(refs, p.ref(i))
			}
		}
	}
	return slices.Sorted(slices.Values(refs))
}

func TestTheSurveyFindsSeriesThatAreMadeOnceAndLeave(t *testing.T) {
	defer func(from int) { replaySurveyFrom = from }(replaySurveyFrom)
	replaySurveyFrom = 1
	type refs = []chunks.HeadSeriesRef
	for _, tc := range []struct {
		what, life string
		leave      refs
	}{
		{"it stays", "series 1 a, sample 1", nil},
		{"it leaves", "series 1 a, sample 1, leave 1", refs{1}},
		{"others stay", "series 1 a, series 2 b, series 300 c, leave 300, leave 1", refs{1, 300}},
		{"it comes back", "series 1 a, leave 1, series 2 a, sample 2", refs{1}},
		{"it comes back and leaves again", "series 1 a, leave 1, series 2 a, leave 2", refs{1, 2}},
		{"it comes back under the same reference", "series 1 a, leave 1, series 1 a", nil},
		{"it gets a second reference", "series 1 a, series 2 a, leave 2", nil},
		{"it gets a second reference, which leaves later", "series 1 a, series 2 a, leave 1, leave 2", nil},
		{"it is logged again", "series 1 a, series 1 a, leave 1", nil},
		{"its reference is that of another, too", "series 1 a, series 1 b, leave 1", nil},
		{"it has an exemplar, which stays", "series 1 a, exemplar 1, series 2 b, leave 1, leave 2", refs{2}},
		{"a part of it is deleted", "series 1 a, delete 1, sample 1", nil},
		{"it is written off before it is there", "leave 1, series 1 a", nil},
		{"it is written off twice", "series 1 a, leave 1, leave 1", refs{1}},
		{"nothing says what it is", "sample 1, leave 1", nil},
		{"it has chunks out of order", "series 70 a, leave 70", nil},
	} {
		for _, compress := range compression.Types() {
			t.Run(tc.what+"/"+compress, func(t *testing.T) {
				dir := t.TempDir()
				writeLife(t, dir, compress, tc.life)
				require.Equal(t, tc.leave, surveyed(t, dir))
			})
		}
	}
}

func TestTheSurveyIsOnlyOfLogsThatBlocksSaySeriesLeft(t *testing.T) {
	defer func(from int) { replaySurveyFrom = from }(replaySurveyFrom)
	dir := t.TempDir()
	writeLife(t, dir, compression.Snappy, "series 1 a, leave 1, series 2 b, leave 2")
	replaySurveyFrom = 3
	require.Empty(t, surveyed(t, dir), "they are too few")
	replaySurveyFrom = 2
	require.Len(t, surveyed(t, dir), 2)
	meta, err := filepath.Glob(filepath.Join(dir, "*", metaFilename))
	require.NoError(t, err)
	require.Len(t, meta, 1)
	require.NoError(t, os.Remove(meta[0]))
	require.Empty(t, surveyed(t, dir), "no block says so")
}

// A record that the replay stops at, and the survey does not, must not take away the
// series that would have left behind it.
func TestALogThatEndsBeforeSeriesLeaveHasThem(t *testing.T) {
	defer func(from int) { replaySurveyFrom = from }(replaySurveyFrom)
	replaySurveyFrom = 1
	dir := t.TempDir()
	writeLife(t, dir, compression.None, "series 1 a, sample 1, sample 7, leave 1")
	name := wlog.SegmentName(filepath.Join(dir, "wal"), 0)
	log, err := os.ReadFile(name)
	require.NoError(t, err)
	// The value of the second sample: one byte before the header of the last record.
	at := bytes.Index(log, []byte{byte(record.Tombstones), 0, 0, 0, 0, 0, 0, 0, 1})
	require.Positive(t, at)
	log[at-replayLogHeaderSize-1] ^= 1
	require.NoError(t, os.WriteFile(name, log, 0o666))
	require.Equal(t, []chunks.HeadSeriesRef{1}, surveyed(t, dir))

	wal, err := wlog.New(promslog.NewNopLogger(), nil, filepath.Join(dir, "wal"), compression.None)
	require.NoError(t, err)
	opts := DefaultHeadOptions()
	opts.ChunkDirRoot = dir
	opts.ParallelWALReplay = true
	h, err := NewHead(prometheus.NewRegistry(), promslog.NewNopLogger(), wal, nil, opts, nil)
	require.NoError(t, err)
	defer h.Close()
	require.ErrorContains(t, h.Init(math.MinInt64), "corruption")
	require.EqualValues(t, 1, h.NumSeries())
	require.EqualValues(t, 1, h.MaxTime())
}
