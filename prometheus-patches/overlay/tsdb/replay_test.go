// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"maps"
	"math"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/promslog"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/index"
	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/tsdb/tombstones"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
	"github.com/prometheus/prometheus/tsdb/wlog"
	"github.com/prometheus/prometheus/util/compression"
)

// TestReplayEndsAsUpstreamDoes compares heads that were replayed from the same
// generated directory. PROMGUARD_REPLAY_SEEDS is how many, PROMGUARD_REPLAY_SEED the
// first one.
func TestReplayEndsAsUpstreamDoes(t *testing.T) {
	seeds, first := 200, 1
	if s := os.Getenv("PROMGUARD_REPLAY_SEEDS"); s != "" {
		n, err := strconv.Atoi(s)
		require.NoError(t, err)
		seeds = n
	}
	defer func(from int) { replaySurveyFrom = from }(replaySurveyFrom)
	replaySurveyFrom = 1
	if s := os.Getenv("PROMGUARD_REPLAY_SEED"); s != "" {
		n, err := strconv.Atoi(s)
		require.NoError(t, err)
		first = n
	}
	var (
		ended replayEnds
		next  atomic.Int64
		wg    sync.WaitGroup
	)
	next.Store(int64(first))
	for range 8 { // They wait for the disk more than they compute.
		wg.Go(func() {
			for seed := next.Add(1) - 1; seed < int64(first+seeds) && !t.Failed(); seed = next.Add(1) - 1 {
				replayBothWays(t, seed, &ended)
			}
		})
	}
	wg.Wait()
	t.Logf("%+v", &ended)
	if seeds >= 100 {
		require.Positive(t, ended.Parallel)
		require.Positive(t, ended.DamagedParallel)
		require.Positive(t, ended.Upstream)
		require.Positive(t, ended.Checkpoints)
		require.Positive(t, ended.Duplicates)
		require.Positive(t, ended.Surveyed)
	}
}

// replayEnds counts how replays ended, so that a generator that makes nothing of
// interest is noticed.
type replayEnds struct {
	mtx                                                                                             sync.Mutex
	Parallel, Upstream, Damaged, DamagedParallel, OtherErrs, Checkpoints, Duplicates, Surveyed, Cut int
}

func replayBothWays(t *testing.T, seed int64, ended *replayEnds) {
	root, err := os.MkdirTemp(t.TempDir(), "replay")
	require.NoError(t, err)
	defer os.RemoveAll(root)
	g := newReplayGenerator(t, seed, filepath.Join(root, "made"))
	g.generate()
	g.damage()

	dirs := []string{filepath.Join(root, "upstream"), filepath.Join(root, "parallel")}
	results := make([][]string, len(dirs))
	for i, dir := range dirs {
		require.NoError(t, os.CopyFS(dir, os.DirFS(g.dir)))
		results[i] = g.open(dir, i == 1, ended)
	}
	if diff := firstDifference(results[0], results[1]); diff != "" {
		t.Errorf("seed %d (%s): %s", seed, g.describe(), diff)
		return
	}
	if g.snapshot || g.hasWBL {
		return // The number of chunks depends on which of upstream's workers was first.
	}
	// What is on disk must be the same too, as the next start reads it.
	if g.writeOff {
		// But for m-mapped chunks of series that have left, which upstream's replay writes.
		// So both ways are tried once more.
		require.NoError(t, os.RemoveAll(dirs[0]))
		require.NoError(t, os.CopyFS(dirs[0], os.DirFS(dirs[1])))
	}
	for i, dir := range dirs {
		results[i] = g.open(dir, g.writeOff && i == 1, nil)
	}
	if diff := firstDifference(results[0], results[1]); diff != "" {
		t.Errorf("seed %d, opened again (%s): %s", seed, g.describe(), diff)
	}
}

func firstDifference(want, got []string) string {
	for i := range max(len(want), len(got)) {
		switch {
		case i >= len(want):
			return "too much: " + got[i]
		case i >= len(got):
			return "missing: " + want[i]
		case want[i] != got[i]:
			return fmt.Sprintf("want\n%s\ngot\n%s", want[i], got[i])
		}
	}
	return ""
}

