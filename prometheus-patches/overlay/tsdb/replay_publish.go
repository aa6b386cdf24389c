// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"maps"
	"math"
	"runtime"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/prometheus/prometheus/tsdb/chunks"
)

// publish makes what was replayed the content of the head. It must be as fresh
// as NewHead returns it.
func (r *walReplay) publish() error {
	h := r.h
	if err := r.publishExemplars(); err != nil {
		return err
	}
	counts := r.sum()
	r.publishExpiries(counts.expiries)
	r.leave(&counts)
	r.multiRef = r.refs.duplicates()
	// What is done with makes room for the maps and the lists, at once: the peak of
	// the memory would be here.
	r.refs.pages, r.refs.histories, r.appliers, r.seq.index.table = nil, nil, nil, nil
	r.refs.table.Store(nil)
	runtime.GC()
	r.fillStripes()
	r.replayed.set(h.series)
	r.index.postings.AddTo(h.postings)
	if len(counts.deleted) > 0 {
		h.postings.Delete(counts.deleted, counts.affected)
	}
	h.tombstones = r.seq.tombstones
	h.lastSeriesID.Store(r.seq.lastSeriesID)
	h.updateMinMaxTime(counts.minTime, counts.maxTime)
	h.updateMinOOOMaxOOOTime(counts.minOOOTime, counts.maxOOOTime)

	created, deleted := r.seq.created, r.seq.left+len(counts.deleted)
	h.numSeries.Add(uint64(created - deleted))
	h.numStaleSeries.Add(uint64(counts.staleSeries))
	h.numNativeHistogramSeries.Add(uint64(counts.histogramSeries))
	h.numNativeHistogramBuckets.Add(uint64(counts.histogramBuckets))
	h.metrics.seriesCreated.Add(float64(created))
	h.metrics.seriesRemoved.Add(float64(deleted))
	h.metrics.chunksCreated.Add(float64(counts.chunksCreated))
	h.metrics.chunksRemoved.Add(float64(counts.chunksRemoved))
	h.metrics.chunks.Add(float64(counts.chunks))
	for _, u := range r.units {
		if u.done {
			u.unknown.publish(h)
		}
	}
	if counts.overlapping > 0 {
		h.logger.Info("Overlapping m-map chunks on duplicate series records", "count", counts.overlapping)
	}
	return nil
}

// sum adds up the counts of the sequencer and all appliers.
func (r *walReplay) sum() replayCounts {
	sum := r.seq.counts
	for _, a := range r.appliers {
		c := &a.counts
		sum.chunksCreated += c.chunksCreated
		sum.chunksRemoved += c.chunksRemoved
		sum.chunks += c.chunks
		sum.staleSeries += c.staleSeries
		sum.histogramSeries += c.histogramSeries
		sum.histogramBuckets += c.histogramBuckets
		sum.overlapping += c.overlapping
		sum.minTime, sum.maxTime = min(sum.minTime, c.minTime), max(sum.maxTime, c.maxTime)
		sum.minOOOTime, sum.maxOOOTime = min(sum.minOOOTime, c.minOOOTime), max(sum.maxOOOTime, c.maxOOOTime)
		sum.deleted = merged(sum.deleted, c.deleted)
		sum.affected = merged(sum.affected, c.affected)
		sum.expiries = merged(sum.expiries, c.expiries)
	}
	return sum
}

// leave does what series that were not made would have left behind.
func (r *walReplay) leave(counts *replayCounts) {
	for ref, l := range r.refs.leavers() {
		mint, maxt := l.mint.Load(), l.maxt.Load()
		counts.minTime, counts.maxTime = min(counts.minTime, mint), max(counts.maxTime, maxt)
		if maxt != math.MinInt64 {
			r.h.updateWALExpiry(ref, maxt)
		}
	}
}

// merged adds b to a, whose keys differ unless the values do not matter.
func merged[K comparable, V any](a, b map[K]V) map[K]V {
	if a == nil {
		return b
	}
	maps.Copy(a, b)
	return a
}

