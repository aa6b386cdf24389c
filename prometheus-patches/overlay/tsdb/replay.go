// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/index"
	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/tsdb/tombstones"
	"github.com/prometheus/prometheus/tsdb/wlog"
)

// A walReplay fills a fresh head from its write-ahead log as upstream's loadWAL
// does, with less handing over between goroutines:
//
//	frame -> split (several) -> sequence -> route (several) -> apply (several)
//
// The framer cuts the log into batches between records. Splitting checks,
// decompresses and decodes everything but samples. The sequencer, alone and in
// the order of the log, creates series and learns of duplicates and deletions.
// Only then are the batch's samples decoded: those that m-mapped chunks hold
// already are dropped on the spot, the rest goes to the applier that owns the
// series, in the order of the log. All of a batch goes with one send to each.
//
// Nothing of the head is touched before publish, but for new head chunk files.
// So that whenever anything is odd, discard leaves the head as it was and upstream's
// code replays everything from the start.
type walReplay struct {
	h            *Head
	minValidTime int64
	snapshot     bool // There is one that is not loaded.
	syms         *labels.SymbolTable
	refs         *replayRefs
	decoders     int

	oooMmapped    map[chunks.HeadSeriesRef][]*mmappedChunk
	lastMmapRef   chunks.ChunkDiskMapperRef
	multiRef      map[chunks.HeadSeriesRef]chunks.HeadSeriesRef // When it is published.
	lastChunkFile int                                           // Number of the last head chunk file before the replay.

	gauge    prometheus.Collector
	progress *replayProgress // Lives on when the rest of the replay is garbage.
	units    []*replayUnit
	free     chan *replayBatch // As many batches as may be in flight.
	inFlight atomic.Int64      // Bytes of the records of those that are.
	toSplit  chan *replayBatch
	ordered  chan *replayBatch
	toRoute  chan *replayBatch
	spare    chan *memSeries // That were made for what turned out to be duplicates.
	appliers []*replayApplier
	seq      *replaySequencer
	index    *replayIndexer
	replayed *replayedFields

	created atomic.Int64 // Series that were not deleted.
	stopped atomic.Bool  // Nothing more is to be read.
	broken  atomic.Bool  // Nothing more is to be done.
	errOnce sync.Once
	err     error // Why upstream has to replay. Read it when all goroutines are done.
}

// errOddReplay says that the log holds what this replay leaves to upstream.
var errOddReplay = errors.New("the log has something that is left to the sequential replay")

// errReplaySurvey says that the replay ended before what the survey had seen.
var errReplaySurvey = errors.New("the log ends before series have left that it was searched for")

// Most goroutines of a kind. More do not help: framing and sequencing are
// sequential, and each batch costs memory.
const replayMaxGoroutines = 16

// replayInFlightBytes is from how many bytes of decompressed log in flight on no
// more are read: only when records are much longer than batches.
const replayInFlightBytes = 16 << 20

// replayUnit is what upstream replays with one call of loadWAL: the checkpoint
// or a segment.
type replayUnit struct {
	checkpoint bool
	segment    int
	files      []string
	records    uint64 // That the sequencer has seen.
	done       bool   // All of them.
	unknown    replayUnknown
}

// replayUnknown counts what referred to series that are not there.
type replayUnknown struct {
	mtx                                               sync.Mutex
	refs                                              map[chunks.HeadSeriesRef]struct{}
	samples, exemplars, histograms, metadata, deleted uint64
}

func (u *replayUnknown) addTo(n *uint64, ref chunks.HeadSeriesRef) {
	u.mtx.Lock()
	defer u.mtx.Unlock()
	if u.refs == nil {
		u.refs = map[chunks.HeadSeriesRef]struct{}{}
	}
	u.refs[ref] = struct{}{}
	*n++
}

func (u *replayUnknown) add(ref chunks.HeadSeriesRef, kind uint8) {
	switch kind {
	case replayHistogram, replayFloatHistogram:
		u.addTo(&u.histograms, ref)
	default:
		u.addTo(&u.samples, ref)
	}
}

