// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"math"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// Samples are parked at their page until there are enough of them that a series
// takes several at once: fetching a series, its chunk and its appender from
// memory costs more than appending to them.
const (
	replayBlockSamples = 84              // A block takes 2 KiB.
	replayPageSamples  = 8 * 84          // Of a page that is applied at once.
	replayParkedBlocks = 48 << 20 / 2048 // Over all appliers.
	replayParkedExtras = 20_000          // Of one applier.
)

type replayBlock struct {
	next    *replayBlock
	n       int
	samples [replayBlockSamples]replaySample
}

// replayParked is the samples that wait at a page, in the order of the log.
type replayParked struct {
	first, last *replayBlock
	n           int
}

// replayCounts is what replayed records do to the head as a whole. The head gets
// it when all is done.
type replayCounts struct {
	chunksCreated, chunksRemoved, chunks           int64
	staleSeries, histogramSeries, histogramBuckets int64
	overlapping                                    int64
	minTime, maxTime, minOOOTime, maxOOOTime       int64
	deleted                                        map[storage.SeriesRef]struct{}
	affected                                       map[labels.Label]struct{}
	expiries                                       map[chunks.HeadSeriesRef]int64
}

func newReplayCounts() replayCounts {
	return replayCounts{
		minTime: math.MaxInt64, maxTime: math.MinInt64,
		minOOOTime: math.MaxInt64, maxOOOTime: math.MinInt64,
	}
}

// replayApplier appends samples to the series of the pages that it owns. Its
// rules are those of walSubsetProcessor.
type replayApplier struct {
	r      *walReplay
	number int
	in     chan *replayBatch
	opts   chunkOpts
	xor    bool // Floats go into plain XOR chunks.
	xorRun chunkenc.XORRun

	counts replayCounts
	dirty  []*replayPage // With parked samples; some may have none any more.
	extras []replayExtra // Of parked samples.
	free   *replayBlock
	blocks int // That are not free.
	budget int

	sorted []replaySample
}

func newReplayApplier(r *walReplay, number, inFlight int) *replayApplier {
	h := r.h
	return &replayApplier{
		r:      r,
		number: number,
		in:     make(chan *replayBatch, inFlight),
		opts: chunkOpts{
			chunkDiskMapper: h.chunkDiskMapper,
			chunkRange:      h.chunkRange.Load(),
			samplesPerChunk: h.opts.SamplesPerChunk,
			useXOR2:         h.opts.UseXOR2FloatEncoding(),
			useHistogramST:  h.opts.EnableHistogramSTEncoding.Load(),
			storeST:         h.opts.EnableSTStorage.Load(),
		},
		xor:    r.encodesXOR(),
		counts: newReplayCounts(),
		budget: replayParkedBlocks / r.refs.shards,
	}
}

func (a *replayApplier) run() {
	for b := range a.in {
		<-b.routed
		if !a.r.broken.Load() {
			a.r.guard(func() { a.take(&b.shards[a.number]) })
		}
		a.r.release(b)
	}
	if !a.r.broken.Load() {
		a.r.guard(a.flush)
	}
	a.dirty, a.free, a.sorted, a.extras = nil, nil, nil, nil
}

// take parks the samples of a batch.
func (a *replayApplier) take(s *replayShard) {
	base := uint64(len(a.extras))
	a.extras = append(a.extras, s.extras...)
	for i, run := range s.runs {
		to := len(s.samples)
		if i+1 < len(s.runs) {
			to = s.runs[i+1].from
		}
		a.park(run.page, s.samples[run.from:to], base)
	}
	if a.blocks > a.budget || len(a.extras) > replayParkedExtras {
		a.flush()
	}
}

func (a *replayApplier) park(p *replayPage, samples []replaySample, base uint64) {
	parked := &p.parked
	if parked.n == 0 {
		a.dirty = append(a.dirty, p)
	}
	parked.n += len(samples)
	for len(samples) > 0 {
		if parked.last == nil || parked.last.n == replayBlockSamples {
			block := a.block()
			if parked.last == nil {
				parked.first = block
			} else {
				parked.last.next = block
			}
			parked.last = block
		}
		block := parked.last
		n := copy(block.samples[block.n:], samples)
		for i := block.n; base > 0 && i < block.n+n; i++ {
			if block.samples[i].kind != replayFloat {
				block.samples[i].v += base
			}
		}
		block.n += n
		samples = samples[n:]
	}
	if parked.n >= replayPageSamples {
		a.apply(p)
	}
}

func (a *replayApplier) block() *replayBlock {
	a.blocks++
	block := a.free
	if block == nil {
		return &replayBlock{}
	}
	a.free = block.next
	block.next, block.n = nil, 0
	return block
}

func (a *replayApplier) flush() {
	for _, p := range a.dirty {
		a.apply(p)
	}
	clear(a.dirty)
	clear(a.extras)
	a.dirty, a.extras = a.dirty[:0], a.extras[:0]
}