// replayGenerator makes the directory of a server that was killed, from a seed.
type replayGenerator struct {
	t    *testing.T
	rnd  *rand.Rand
	dir  string
	seed int64

	// What the server is started with.
	compress     compression.Type
	concurrency  int
	samplesChunk int
	chunkRange   int64
	minValidTime int64
	st, xor2     bool
	exemplars    int64
	oooWindow    int64
	snapshot     bool
	isolationOff bool
	damaged      bool
	dense        bool // Series have references in a row, and are scraped together.

	now      int64
	nextRef  uint64
	lsets    []labels.Labels
	live     []chunks.HeadSeriesRef // With a series record.
	lsetOf   map[chunks.HeadSeriesRef]labels.Labels
	deleted  map[chunks.HeadSeriesRef]bool // In this segment, by labels or reference.
	wal      *wlog.WL
	segments int // Of the WAL; -1 while the checkpoint is written.
	hasWBL   bool
	writeOff bool // Some series are.
	did      []string
}

func newReplayGenerator(t *testing.T, seed int64, dir string) *replayGenerator {
	rnd := rand.New(rand.NewSource(seed))
	g := &replayGenerator{
		t: t, rnd: rnd, dir: dir, seed: seed,
		compress:     []compression.Type{compression.None, compression.Snappy, compression.Zstd}[rnd.Intn(3)],
		concurrency:  1 + rnd.Intn(5),
		samplesChunk: []int{4, 10, 120}[rnd.Intn(3)],
		chunkRange:   []int64{500, 5000, 1_000_000}[rnd.Intn(3)],
		minValidTime: math.MinInt64,
		st:           rnd.Intn(6) == 0,
		xor2:         rnd.Intn(6) == 0,
		exemplars:    []int64{0, 5, 100}[rnd.Intn(3)],
		oooWindow:    []int64{0, 1000}[rnd.Intn(2)],
		snapshot:     rnd.Intn(10) == 0,
		isolationOff: rnd.Intn(2) == 0,
		damaged:      rnd.Intn(3) == 0,
		dense:        rnd.Intn(2) == 0,
		now:          int64(rnd.Intn(3)-1) * 2000,
		nextRef:      1,
		lsetOf:       map[chunks.HeadSeriesRef]labels.Labels{},
		deleted:      map[chunks.HeadSeriesRef]bool{},
	}
	if rnd.Intn(3) == 0 {
		g.minValidTime = g.now + int64(rnd.Intn(2000))
	}
	if rnd.Intn(4) == 0 {
		g.nextRef = uint64(rnd.Intn(1 << 20))
	}
	for i := range 5 + rnd.Intn(60) {
		b := labels.NewScratchBuilder(0)
		b.Add("__name__", fmt.Sprintf("metric_%d", i%7))
		b.Add("instance", strings.Repeat("i", i%3)+strconv.Itoa(i%4))
		if i%5 != 0 {
			b.Add("le", strconv.Itoa(i))
		}
		if i%11 == 0 { // Of the lengths at which an encoding takes more bytes.
			b.Add("long", strings.Repeat("x", []int{127, 128, 254, 255, 300}[rnd.Intn(5)]))
		}
		b.Sort()
		g.lsets = append(g.lsets, b.Labels())
	}
	return g
}

func (g *replayGenerator) describe() string {
	return fmt.Sprintf("%s, concurrency %d, %d per chunk, range %d, min valid %d, st %v, xor2 %v, exemplars %d, snapshot %v: %s",
		g.compress, g.concurrency, g.samplesChunk, g.chunkRange, g.minValidTime, g.st, g.xor2, g.exemplars, g.snapshot, strings.Join(g.did, ", "))
}

func (g *replayGenerator) note(format string, args ...any) {
	g.did = append(g.did, fmt.Sprintf(format, args...))
}

func (g *replayGenerator) chance(n int) bool { return g.rnd.Intn(n) == 0 }

func (g *replayGenerator) generate() {
	t := g.t
	segment := 32 * 1024 * (1 + g.rnd.Intn(4))
	walDir := filepath.Join(g.dir, "wal")
	open := func(dir string) *wlog.WL {
		w, err := wlog.NewSize(promslog.NewNopLogger(), nil, dir, segment, g.compress)
		require.NoError(t, err)
		return w
	}
	first := 0
	g.segments = -1
	if g.chance(3) {
		first = 1 + g.rnd.Intn(3)
		g.wal = open(filepath.Join(walDir, fmt.Sprintf("checkpoint.%08d", first-1)))
		g.checkpoint()
		require.NoError(t, g.wal.Close())
		g.note("checkpoint %d", first-1)
		require.NoError(t, os.WriteFile(wlog.SegmentName(walDir, first), nil, 0o666))
	}
	g.wal, g.segments = open(walDir), 0
	steps := 5 + g.rnd.Intn(200)
	for range steps {
		g.step()
	}
	require.NoError(t, g.wal.Close())
	if g.writeOff {
		writeStaleBlock(t, g.dir)
	}
	g.headChunks()
	if g.chance(3) {
		g.wal = open(filepath.Join(g.dir, wlog.WblDirName))
		g.wbl()
		require.NoError(t, g.wal.Close())
		g.note("wbl")
		g.hasWBL = true
	}
}