// replayBatch is some records of one unit, whole ones. Its buffers are used
// again for later batches.
type replayBatch struct {
	unit       *replayUnit
	kept       int // Bytes of a buffer that are kept.
	raw        []byte
	base       int64 // Position of raw in its file.
	size       int   // Of the records when they are decompressed, about.
	read       int   // Bytes that were read for it.
	lastOfUnit bool

	blocks  [][]byte // For what is joined or decompressed.
	block   int      // The one in use,
	blockAt int      // and how much of it.

	records   []replayRecord
	series    []replaySeries
	stones    []tombstones.Stone
	exemplars []record.RefExemplar
	metadata  []record.RefMetadata
	stop      bool  // The log cannot be read on after the records.
	err       error // They cannot be decoded.
	split     chan struct{}

	first     uint64 // Number of the first record.
	events    []replayBatchEvent
	created   []*memSeries
	exemplify []replayExemplar
	shards    []replayShard
	routed    chan struct{}
	left      atomic.Int32 // Appliers that still need it, and the indexer.
}

// replayBatchEvent is to be applied before the samples of its record.
type replayBatchEvent struct {
	record uint64
	kind   uint8
	extra  replayExtra
}

// replayKeptBytes is how much all batches together keep of each of their
// buffers. What long records need beyond that is given back.
const replayKeptBytes = 24 << 20

// emptied returns s without elements, for later use if it takes no more bytes
// than kept.
func emptied[T any](s []T, kept int) []T {
	var zero T
	if cap(s)*int(unsafe.Sizeof(zero)) > kept {
		return nil
	}
	clear(s)
	return s[:0]
}

// reset takes everything out of a batch that nobody needs any more.
func (b *replayBatch) reset() {
	kept := b.kept
	b.raw = emptied(b.raw, kept)
	b.records, b.series, b.stones = emptied(b.records, kept), emptied(b.series, kept), emptied(b.stones, kept)
	b.exemplars, b.metadata = emptied(b.exemplars, kept), emptied(b.metadata, kept)
	b.events, b.created, b.exemplify = emptied(b.events, kept), emptied(b.created, kept), emptied(b.exemplify, kept)
	for i := range b.shards {
		s := &b.shards[i]
		s.runs, s.extras = emptied(s.runs, kept/len(b.shards)), emptied(s.extras, kept/len(b.shards))
	}
	for i, block := range b.blocks {
		if kept -= len(block); kept < 0 {
			clear(b.blocks[i:])
			b.blocks = b.blocks[:i]
			break
		}
	}
	b.block, b.blockAt = 0, 0
	b.stop, b.err = false, nil
}

// begin makes the batch ready for those who wait for it.
func (b *replayBatch) begin() {
	b.split, b.routed = make(chan struct{}), make(chan struct{})
	b.left.Store(int32(len(b.shards)) + 1)
}

const replayBlockBytes = 256 << 10

// alloc returns bytes that are the batch's own until it is used again.
func (b *replayBatch) alloc(n, size int) []byte {
	for {
		if b.block == len(b.blocks) {
			b.blocks = append(b.blocks, make([]byte, max(size, replayBlockBytes)))
		}
		block := b.blocks[b.block]
		if size <= len(block)-b.blockAt {
			p := block[b.blockAt : b.blockAt+n : b.blockAt+size]
			b.blockAt += size
			return p
		}
		if b.blockAt == 0 { // Too small even when empty.
			b.blocks[b.block] = make([]byte, size)
			continue
		}
		b.block, b.blockAt = b.block+1, 0
	}
}