// apply applies what is parked at a page, series by series.
func (a *replayApplier) apply(p *replayPage) {
	if p.parked.n == 0 {
		return
	}
	var ends [replayPageRefs]int32
	for block := p.parked.first; block != nil; block = block.next {
		for i := range block.samples[:block.n] {
			ends[block.samples[i].at]++
		}
	}
	var sum int32
	for i, n := range ends {
		ends[i] = sum
		sum += n
	}
	if cap(a.sorted) < p.parked.n {
		a.sorted = make([]replaySample, p.parked.n+replayPageSamples)
	}
	sorted := a.sorted[:p.parked.n]
	for block := p.parked.first; block != nil; block = block.next {
		for i := range block.samples[:block.n] {
			s := &block.samples[i]
			sorted[ends[s.at]] = *s
			ends[s.at]++
		}
		a.blocks--
	}
	p.parked.last.next = a.free
	a.free = p.parked.first
	p.parked = replayParked{}

	var from int32
	for i, to := range ends {
		if from < to {
			a.applySeries(p.series[i], sorted[from:to])
		}
		from = to
	}
}

func (a *replayApplier) applySeries(ms *memSeries, samples []replaySample) {
	for len(samples) > 0 {
		if n := a.floats(ms, samples); n > 0 {
			samples = samples[n:]
			continue
		}
		a.one(ms, &samples[0])
		samples = samples[1:]
	}
}

// floats appends floats to the chunk that the series has, up to the first sample
// that is more than that, and returns how many it has dealt with.
func (a *replayApplier) floats(ms *memSeries, samples []replaySample) int {
	c := ms.headChunks
	if !a.xor || c == nil || ms.lastHistogramValue != nil || ms.lastFloatHistogramValue != nil || value.IsStaleNaN(ms.lastValue) ||
		c.chunk.Encoding() != chunkenc.EncXOR || !a.xorRun.Begin(ms.app) {
		return 0
	}
	run := &a.xorRun
	minTime, maxTime, last := a.counts.minTime, a.counts.maxTime, math.Float64bits(ms.lastValue)
	i := 0
	for ; i < len(samples); i++ {
		s := &samples[i]
		if s.kind != replayFloat || s.v == value.StaleNaN {
			break
		}
		if s.t <= ms.mmMaxTime {
			continue
		}
		if c.maxTime < s.t {
			if n := run.NumSamples(); s.t >= ms.nextAt || n == a.opts.samplesPerChunk/4 || n >= 2*a.opts.samplesPerChunk ||
				n >= math.MaxUint16 || run.NumBytes() > chunkenc.MaxBytesPerXORChunkBeforeAppend {
				break
			}
			run.Append(s.t, s.v)
			c.maxTime = s.t
			last = s.v
		}
		minTime, maxTime = min(minTime, s.t), max(maxTime, s.t)
	}
	run.End()
	ms.lastValue = math.Float64frombits(last)
	a.counts.minTime, a.counts.maxTime = minTime, maxTime
	return i
}

// one applies a sample or an event of any kind.
func (a *replayApplier) one(ms *memSeries, s *replaySample) {
	switch s.kind {
	case replayReset:
		a.reset(ms, &a.extras[s.v])
		return
	case replayDelete:
		a.delete(ms)
		return
	}
	if s.t <= ms.mmMaxTime {
		return
	}
	switch s.kind {
	case replayFloat:
		a.float(ms, 0, s.t, math.Float64frombits(s.v))
	case replayFloatST:
		e := &a.extras[s.v]
		a.float(ms, e.st, s.t, e.v)
	default:
		e := &a.extras[s.v]
		a.histogram(ms, e.st, s.t, e.h, e.fh)
	}
	a.counts.minTime, a.counts.maxTime = min(a.counts.minTime, s.t), max(a.counts.maxTime, s.t)
}

// float does what Head.appendWALFloat does.
func (a *replayApplier) float(ms *memSeries, st, t int64, v float64) {
	isStale := value.IsStaleNaN(v)
	if isStale {
		switch ms.latestInOrderValueType() {
		case chunkenc.ValHistogram:
			a.histogram(ms, st, t, &histogram.Histogram{Sum: v}, nil)
			return
		case chunkenc.ValFloatHistogram:
			a.histogram(ms, st, t, nil, &histogram.FloatHistogram{Sum: v})
			return
		}
	}
	wasStale, wasHistogram, oldBuckets := ms.sampleState()
	inOrder, chunkCreated := ms.append(st, t, v, 0, a.opts)
	a.appended(ms, chunkCreated)
	if inOrder {
		a.counts.state(wasStale, isStale, wasHistogram, false, oldBuckets, 0)
	}
}

