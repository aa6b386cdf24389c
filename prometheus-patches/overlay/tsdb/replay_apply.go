// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"encoding/binary"
	"math"
	"math/bits"
	"unsafe"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// Samples are parked at their page until there are enough of them that a series
// takes several at once: fetching a series, its chunk and its appender from
// memory costs more than appending to them.
const (
	replayBlockWords   = 62     // A block takes 512 bytes.
	replayPageSamples  = 1024   // Of a page that is applied at once.
	replayParkedExtras = 20_000 // Over all appliers.

	// Of the blocks over all appliers: so many bytes for each series, which is a
	// small part of what a series takes.
	replayParkedPerSeries = 128
	replayParkedLeast     = 1 << 20
	replayParkedMost      = 96 << 20

	replayDenseRun = 12 // Samples per run from which on looking for them beats sorting.
)

// replayBlock holds parked runs: a word with the place, the length and the kind of
// each, one with its time, one with a start time if there is one, and its values.
type replayBlock struct {
	next  *replayBlock
	n     int
	words [replayBlockWords]uint64
}

// replaySample is a parked sample as it is applied.
type replaySample struct {
	t, st int64
	v     uint64 // As that of a replayRun.
	kind  uint8
}

// replayParked is the runs that wait at a page, in the order of the log, with n
// samples.
type replayParked struct {
	first, last *replayBlock
	n           int
}

// parkedRun is one of them.
type parkedRun struct {
	at, kind uint8
	t, st    int64
	values   []uint64
}

// sample returns the run's k-th sample.
func (r *parkedRun) sample(k uint) replaySample {
	return replaySample{t: r.t, st: r.st, v: r.values[k], kind: r.kind}
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

	runs    []parkedRun    // Of the page that is applied.
	fetched int64          // Keeps the compiler from leaving out what is fetched.
	sorted  []replaySample // Room for its samples.
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
		xor:    r.encodesXOR() && h.opts.SamplesPerChunk >= 4,
		counts: newReplayCounts(),
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
	a.dirty, a.free, a.runs, a.sorted, a.extras = nil, nil, nil, nil, nil
}

// take parks the samples of a batch.
func (a *replayApplier) take(s *replayShard) {
	base := uint64(len(a.extras))
	a.extras = append(a.extras, s.extras...)
	budget := a.budget()
	for i := range s.runs {
		run := &s.runs[i]
		if run.kind > replayFloatST {
			run.v += base
		}
		a.park(run)
		if a.blocks > budget { // A batch can touch any number of pages.
			a.applyParked()
		}
	}
	if len(a.extras) > replayParkedExtras/a.r.refs.shards {
		a.flush()
	}
}

// budget returns how many blocks may be in use.
func (a *replayApplier) budget() int {
	size := min(max(replayParkedLeast, replayParkedPerSeries*int(a.r.created.Load())), replayParkedMost)
	return size / int(unsafe.Sizeof(replayBlock{})) / a.r.refs.shards
}

// park copies a run into blocks, in parts where one is full. A start time comes
// before its value.
func (a *replayApplier) park(run *replayRun) {
	parked := &run.page.parked
	if parked.n == 0 {
		a.dirty = append(a.dirty, run.page)
	}
	parked.n += int(run.n)
	values, head := run.values, headWords(run.kind)
	for at, left := int(run.at), int(run.n); left > 0; {
		if parked.last == nil || parked.last.n+head >= replayBlockWords {
			block := a.block()
			if parked.last == nil {
				parked.first = block
			} else {
				parked.last.next = block
			}
			parked.last = block
		}
		block := parked.last
		words := block.words[block.n:]
		n := min(left, len(words)-head)
		words[0] = uint64(at) | uint64(n)<<8 | uint64(run.kind)<<16
		words[1] = uint64(run.t)
		if run.kind == replayFloatST {
			words[2] = uint64(run.st)
		}
		words = words[head : head+n]
		if values == nil {
			words[0] = run.v
		} else {
			for i := range words {
				words[i] = binary.BigEndian.Uint64(values)
				values = values[min(int(run.stride), len(values)):]
			}
		}
		block.n += head + n
		at, left = at+n, left-n
	}
	if parked.n >= replayPageSamples {
		a.apply(run.page)
	}
}