// newWALReplay returns nil, and takes the option back, if upstream's code has to
// replay: it was asked for, a chunk snapshot is faster, someone wants to hear of
// each series, or the last replay was killed.
func (h *Head) newWALReplay() (r *walReplay) {
	defer func() { h.opts.ParallelWALReplay = r != nil }()
	_, noCallback := h.opts.SeriesCallback.(*noopSeriesLifecycleCallback)
	if !h.opts.ParallelWALReplay || !noCallback || h.wal == nil {
		return nil
	}
	snapshot := h.findSnapshot()
	if snapshot == replayUsedSnapshot || h.markReplay() {
		return nil
	}
	// More goroutines than processors only cost memory.
	procs := max(1, min(h.opts.WALReplayConcurrency, runtime.GOMAXPROCS(0), runtime.NumCPU(), replayMaxGoroutines))
	r = &walReplay{
		h:            h,
		minValidTime: h.minValidTime.Load(),
		syms:         labels.NewSymbolTable(),
		refs:         newReplayRefs(procs),
		decoders:     procs,
		oooMmapped:   map[chunks.HeadSeriesRef][]*mmappedChunk{},
		progress:     &replayProgress{},
		replayed:     newReplayedFields(),
		snapshot:     snapshot == replaySlowerSnapshot,
	}
	start := time.Now()
	if err := r.loadMmappedChunks(); err != nil {
		h.logger.Info("On-disk memory mappable chunks and the WAL are replayed sequentially", "reason", err)
		r.end()
		return nil
	}
	h.logger.Info("On-disk memory mappable chunks replay completed", "duration", time.Since(start).String())
	if r.snapshot {
		h.logger.Info("The chunk snapshot is not loaded, as replaying the log is faster")
	}
	return r
}

// load replays the checkpoint, if there is one, and the segments. If it reports
// false, the head is as it was before and upstream's code has to replay.
// Otherwise the error is the one that upstream's code would have returned.
func (r *walReplay) load(checkpointDir string, startFrom, endAt int) (ok bool, err error) {
	if seqs := r.h.chunkDiskMapper.FileSequences(); len(seqs) > 0 {
		r.lastChunkFile = seqs[len(seqs)-1]
	}
	if err := r.plan(checkpointDir, startFrom, endAt); err != nil {
		return false, r.discard(err)
	}
	r.guard(r.survey)
	if err := r.startProgress(); err != nil {
		return false, r.discard(err)
	}
	r.run()
	r.progress.took.Store(int64(time.Since(r.progress.start)))
	if r.err == nil && r.seq.leaving > 0 {
		r.err = errReplaySurvey
	}
	if r.err != nil {
		return false, r.discard(r.err)
	}
	for _, u := range r.units {
		if u.done {
			continue
		}
		if err = r.canonicalError(u); err == nil || r.snapshot { // Which may have what was in the log.
			return false, r.discard(errReplayLog)
		}
		break
	}
	if err := r.publish(); err != nil {
		return false, r.discard(err)
	}
	r.progress.finish()
	return true, err
}

func (r *walReplay) plan(checkpointDir string, startFrom, endAt int) error {
	dir := r.h.wal.Dir()
	if checkpointDir != "" {
		u := &replayUnit{checkpoint: true, segment: startFrom}
		first, last, err := wlog.Segments(checkpointDir)
		if err != nil {
			return err
		}
		for i := max(first, 0); i <= last; i++ {
			u.files = append(u.files, wlog.SegmentName(checkpointDir, i))
		}
		if len(u.files) == 0 {
			return errOddReplay
		}
		r.units = append(r.units, u)
		startFrom++
	}
	for i := startFrom; i <= endAt; i++ {
		if i < 0 {
			return errOddReplay
		}
		r.units = append(r.units, &replayUnit{segment: i, files: []string{wlog.SegmentName(dir, i)}})
	}
	return nil
}

// fail makes all goroutines come to an end without doing more.
func (r *walReplay) fail(err error) {
	r.errOnce.Do(func() {
		r.err = err
		r.broken.Store(true)
		r.stopped.Store(true)
	})
}

// run returns when all goroutines are done.
func (r *walReplay) run() {
	inFlight := 2*r.decoders + 2
	r.free = make(chan *replayBatch, inFlight)
	for range inFlight {
		r.free <- &replayBatch{kept: replayKeptBytes / inFlight, shards: make([]replayShard, r.refs.shards)}
	}
	r.toSplit = make(chan *replayBatch, inFlight)
	r.ordered = make(chan *replayBatch, inFlight)
	r.toRoute = make(chan *replayBatch, inFlight)
	r.spare = make(chan *memSeries, 1<<12)
	r.seq = newReplaySequencer(r)
	r.index = &replayIndexer{r: r, in: make(chan *replayBatch, inFlight), postings: index.NewPostingsBuilder()}
	r.index.init()
	for range r.refs.shards {
		r.appliers = append(r.appliers, newReplayApplier(r, len(r.appliers), inFlight))
	}

	done := make(chan struct{})
	var logging sync.WaitGroup
	logging.Go(func() { r.logProgress(done) })
	defer logging.Wait()
	defer close(done)

	var wg sync.WaitGroup
	wg.Go(func() { r.guard(r.frame) })
	wg.Go(r.sequence)
	wg.Go(r.index.run)
	for range r.decoders {
		wg.Go(r.decode)
	}
	for _, a := range r.appliers {
		wg.Go(a.run)
	}
	wg.Wait()
	r.free, r.toSplit, r.ordered, r.toRoute, r.spare = nil, nil, nil, nil, nil
}