// writeStaleBlock leaves as much of a block of ended series as a replay looks at.
func writeStaleBlock(t *testing.T, dir string) {
	t.Helper()
	meta := &BlockMeta{ULID: ulid.MustNew(1, nil), Version: metaVersion1}
	meta.Compaction.SetStaleSeries()
	dir = filepath.Join(dir, meta.ULID.String())
	require.NoError(t, os.MkdirAll(dir, 0o777))
	_, err := writeMetaFile(promslog.NewNopLogger(), dir, meta)
	require.NoError(t, err)
}

func (g *replayGenerator) log(rec []byte) {
	require.NoError(g.t, g.wal.Log(rec))
}

func (g *replayGenerator) encoder() *record.Encoder {
	return &record.Encoder{EnableSTStorage: g.st && !g.chance(3)}
}

// checkpoint writes what a checkpoint holds: all series, then some of the rest.
func (g *replayGenerator) checkpoint() {
	if g.chance(2) {
		g.log((&record.Encoder{}).MinValidTime(g.minValidTime, nil))
	}
	for range 1 + g.rnd.Intn(5) {
		g.seriesRecord()
	}
	for range g.rnd.Intn(40) {
		g.step()
	}
}

func (g *replayGenerator) step() {
	g.now += int64(g.rnd.Intn(60))
	switch n := g.rnd.Intn(100); {
	case n < 12:
		g.seriesRecord()
	case n < 60:
		g.log(g.encoder().Samples(g.samples(), nil))
	case n < 68:
		g.histograms()
	case n < 74:
		g.floatHistograms()
	case n < 80:
		g.exemplarRecord()
	case n < 85:
		g.metadataRecord()
	case n < 90:
		g.tombstoneRecord()
	case n < 92:
		g.log([]byte{200, 1, 2, 3}) // A type of a later release.
	case n < 93:
		g.log((&record.Encoder{}).MmapMarkers([]record.RefMmapMarker{{Ref: 1, MmapRef: 1}}, nil))
	case n < 94:
		g.log([]byte{byte(record.Samples)}) // No samples.
	case n < 95:
		g.log(nil)
	case n < 97:
		g.bigRecord()
	default:
		g.nextSegment()
	}
}

func (g *replayGenerator) nextSegment() {
	_, err := g.wal.NextSegmentSync()
	require.NoError(g.t, err)
	if g.segments >= 0 {
		clear(g.deleted)
		g.segments++
	}
}

// seriesRecord makes new series, some with the labels of others, and repeats old
// ones.
func (g *replayGenerator) seriesRecord() {
	var series []record.RefSeries
	for range 1 + g.rnd.Intn(8) {
		if len(g.live) > 0 && !g.damaged && g.chance(12) {
			// Logged again under the same reference. If damage takes the first record
			// away, a segment can have samples before it, and whether upstream knows
			// the series by then depends on how fast its workers are.
			ref := g.live[g.rnd.Intn(len(g.live))]
			if !g.deleted[ref] && g.lsetOf[ref].Len() > 0 {
				series = append(series, record.RefSeries{Ref: ref, Labels: g.lsetOf[ref]})
			}
			continue
		}
		lset := g.lsets[g.rnd.Intn(len(g.lsets))]
		if g.chance(3) {
			b := labels.NewBuilder(lset)
			b.Set("pod", strconv.Itoa(g.rnd.Intn(1000)))
			lset = b.Labels()
		}
		ref := chunks.HeadSeriesRef(g.nextRef)
		g.nextRef++
		if !g.dense {
			g.nextRef += uint64(g.rnd.Intn(3))
		}
		if g.chance(50) {
			g.nextRef += uint64(g.rnd.Intn(1 << 19))
		}
		g.live = append(g.live, ref)
		g.lsetOf[ref] = lset
		series = append(series, record.RefSeries{Ref: ref, Labels: lset})
	}
	g.log((&record.Encoder{}).Series(series, nil))
}

// ref returns a reference to write a record about: mostly one of a series,
// sometimes one that no series record is ever about.
func (g *replayGenerator) ref() chunks.HeadSeriesRef {
	if len(g.live) == 0 || g.chance(40) {
		return chunks.HeadSeriesRef(1<<22 + g.rnd.Intn(100))
	}
	return g.live[g.rnd.Intn(len(g.live))]
}

