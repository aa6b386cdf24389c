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

// applySeries appends a series' samples, in the order of the log: floats by runs,
// all else one by one.
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

// floats appends floats, up to the first sample that is more than that, and
// returns how many it has dealt with. It cuts chunks as memSeries.append does.
func (a *replayApplier) floats(ms *memSeries, samples []replaySample) int {
	c := ms.headChunks
	if !a.xor || ms.lastHistogramValue != nil || ms.lastFloatHistogramValue != nil || value.IsStaleNaN(ms.lastValue) {
		return 0
	}
	run := &a.xorRun
	if c != nil && (c.chunk.Encoding() != chunkenc.EncXOR || !run.Begin(ms.appender())) {
		return 0
	}
	minTime, maxTime, last := a.counts.minTime, a.counts.maxTime, math.Float64bits(ms.lastValue)
	quarter, most := a.opts.samplesPerChunk/4, 2*a.opts.samplesPerChunk-1
	i := 0
	for ; i < len(samples); i++ {
		s := &samples[i]
		if s.kind != replayFloat || s.v == value.StaleNaN {
			break
		}
		if s.t <= ms.mmMaxTime {
			continue
		}
		if c == nil || c.maxTime < s.t {
			if c == nil {
				c = a.cut(ms, s.t)
			} else if n := run.NumSamples(); s.t >= ms.nextAt || n == quarter || n > most || run.NumBytes() > chunkenc.MaxBytesPerXORChunkBeforeAppend {
				if a.full(ms, c, s.t) {
					run.End()
					c = a.cut(ms, s.t)
				}
			}
			run.Append(s.t, s.v)
			c.maxTime = s.t
			last = s.v
		}
		minTime, maxTime = min(minTime, s.t), max(maxTime, s.t)
	}
	if c != nil {
		run.End()
	}
	ms.lastValue = math.Float64frombits(last)
	a.counts.minTime, a.counts.maxTime = minTime, maxTime
	return i
}

// full reports whether a sample at t goes into the next chunk.
func (a *replayApplier) full(ms *memSeries, c *memChunk, t int64) bool {
	if a.xorRun.NumBytes() > chunkenc.MaxBytesPerXORChunkBeforeAppend {
		return true
	}
	n := a.xorRun.NumSamples()
	if n == a.opts.samplesPerChunk/4 {
		ms.nextAt = computeChunkEndTime(c.minTime, c.maxTime, ms.nextAt, 4)
	}
	return t >= ms.nextAt || n >= 2*a.opts.samplesPerChunk
}

// cut gives the series a new chunk, with the run begun on it.
func (a *replayApplier) cut(ms *memSeries, t int64) *memChunk {
	c := ms.pushHeadChunk(newHeadChunk(t, chunkenc.EncXOR))
	ms.setAppender(nil)
	ms.nextAt = rangeForTimestamp(t, a.opts.chunkRange)
	a.appended(ms, true)
	a.xorRun.Begin(ms.appender())
	return c
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
		a.float(ms, s.st, s.t, math.Float64frombits(s.v))
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
	ms.setOOO(nil)
	if len(ooo) > 0 {
		ms.rare().ooo = &memSeriesOOOFields{oooMmappedChunks: ooo}
	}
	for _, chunk := range ooo {
		c.minOOOTime, c.maxOOOTime = min(c.minOOOTime, chunk.minTime), max(c.maxOOOTime, chunk.maxTime)
	}
}

// reset does what Head.resetSeriesWithMMappedChunks does with a series that was
// there before.
func (a *replayApplier) reset(ms *memSeries, e *replayExtra) {
	c := &a.counts
	mmapped := a.r.refs.page(e.walRef).mmapped.of(int(e.walRef & replayPageMask))
	if old := ms.mmappedChunks; ms.ref != e.walRef && len(old) > 0 && len(mmapped) > 0 &&
		overlapsClosedInterval(old[0].minTime, old[len(old)-1].maxTime, mmapped[0].minTime, mmapped[len(mmapped)-1].maxTime) {
		a.r.h.logger.Debug("M-mapped chunks overlap on a duplicate series record", "series", ms.labels().String(), "oldref", ms.ref, "newref", e.walRef)
		c.overlapping++
	}
	mmapped = mergeReplayMmappedChunks(ms.mmappedChunks, mmapped, a.r.lastMmapRef, false)
	ooo := a.r.oooMmapped[e.walRef]
	if ms.ooo != nil {
		ooo = mergeReplayMmappedChunks(ms.ooo.oooMmappedChunks, ooo, a.r.lastMmapRef, true)
	}
	removed := int64(len(ms.mmappedChunks))
	c.chunksRemoved += removed
	c.chunks -= removed
	if ms.ooo != nil {
		c.chunksRemoved += int64(len(ms.ooo.oooMmappedChunks))
		c.chunks -= int64(len(ms.ooo.oooMmappedChunks))
	}
	c.attach(ms, mmapped, ooo)
	ms.nextAt = 0
	ms.setHeadChunks(nil, 0)
	ms.setAppender(nil)
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