// fillStripes makes the series findable by reference and by labels. The tables
// are made with the size that they need.
func (r *walReplay) fillStripes() {
	series, stripes := &r.seq.index, r.h.series
	byRef := groupByStripe(series, stripes.size, func(s *replaySeries) uint64 { return uint64(s.series.ref) })
	r.eachStripe(func(i int) {
		group := byRef.of(i)
		if len(group) == 0 {
			return
		}
		stripes.series[i].reserve(len(group))
		for _, n := range group {
			stripes.series[i].set(series.at(n).series)
		}
	})
	byHash := groupByStripe(series, stripes.size, func(s *replaySeries) uint64 { return s.hash })
	r.eachStripe(func(i int) {
		group := byHash.of(i)
		if len(group) == 0 {
			return
		}
		stripes.hashes[i].reserve(len(group))
		for _, n := range group {
			s := series.at(n)
			stripes.hashes[i].set(s.hash, s.series)
		}
	})
}

// eachStripe calls f for every stripe, from several goroutines.
func (r *walReplay) eachStripe(f func(int)) {
	size := r.h.series.size
	var wg sync.WaitGroup
	for w := range r.decoders {
		wg.Go(func() {
			for i := w * size / r.decoders; i < (w+1)*size/r.decoders; i++ {
				f(i)
			}
		})
	}
	wg.Wait()
}

// replayGroups holds positions of series by stripe, without deleted ones.
type replayGroups struct {
	ends  []uint32
	order []uint32
}

func (g *replayGroups) of(i int) []uint32 {
	if i == 0 {
		return g.order[:g.ends[0]]
	}
	return g.order[g.ends[i-1]:g.ends[i]]
}

func groupByStripe(series *replayIndex, size int, key func(*replaySeries) uint64) replayGroups {
	g := replayGroups{ends: make([]uint32, size)}
	mask := uint64(size - 1)
	for _, s := range series.all() {
		g.ends[key(s)&mask]++
	}
	var sum uint32
	for i, n := range g.ends {
		g.ends[i] = sum
		sum += n
	}
	g.order = make([]uint32, sum)
	for n, s := range series.all() {
		end := &g.ends[key(s)&mask]
		g.order[*end] = n
		*end++
	}
	return g
}

func (r *walReplay) publishExemplars() error {
	x := r.index
	if x.exemplars == nil {
		return nil
	}
	for _, c := range []struct{ from, to prometheus.Counter }{
		{x.metrics.exemplarsAppended, r.h.exemplarMetrics.exemplarsAppended},
		{x.metrics.outOfOrderExemplars, r.h.exemplarMetrics.outOfOrderExemplars},
	} {
		var m dto.Metric
		if err := c.from.Write(&m); err != nil {
			return err
		}
		c.to.Add(m.GetCounter().GetValue())
	}
	x.exemplars.metrics = r.h.exemplarMetrics
	x.exemplars.computeMetrics()
	r.h.exemplars = x.exemplars
	return nil
}

func (r *walReplay) publishExpiries(deleted map[chunks.HeadSeriesRef]int64) {
	for i := range r.refs.expiries {
		e := &r.refs.expiries[i]
		for ref, t := range e.of {
			r.h.updateWALExpiry(ref, t)
		}
		e.of = nil
	}
	for ref, t := range deleted {
		r.h.updateWALExpiry(ref, t)
	}
}

// publish says what loadWAL says of one unit.
func (u *replayUnknown) publish(h *Head) {
	if u.samples+u.exemplars+u.histograms+u.metadata+u.deleted == 0 {
		return
	}
	h.logger.Warn(
		"Unknown series references",
		"series", len(u.refs),
		"samples", u.samples,
		"exemplars", u.exemplars,
		"histograms", u.histograms,
		"metadata", u.metadata,
		"tombstones", u.deleted,
	)
	counterAddNonZero(h.metrics.walReplayUnknownRefsTotal, float64(len(u.refs)), "series")
	counterAddNonZero(h.metrics.walReplayUnknownRefsTotal, float64(u.samples), "samples")
	counterAddNonZero(h.metrics.walReplayUnknownRefsTotal, float64(u.exemplars), "exemplars")
	counterAddNonZero(h.metrics.walReplayUnknownRefsTotal, float64(u.histograms), "histograms")
	counterAddNonZero(h.metrics.walReplayUnknownRefsTotal, float64(u.metadata), "metadata")
	counterAddNonZero(h.metrics.walReplayUnknownRefsTotal, float64(u.deleted), "tombstones")
}