// settled is a reference that upstream does not treat by chance: what its router
// looks up while a worker may or may not have deleted the series.
func (g *replayGenerator) settled() (chunks.HeadSeriesRef, bool) {
	ref := g.ref()
	return ref, len(g.deleted) == 0
}

func (g *replayGenerator) time() int64 {
	switch {
	case g.chance(20):
		return g.now - int64(g.rnd.Intn(3000))
	default:
		return g.now + int64(g.rnd.Intn(20))
	}
}

func (g *replayGenerator) startTime() int64 {
	if !g.st || g.chance(3) {
		return 0
	}
	return g.now - int64(g.rnd.Intn(100))
}

func (g *replayGenerator) float() float64 {
	switch g.rnd.Intn(12) {
	case 0:
		return math.Float64frombits(value.StaleNaN)
	case 1:
		return math.Float64frombits(value.NormalNaN)
	case 2:
		return math.Inf(1)
	case 3:
		return g.rnd.NormFloat64()
	default:
		return float64(g.rnd.Intn(10))
	}
}

func (g *replayGenerator) samples() []record.RefSample {
	samples := make([]record.RefSample, 0, 100)
	n := 1 + g.rnd.Intn(100)
	if (g.dense || g.chance(2)) && len(g.live) > 0 {
		// A scrape: neighbours at one time.
		ts := g.time()
		from := g.rnd.Intn(len(g.live))
		if g.dense && g.chance(2) {
			from, n = 0, len(g.live)
		}
		for _, ref := range g.live[from:min(from+n, len(g.live))] {
			samples = append(samples, record.RefSample{Ref: ref, ST: g.startTime(), T: ts, V: g.float()})
		}
		return samples
	}
	for range n {
		samples = append(samples, record.RefSample{Ref: g.ref(), ST: g.startTime(), T: g.time(), V: g.float()})
	}
	return samples
}

func (g *replayGenerator) histograms() {
	var hs []record.RefHistogramSample
	custom := g.chance(3)
	for range 1 + g.rnd.Intn(10) {
		h := tsdbutil.GenerateTestHistogram(int64(g.rnd.Intn(20)))
		if custom {
			h = tsdbutil.GenerateTestCustomBucketsHistogram(int64(g.rnd.Intn(20)))
		} else if g.chance(4) {
			h = tsdbutil.GenerateTestGaugeHistogram(int64(g.rnd.Intn(20)))
		}
		if g.chance(8) {
			h = &histogram.Histogram{Sum: math.Float64frombits(value.StaleNaN)}
			if custom {
				h.Schema = histogram.CustomBucketsSchema
			}
		}
		hs = append(hs, record.RefHistogramSample{Ref: g.ref(), ST: g.startTime(), T: g.time(), H: h})
	}
	enc := g.encoder()
	if custom {
		g.log(enc.CustomBucketsHistogramSamples(hs, nil))
		return
	}
	rec, _ := enc.HistogramSamples(hs, nil)
	g.log(rec)
}

func (g *replayGenerator) floatHistograms() {
	var hs []record.RefFloatHistogramSample
	custom := g.chance(3)
	for range 1 + g.rnd.Intn(10) {
		h := tsdbutil.GenerateTestFloatHistogram(int64(g.rnd.Intn(20)))
		if custom {
			h = tsdbutil.GenerateTestCustomBucketsFloatHistogram(int64(g.rnd.Intn(20)))
		}
		if g.chance(8) {
			h = &histogram.FloatHistogram{Sum: math.Float64frombits(value.StaleNaN)}
			if custom {
				h.Schema = histogram.CustomBucketsSchema
			}
		}
		hs = append(hs, record.RefFloatHistogramSample{Ref: g.ref(), ST: g.startTime(), T: g.time(), FH: h})
	}
	enc := g.encoder()
	if custom {
		g.log(enc.CustomBucketsFloatHistogramSamples(hs, nil))
		return
	}
	rec, _ := enc.FloatHistogramSamples(hs, nil)
	g.log(rec)
}

func (g *replayGenerator) exemplarRecord() {
	var es []record.RefExemplar
	for range 1 + g.rnd.Intn(5) {
		if ref, ok := g.settled(); ok {
			es = append(es, record.RefExemplar{Ref: ref, T: g.time(), V: g.float(), Labels: labels.FromStrings("trace", strconv.Itoa(g.rnd.Intn(9)))})
		}
	}
	if len(es) > 0 {
		g.log((&record.Encoder{}).Exemplars(es, nil))
	}
}