// headWords is how many words a parked run has before its values: what it is, its
// time, and its start time if there is one.
func headWords(kind uint8) int {
	if kind == replayFloatST {
		return 3
	}
	return 2
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
	a.applyParked()
	clear(a.extras)
	a.extras = a.extras[:0]
}

// applyParked applies all that is parked. Runs of the same batch that are not
// parked yet still refer to the extras.
func (a *replayApplier) applyParked() {
	for _, p := range a.dirty {
		a.apply(p)
	}
	clear(a.dirty)
	a.dirty = a.dirty[:0]
}

// apply applies what is parked at a page, series by series.
func (a *replayApplier) apply(p *replayPage) {
	if p.parked.n == 0 {
		return
	}
	if cap(a.sorted) < p.parked.n {
		a.sorted = make([]replaySample, p.parked.n+replayPageSamples)
	}
	places := a.collect(&p.parked)
	if p.parked.n >= replayDenseRun*len(a.runs) {
		a.applyDense(p, places)
	} else {
		a.applySparse(p)
	}
	for block := p.parked.first; block != nil; block = block.next {
		a.blocks--
	}
	p.parked.last.next = a.free
	a.free = p.parked.first
	p.parked = replayParked{}
}

// collect lists the parked runs, and returns a bit for each place that they have
// samples of. The series of the others may not be looked at: they may just be
// created.
func (a *replayApplier) collect(p *replayParked) (places uint64) {
	a.runs = a.runs[:0]
	for block := p.first; block != nil; block = block.next {
		for words := block.words[:block.n]; len(words) > 0; {
			run := parkedRun{at: uint8(words[0]), kind: uint8(words[0] >> 16), t: int64(words[1])}
			head := headWords(run.kind)
			if run.kind == replayFloatST {
				run.st = int64(words[2])
			}
			n := head + int(words[0]>>8&0xff)
			run.values = words[head:n]
			places |= (1<<len(run.values) - 1) << run.at
			a.runs = append(a.runs, run)
			words = words[n:]
		}
	}
	return places
}

// applyDense looks for each series' samples in all runs.
func (a *replayApplier) applyDense(p *replayPage, places uint64) {
	a.fetch(p, places)
	for ; places != 0; places &= places - 1 {
		i := bits.TrailingZeros64(places)
		samples := a.sorted[:0]
		for j := range a.runs {
			run := &a.runs[j]
			if k := uint(i) - uint(run.at); k < uint(len(run.values)) {
				samples = append(samples, run.sample(k))
			}
		}
		a.applySeries(p.series(i), samples)
	}
}

// fetch reads what applying needs of the series, of one after the other, so that
// the processor waits for many of them at once.
func (a *replayApplier) fetch(p *replayPage, places uint64) {
	var all [replayPageRefs]*memSeries
	series := all[:0]
	for ; places != 0; places &= places - 1 {
		series = append(series, p.series(bits.TrailingZeros64(places)))
	}
	var sum int64
	for _, ms := range series {
		sum += ms.nextAt
	}
	for _, ms := range series {
		if ms.headChunks != nil {
			sum += ms.headChunks.maxTime
		}
	}
	for _, ms := range series {
		if app := ms.appender(); app != nil {
			sum += int64(chunkenc.Fetch(app))
		}
	}
	a.fetched = sum
}

// applySparse sorts the samples by series first.
func (a *replayApplier) applySparse(p *replayPage) {
	var ends [replayPageRefs]int32
	for _, run := range a.runs {
		for i := range run.values {
			ends[int(run.at)+i]++
		}
	}
	var sum int32
	for i, n := range ends {
		ends[i] = sum
		sum += n
	}
	sorted := a.sorted[:sum]
	for _, run := range a.runs {
		for i := range run.values {
			end := &ends[int(run.at)+i]
			sorted[*end] = run.sample(uint(i))
			*end++
		}
	}
	var from int32
	for i, to := range ends {
		if from < to {
			a.applySeries(p.series(i), sorted[from:to])
		}
		from = to
	}
}