// histogram does what Head.appendWALHistogram does.
func (a *replayApplier) histogram(ms *memSeries, st, t int64, h *histogram.Histogram, fh *histogram.FloatHistogram) {
	wasStale, wasHistogram, oldBuckets := ms.sampleState()
	var isStale, inOrder, chunkCreated bool
	var newBuckets int
	if h != nil {
		isStale, newBuckets = value.IsStaleNaN(h.Sum), len(h.PositiveBuckets)+len(h.NegativeBuckets)
		inOrder, chunkCreated = ms.appendHistogram(st, t, h, 0, a.opts)
	} else {
		isStale, newBuckets = value.IsStaleNaN(fh.Sum), len(fh.PositiveBuckets)+len(fh.NegativeBuckets)
		inOrder, chunkCreated = ms.appendFloatHistogram(st, t, fh, 0, a.opts)
	}
	a.appended(ms, chunkCreated)
	if inOrder {
		a.counts.state(wasStale, isStale, wasHistogram, true, oldBuckets, newBuckets)
	}
}

// appended does what Head.appendChunkAndMmap does after a sample is appended. As
// older chunks are written at once, no series is ever left with two head chunks.
func (a *replayApplier) appended(ms *memSeries, chunkCreated bool) {
	if !chunkCreated {
		return
	}
	a.counts.chunksCreated++
	a.counts.chunks++
	_ = ms.mmapChunks(a.opts.chunkDiskMapper)
}

// state counts a sample that was appended in order.
func (c *replayCounts) state(wasStale, isStale, wasHistogram, isHistogram bool, oldBuckets, newBuckets int) {
	switch {
	case !wasStale && isStale:
		c.staleSeries++
	case wasStale && !isStale:
		c.staleSeries--
	}
	switch {
	case !wasHistogram && isHistogram:
		c.histogramSeries++
	case wasHistogram && !isHistogram:
		c.histogramSeries--
	}
	c.histogramBuckets += int64(newBuckets - oldBuckets)
}

// attach gives a series the m-mapped chunks of its reference.
func (c *replayCounts) attach(ms *memSeries, mmapped, ooo []*mmappedChunk) {
	n := int64(len(mmapped) + len(ooo))
	c.chunksCreated += n
	c.chunks += n
	ms.mmappedChunks = mmapped
	ms.mmMaxTime = math.MinInt64
	if len(mmapped) > 0 {
		ms.mmMaxTime = mmapped[len(mmapped)-1].maxTime
		c.minTime, c.maxTime = min(c.minTime, mmapped[0].minTime), max(c.maxTime, ms.mmMaxTime)
	}
	ms.ooo = nil
	if len(ooo) > 0 {
		ms.ooo = &memSeriesOOOFields{oooMmappedChunks: ooo}
	}
	for _, chunk := range ooo {
		c.minOOOTime, c.maxOOOTime = min(c.minOOOTime, chunk.minTime), max(c.maxOOOTime, chunk.maxTime)
	}
}

// reset does what Head.resetSeriesWithMMappedChunks does with a series that was
// there before.
func (a *replayApplier) reset(ms *memSeries, e *replayExtra) {
	c := &a.counts
	if old := ms.mmappedChunks; ms.ref != e.walRef && len(old) > 0 && len(e.mmapped) > 0 &&
		overlapsClosedInterval(old[0].minTime, old[len(old)-1].maxTime, e.mmapped[0].minTime, e.mmapped[len(e.mmapped)-1].maxTime) {
		a.r.h.logger.Debug("M-mapped chunks overlap on a duplicate series record", "series", ms.lset.String(), "oldref", ms.ref, "newref", e.walRef)
		c.overlapping++
	}
	removed := int64(len(ms.mmappedChunks))
	c.chunksRemoved += removed
	c.chunks -= removed
	if ms.ooo != nil {
		c.chunksRemoved += int64(len(ms.ooo.oooMmappedChunks))
		c.chunks -= int64(len(ms.ooo.oooMmappedChunks))
	}
	c.attach(ms, e.mmapped, e.ooomap)
	ms.nextAt = 0
	ms.setHeadChunks(nil, 0)
	ms.app = nil
}

// delete does what Head.deleteSeriesByID does that depends on the series.
func (a *replayApplier) delete(ms *memSeries) {
	c := &a.counts
	if c.deleted == nil {
		c.deleted = map[storage.SeriesRef]struct{}{}
		c.affected = map[labels.Label]struct{}{}
		c.expiries = map[chunks.HeadSeriesRef]int64{}
	}
	if t := ms.maxTime(); t != math.MinInt64 {
		c.expiries[ms.ref] = max(c.expiries[ms.ref], t)
	}
	stale, isHistogram, buckets := ms.sampleState()
	c.state(stale, false, isHistogram, false, buckets, 0)
	removed := int64(len(ms.mmappedChunks)) + int64(ms.headChunkCount.Load())
	c.chunksRemoved += removed
	c.chunks -= removed
	ms.mmappedChunks = nil
	c.deleted[storage.SeriesRef(ms.ref)] = struct{}{}
	ms.lset.Range(func(l labels.Label) { c.affected[l] = struct{}{} })
}