func (g *replayGenerator) metadataRecord() {
	var ms []record.RefMetadata
	for range 1 + g.rnd.Intn(5) {
		if ref, ok := g.settled(); ok {
			ms = append(ms, record.RefMetadata{Ref: ref, Type: uint8(g.rnd.Intn(5)), Unit: "u" + strconv.Itoa(g.rnd.Intn(3)), Help: "help"})
		}
	}
	if len(ms) > 0 {
		g.log((&record.Encoder{}).Metadata(ms, nil))
	}
}

func (g *replayGenerator) tombstoneRecord() {
	ref, ok := g.settled()
	if !ok {
		return
	}
	stone := tombstones.Stone{Ref: storage.SeriesRef(ref), Intervals: tombstones.Intervals{{Mint: g.time(), Maxt: g.time() + int64(g.rnd.Intn(500))}}}
	if g.segments >= 0 && g.chance(3) {
		// The series is deleted. What upstream does in this segment with records
		// about it other than samples depends on how fast its workers are, so that
		// there are none. A checkpoint has no such segments.
		g.nextSegment()
		stone.Intervals = tombstones.Intervals{{Mint: math.MinInt64, Maxt: math.MaxInt64}}
		lset := g.lsetOf[ref]
		maps.DeleteFunc(g.lsetOf, func(_ chunks.HeadSeriesRef, other labels.Labels) bool {
			return labels.Equal(other, lset) // Not to be logged again.
		})
		g.deleted[ref], g.writeOff = true, true
	}
	g.log((&record.Encoder{}).Tombstones([]tombstones.Stone{stone}, nil))
}

// bigRecord spans pages.
func (g *replayGenerator) bigRecord() {
	var samples []record.RefSample
	for range 30 {
		samples = append(samples, g.samples()...)
	}
	g.log(g.encoder().Samples(samples, nil))
}

func (g *replayGenerator) wbl() {
	for range g.rnd.Intn(40) {
		switch {
		case g.chance(5):
			g.histograms()
		case g.chance(5): //nolint:gocritic // Each asks anew.
			g.log((&record.Encoder{}).MmapMarkers([]record.RefMmapMarker{{Ref: g.ref(), MmapRef: chunks.ChunkDiskMapperRef(g.rnd.Intn(1000))}}, nil))
		default:
			g.now -= int64(g.rnd.Intn(100))
			g.log(g.encoder().Samples(g.samples(), nil))
		}
	}
}

// headChunks writes chunks that an earlier process m-mapped.
func (g *replayGenerator) headChunks() {
	if g.chance(3) {
		return
	}
	mapper, err := chunks.NewChunkDiskMapper(nil, mmappedChunksDir(g.dir), chunkenc.NewPool(), chunks.DefaultWriteBufferSize, 0)
	require.NoError(g.t, err)
	last := map[chunks.HeadSeriesRef]int64{}
	n := 0
	for range g.rnd.Intn(150) {
		ref := g.ref()
		from, ok := last[ref]
		if !ok {
			from = g.now - int64(g.rnd.Intn(6000))
		}
		from += 1 + int64(g.rnd.Intn(200))
		chunk := chunkenc.NewXORChunk()
		app, err := chunk.Appender()
		require.NoError(g.t, err)
		to := from
		for i := range 1 + g.rnd.Intn(10) {
			to = from + int64(i)*10
			app.Append(0, to, float64(i))
		}
		ooo := g.chance(8)
		switch {
		case ooo:
			from -= 3000
			to -= 3000
		case g.chance(2000):
			last[ref] = from - 500 // Out of sequence.
		default:
			last[ref] = to
		}
		mapper.WriteChunk(ref, from, to, chunk, ooo, nil)
		n++
		if g.chance(30) {
			mapper.CutNewFile()
		}
	}
	require.NoError(g.t, mapper.Close())
	g.note("%d head chunks", n)
}

// damage does to a file what disks and kills do.
func (g *replayGenerator) damage() {
	if !g.damaged {
		return
	}
	pattern := filepath.Join(g.dir, "wal", "0*")
	switch {
	case g.chance(6):
		pattern = filepath.Join(g.dir, "wal", "checkpoint*", "0*")
	case g.chance(6): //nolint:gocritic // Each asks anew.
		pattern = filepath.Join(mmappedChunksDir(g.dir), "0*")
	case g.chance(8):
		pattern = filepath.Join(g.dir, wlog.WblDirName, "0*")
	}
	files, err := filepath.Glob(pattern)
	require.NoError(g.t, err)
	if len(files) == 0 {
		return
	}
	name := files[g.rnd.Intn(len(files))]
	if g.chance(2) {
		name = files[len(files)-1]
	}
	g.damageFile(name)
}