// guard turns a panic into a failure of this replay: upstream's code has to be
// able to try.
func (r *walReplay) guard(f func()) {
	defer func() {
		if p := recover(); p != nil {
			r.fail(fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
		}
	}()
	f()
}

// decode splits and routes batches until there are no more.
func (r *walReplay) decode() {
	d := newReplayDecoder(r)
	toSplit, toRoute := r.toSplit, r.toRoute
	for toSplit != nil || toRoute != nil {
		select {
		case b, ok := <-toRoute:
			if !ok {
				toRoute = nil
				continue
			}
			r.guard(func() {
				if r.broken.Load() {
					return
				}
				if err := d.route(b); err != nil {
					r.fail(err)
				}
			})
			close(b.routed)
		case b, ok := <-toSplit:
			if !ok {
				toSplit = nil
				continue
			}
			r.guard(func() { d.split(b) })
			close(b.split)
		}
	}
}

// release gives a batch back when the last of those who need it has done so.
func (r *walReplay) release(b *replayBatch) {
	if b.left.Add(-1) == 0 {
		r.inFlight.Add(-int64(b.size))
		b.reset()
		r.free <- b
	}
}

// nextBatch waits for a batch to read into.
func (r *walReplay) nextBatch() *replayBatch {
	var idle []*replayBatch
	for len(idle) == 0 || r.inFlight.Load() > replayInFlightBytes {
		idle = append(idle, <-r.free)
	}
	for _, b := range idle[1:] {
		r.free <- b
	}
	return idle[0]
}

// canonicalError reads the unit as upstream does and returns upstream's error.
// Nil means that upstream finds nothing wrong, or stops somewhere else.
func (*walReplay) canonicalError(u *replayUnit) error {
	var rd *wlog.Reader
	if u.checkpoint {
		sr, err := wlog.NewSegmentsReader(filepath.Dir(u.files[0]))
		if err != nil {
			return nil
		}
		defer sr.Close()
		rd = wlog.NewReader(sr)
	} else {
		s, err := wlog.OpenReadSegment(u.files[0])
		if err != nil {
			return nil
		}
		sr := wlog.NewSegmentBufReader(s)
		defer sr.Close()
		rd = wlog.NewReader(sr)
	}
	var records uint64
	for rd.Next() {
		records++
	}
	err := rd.Err()
	if err == nil || records != u.records {
		return nil
	}
	err = fmt.Errorf("read records: %w", err)
	if u.checkpoint {
		err = fmt.Errorf("backfill checkpoint: %w", err)
	}
	return err
}

// discard leaves the head as it was before the replay.
func (r *walReplay) discard(reason error) error {
	r.h.logger.Warn("The WAL is replayed again, sequentially", "reason", reason)
	r.h.setProgress(nil)
	if r.gauge != nil {
		r.h.reg.Unregister(r.gauge)
	}
	err := r.h.chunkDiskMapper.DiscardWritten(r.lastChunkFile)
	if err != nil {
		// Close must not take a snapshot of the empty head in place of the WAL.
		r.h.opts.EnableMemorySnapshotOnShutdown = false
	}
	return err
}

// encodesXOR reports whether new chunks of floats are plain XOR chunks.
func (r *walReplay) encodesXOR() bool {
	return chunkenc.ValFloat.ChunkEncoding(r.h.opts.UseXOR2FloatEncoding(), false) == chunkenc.EncXOR && !r.h.opts.EnableSTStorage.Load()
}
