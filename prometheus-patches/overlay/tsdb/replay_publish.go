// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
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
	r.fillStripes()
	h.postings.AddBulk(r.index.postings)
	if len(counts.deleted) > 0 {
		h.postings.Delete(counts.deleted, counts.affected)
	}
	h.tombstones = r.seq.tombstones
	h.lastSeriesID.Store(r.seq.lastSeriesID)
	h.updateMinMaxTime(counts.minTime, counts.maxTime)
	h.updateMinOOOMaxOOOTime(counts.minOOOTime, counts.maxOOOTime)
	r.publishExpiries(counts.expiries)

	created, deleted := len(r.seq.index.series), len(counts.deleted)
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

// merged adds b to a, whose keys differ unless the values do not matter.
func merged[K comparable, V any](a, b map[K]V) map[K]V {
	if a == nil {
		return b
	}
	for k, v := range b {
		a[k] = v
	}
	return a
}

// fillStripes makes the series findable by reference and by labels. The maps are
// made with the size that they need.
func (r *walReplay) fillStripes() {
	series, stripes := r.seq.index.series, r.h.series
	byRef := groupByStripe(series, stripes.size, func(s *replaySeries) uint64 { return uint64(s.series.ref) })
	r.eachStripe(func(i int) {
		group := byRef.of(i)
		if len(group) == 0 {
			return
		}
		if len(stripes.series[i]) == 0 {
			stripes.series[i] = make(map[chunks.HeadSeriesRef]*memSeries, len(group))
		}
		for _, n := range group {
			s := series[n].series
			stripes.series[i][s.ref] = s
		}
	})
	byHash := groupByStripe(series, stripes.size, func(s *replaySeries) uint64 { return s.hash })
	r.eachStripe(func(i int) {
		group := byHash.of(i)
		if len(group) == 0 {
			return
		}
		if len(stripes.hashes[i].unique) == 0 {
			stripes.hashes[i].unique = make(map[uint64]*memSeries, len(group))
		}
		for _, n := range group {
			stripes.hashes[i].set(series[n].hash, series[n].series)
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

func groupByStripe(series []replaySeries, size int, key func(*replaySeries) uint64) replayGroups {
	g := replayGroups{ends: make([]uint32, size), order: make([]uint32, 0, len(series))}
	mask := uint64(size - 1)
	for i := range series {
		if series[i].series != nil {
			g.ends[key(&series[i])&mask]++
		}
	}
	var sum uint32
	for i, n := range g.ends {
		g.ends[i] = sum
		sum += n
	}
	g.order = g.order[:sum]
	for i := range series {
		if series[i].series != nil {
			end := &g.ends[key(&series[i])&mask]
			g.order[*end] = uint32(i)
			*end++
		}
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
	for ref, h := range r.refs.histories {
		for _, e := range h.events {
			if e.expiry != nil && e.expiry.Load() != replayNoExpiry {
				r.h.updateWALExpiry(ref, e.expiry.Load())
			}
		}
	}
	for ref, t := range deleted {
		r.h.updateWALExpiry(ref, t)
	}
}

// multiRef returns the references that stand for a series of another, or of
// their own again, as the replay of the WBL needs them.
func (r *walReplay) multiRef() map[chunks.HeadSeriesRef]chunks.HeadSeriesRef {
	m := map[chunks.HeadSeriesRef]chunks.HeadSeriesRef{}
	for ref, h := range r.refs.histories {
		if e := h.events[len(h.events)-1]; e.duplicateOf != 0 {
			m[ref] = e.duplicateOf
		}
	}
	return m
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