func (g *replayGenerator) damageFile(name string) {
	b, err := os.ReadFile(name)
	require.NoError(g.t, err)
	if len(b) == 0 {
		return
	}
	at := g.rnd.Intn(len(b))
	switch g.rnd.Intn(6) {
	case 0, 1:
		g.note("%s cut at %d of %d", filepath.Base(name), at, len(b))
		b = b[:at]
	case 2:
		g.note("%s bit flipped at %d", filepath.Base(name), at)
		b[at] ^= 1 << g.rnd.Intn(8)
	case 3:
		g.note("%s zeros from %d", filepath.Base(name), at)
		clear(b[at:min(len(b), at+g.rnd.Intn(5000))])
	case 4:
		if strings.Contains(name, "chunks_head") {
			return
		}
		// A record that is whole and cannot be decoded.
		g.note("%s has a malformed record", filepath.Base(name))
		rec := []byte{byte(1 + g.rnd.Intn(13)), 1, 2, 3, 4, 5, 0x80}
		b = b[:at/replayLogPageSize*replayLogPageSize]
		b = append(b, replayLogFull, 0, byte(len(rec)))
		b = binary.BigEndian.AppendUint32(b, crc32Of(rec))
		b = append(b, rec...)
	case 5:
		g.note("%s is missing", filepath.Base(name))
		require.NoError(g.t, os.Remove(name))
		return
	}
	require.NoError(g.t, os.WriteFile(name, b, 0o666))
}

// open replays the directory as tsdb.open does, repairs what has to be, and
// returns what can be seen of the head.
func (g *replayGenerator) open(dir string, parallel bool, ended *replayEnds) []string {
	t := g.t
	reg := prometheus.NewRegistry()
	var logged bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&logged, nil))
	defer func() { require.NotContains(t, logged.String(), "panic") }() // Upstream's code would hide it.
	opts := DefaultHeadOptions()
	opts.ChunkDirRoot = dir
	opts.ChunkRange = g.chunkRange
	opts.SamplesPerChunk = g.samplesChunk
	opts.StripeSize = 64
	opts.WALReplayConcurrency = g.concurrency
	opts.EnableExemplarStorage = g.exemplars > 0
	opts.MaxExemplars.Store(g.exemplars)
	opts.OutOfOrderTimeWindow.Store(g.oooWindow)
	opts.EnableSTStorage.Store(g.st)
	opts.EnableMemorySnapshotOnShutdown = g.snapshot
	opts.IsolationDisabled = g.isolationOff
	opts.ParallelWALReplay = parallel
	if g.xor2 || g.st {
		opts.FloatChunkEncoding.Store(uint32(chunkenc.EncXOR2))
	}
	wal, err := wlog.New(logger, nil, filepath.Join(dir, "wal"), g.compress)
	if err != nil {
		return []string{"wal: " + strings.ReplaceAll(err.Error(), dir, "")}
	}
	wbl, err := wlog.New(logger, nil, filepath.Join(dir, wlog.WblDirName), g.compress)
	require.NoError(t, err)
	h, err := NewHead(reg, logger, wal, wbl, opts, nil)
	if err != nil {
		require.NoError(t, wal.Close())
		require.NoError(t, wbl.Close())
		return []string{"new: " + strings.ReplaceAll(err.Error(), dir, "")}
	}
	initErr := h.Init(g.minValidTime)
	if parallel && ended != nil {
		ended.count(h, initErr, logged.String())
	}
	out := []string{fmt.Sprintf("init: %s", strings.ReplaceAll(fmt.Sprint(initErr), dir, ""))}
	if initErr != nil {
		if parallel {
			keeperOf(dir, logger).keep(initErr, h.MaxTime())
		}
		if e, ok := errors.AsType[*errLoadWbl](initErr); ok {
			err = wbl.Repair(e.err)
		} else {
			err = wal.Repair(initErr)
		}
		out = append(out, fmt.Sprintf("repair: %s", strings.ReplaceAll(fmt.Sprint(err), dir, "")))
	}
	out = append(out, headFingerprint(t, h)...)
	out = append(out, metricsFingerprint(t, reg, g.writeOff)...)
	require.NoError(t, h.Close())
	return out
}

func (e *replayEnds) count(h *Head, err error, logged string) {
	e.mtx.Lock()
	defer e.mtx.Unlock()
	if strings.Contains(logged, "have left the head since") && h.opts.ParallelWALReplay {
		e.Surveyed++
	}
	if strings.Contains(logged, errReplaySurvey.Error()) {
		e.Cut++
	}
	switch {
	case h.opts.ParallelWALReplay:
		e.Parallel++
	default:
		e.Upstream++
	}
	if err != nil {
		if strings.Contains(err.Error(), "corruption") {
			e.Damaged++
			if h.opts.ParallelWALReplay {
				e.DamagedParallel++ // Not from the start by upstream's code.
			}
		} else {
			e.OtherErrs++
		}
	}
	if d, _, err := wlog.LastCheckpoint(h.wal.Dir()); err == nil && d != "" {
		e.Checkpoints++
	}
	if len(h.walExpiries) > 0 {
		e.Duplicates++
	}
}

// chunkMetrics count chunks that are made and removed again in the replay. The parallel
// one makes none for series that leave.
var chunkMetrics = []string{
	"prometheus_tsdb_head_chunks_created_total", "prometheus_tsdb_head_chunks_removed_total", "prometheus_tsdb_head_chunks_storage_size_bytes",
}

// metricsFingerprint returns all metrics but those that measure time.
func metricsFingerprint(t *testing.T, reg *prometheus.Registry, leave bool) []string {
	families, err := reg.Gather()
	require.NoError(t, err)
	var out []string
	for _, f := range families {
		if leave && slices.Contains(chunkMetrics, f.GetName()) {
			continue
		}
		if f.GetName() == "prometheus_guard_wal_replay_progress_ratio" || strings.Contains(f.GetName(), "duration") || strings.Contains(f.GetName(), "_seconds") && !strings.Contains(f.GetName(), "exemplar") {
			continue
		}
		var b bytes.Buffer
		_, err := expfmt.MetricFamilyToText(&b, f)
		require.NoError(t, err)
		out = append(out, b.String())
	}
	return out
}

// headFingerprint returns all that can be seen of a head, and what the next
// append depends on. Where chunks are on disk is not part of it.
func headFingerprint(t *testing.T, h *Head) []string {
	out := []string{
		fmt.Sprintf("time %d..%d, ooo %d..%d, valid from %d", h.MinTime(), h.MaxTime(), h.MinOOOTime(), h.MaxOOOTime(), h.minValidTime.Load()),
		fmt.Sprintf("series %d, stale %d, histograms %d with %d buckets", h.NumSeries(), h.NumStaleSeries(), h.NumNativeHistogramSeries(), h.NumNativeHistogramBuckets()),
		fmt.Sprintf("last series id %d", h.lastSeriesID.Load()),
		fmt.Sprintf("replay status %+v", fmt.Sprint(h.stats.WALReplayStatus.Min, h.stats.WALReplayStatus.Max, h.stats.WALReplayStatus.Current)),
	}
	for _, ref := range slices.Sorted(maps.Keys(h.walExpiries)) {
		out = append(out, fmt.Sprintf("expiry of %d: %d", ref, h.walExpiries[ref]))
	}
	for _, ref := range slices.Sorted(maps.Keys(h.wblPinnedSeriesRefs)) {
		out = append(out, fmt.Sprintf("%d is pinned by the WBL", ref))
	}
	out = append(out, stripesFingerprint(t, h)...)
	out = append(out, postingsFingerprint(t, h)...)
	stones := map[storage.SeriesRef]string{}
	require.NoError(t, h.tombstones.Iter(func(ref storage.SeriesRef, itvs tombstones.Intervals) error {
		stones[ref] = fmt.Sprint(itvs)
		return nil
	}))
	for _, ref := range slices.Sorted(maps.Keys(stones)) {
		out = append(out, fmt.Sprintf("tombstones of %d: %s", ref, stones[ref]))
	}
	var exemplars []string // Of one series they are in order, the series are not.
	require.NoError(t, h.exemplars.IterateExemplars(func(lset labels.Labels, e exemplar.Exemplar) error {
		exemplars = append(exemplars, fmt.Sprintf("exemplar of %s: %s %d %x", lset, e.Labels, e.Ts, math.Float64bits(e.Value)))
		return nil
	}))
	slices.Sort(exemplars)
	return append(out, exemplars...)
}

func stripesFingerprint(t *testing.T, h *Head) []string {
	byRef := map[chunks.HeadSeriesRef]*memSeries{}
	hashed := 0
	for i := range h.series.size {
		for _, s := range h.series.series[i].all() {
			require.Equal(t, i, h.series.refStripe(s.ref))
			byRef[s.ref] = s
		}
		for _, s := range h.series.hashes[i].all() {
			require.Same(t, h.series.getByHash(s.lset.Hash(), s.labels()), s)
			hashed++
		}
		require.GreaterOrEqual(t, h.series.mmapReady[i].Load(), int32(0))
	}
	out := []string{fmt.Sprintf("%d series by hash", hashed)}
	for _, ref := range slices.Sorted(maps.Keys(byRef)) {
		require.Same(t, byRef[ref], h.series.getByID(ref))
		out = append(out, memSeriesFingerprint(t, h, ref, byRef[ref]))
	}
	return out
}

func memSeriesFingerprint(t *testing.T, h *Head, ref chunks.HeadSeriesRef, s *memSeries) string {
	var b strings.Builder
	fmt.Fprintf(&b, "series %d %d %s shard %d meta %+v next at %d state %x last %x first chunk %d txs %v appender %v", ref, s.ref, s.labels(), s.shardHash, metaOf(s),
		s.nextAt, s.state, math.Float64bits(s.lastValue), s.firstChunkID, s.txs != nil, s.appender() != nil)
	fmt.Fprintf(&b, " mm max %d head chunks %d exemplars %v until %d", s.mmMaxTime, s.headChunkCount.Load(), s.hasExemplar, s.lastExemplarTs)
	if s.lastHistogramValue != nil {
		fmt.Fprintf(&b, " histogram %s", s.lastHistogramValue)
	}
	if s.lastFloatHistogramValue != nil {
		fmt.Fprintf(&b, " float histogram %s", s.lastFloatHistogramValue)
	}
	mmapped := func(kind string, chks []*mmappedChunk) {
		for _, c := range chks {
			fmt.Fprintf(&b, "\n  %s %d..%d %d %s:", kind, c.minTime, c.maxTime, c.numSamples, c.encoding)
			chunk, err := h.chunkDiskMapper.Chunk(c.ref)
			require.NoError(t, err)
			chunkFingerprint(t, &b, chunk)
		}
	}
	mmapped("m-mapped", s.mmappedChunks)
	for _, c := range collectHeadChunks(s.headChunks, nil) {
		fmt.Fprintf(&b, "\n  head %d..%d %s:", c.minTime, c.maxTime, c.chunk.Encoding())
		chunkFingerprint(t, &b, c.chunk)
	}
	if s.ooo != nil {
		mmapped("ooo", s.ooo.oooMmappedChunks)
		if c := s.ooo.oooHeadChunk; c != nil {
			fmt.Fprintf(&b, "\n  ooo head %d..%d:", c.minTime, c.maxTime)
			for _, s := range c.chunk.samples {
				fmt.Fprintf(&b, " %d %d %x %v %v", s.st, s.t, math.Float64bits(s.f), s.h, s.fh)
			}
		}
	}
	return b.String()
}

func chunkFingerprint(t *testing.T, b *strings.Builder, chunk chunkenc.Chunk) {
	it := chunk.Iterator(nil)
	for typ := it.Next(); typ != chunkenc.ValNone; typ = it.Next() {
		fmt.Fprintf(b, " %d/%d", it.AtT(), it.AtST())
		switch typ {
		case chunkenc.ValFloat:
			_, v := it.At()
			fmt.Fprintf(b, ":%x", math.Float64bits(v))
		case chunkenc.ValHistogram:
			_, v := it.AtHistogram(nil)
			fmt.Fprintf(b, ":%s hint %d", v, v.CounterResetHint)
		case chunkenc.ValFloatHistogram:
			_, v := it.AtFloatHistogram(nil)
			fmt.Fprintf(b, ":%s hint %d", v, v.CounterResetHint)
		}
	}
	require.NoError(t, it.Err())
}

func postingsFingerprint(t *testing.T, h *Head) []string {
	var out []string
	lists := map[labels.Label]string{}
	require.NoError(t, h.postings.Iter(func(l labels.Label, p index.Postings) error {
		refs, err := index.ExpandPostings(p)
		lists[l] = fmt.Sprint(refs)
		return err
	}))
	for l, refs := range lists {
		out = append(out, fmt.Sprintf("postings of %q=%q: %s", l.Name, l.Value, refs))
	}
	for _, name := range h.postings.LabelNames() {
		values := h.postings.LabelValues(context.Background(), name, nil)
		slices.Sort(values)
		out = append(out, fmt.Sprintf("values of %q: %q", name, values))
	}
	slices.Sort(out)
	return out
}

func crc32Of(b []byte) uint32 { return crc32.Checksum(b, replayLogTable) }

// metaOf is the series' metadata, or nothing of it.
func metaOf(s *memSeries) metadata.Metadata {
	if metadata.IsZeroHandle(s.meta) {
		return metadata.Metadata{}
	}
	return s.meta.Value()
}
