// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"errors"
	"iter"
	"math"
	"unique"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/index"
	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/tsdb/tombstones"
)

// replayIndex finds the created series by their labels.
type replayIndex struct {
	slabs [][]replaySeries // All are full but the last.
	n     int              // Series in them.
	table []uint32         // Open addressing over series, 1-based; a power of two.

	removed int // Of the series.
}

const replaySlabBits = 12 // Series in a slab, as a power of two.

// at returns a series by its number, in the order in which they were created.
func (x *replayIndex) at(n uint32) *replaySeries {
	return &x.slabs[n>>replaySlabBits][n&(1<<replaySlabBits-1)]
}

// all returns the series with their numbers, without those that were removed.
func (x *replayIndex) all() iter.Seq2[uint32, *replaySeries] {
	return func(yield func(uint32, *replaySeries) bool) {
		for n := range uint32(x.n) {
			if s := x.at(n); s.series != nil && !yield(n, s) {
				return
			}
		}
	}
}

// find returns the series with these labels, or nil and the place in the table
// where it belongs.
func (x *replayIndex) find(hash uint64, lset labels.Labels) (*memSeries, uint64) {
	mask := uint64(len(x.table) - 1)
	i := hash & mask
	for ; x.table[i] != 0; i = (i + 1) & mask {
		s := x.at(x.table[i] - 1)
		if s.hash == hash && s.series != nil && labels.Equal(s.series.labels(), lset) {
			return s.series, i
		}
	}
	return nil, i
}

func (x *replayIndex) add(s replaySeries, at uint64) {
	if x.n&(1<<replaySlabBits-1) == 0 {
		x.slabs = append(x.slabs, make([]replaySeries, 0, 1<<replaySlabBits))
	}
	last := &x.slabs[len(x.slabs)-1]
	*last = append(*last, s)
	x.n++
	x.table[at] = uint32(x.n)
	if 4*x.n < 3*len(x.table) {
		return
	}
	x.table = make([]uint32, 2*len(x.table))
	for n := range uint32(x.n) {
		x.table[x.free(x.at(n).hash)] = n + 1
	}
}

// free returns the place in the table of a series whose labels it does not have.
func (x *replayIndex) free(hash uint64) uint64 {
	mask := uint64(len(x.table) - 1)
	i := hash & mask
	for x.table[i] != 0 {
		i = (i + 1) & mask
	}
	return i
}

// remove takes a series out; its labels are not found any more.
func (x *replayIndex) remove(hash uint64, series *memSeries) {
	mask := uint64(len(x.table) - 1)
	for i := hash & mask; x.table[i] != 0; i = (i + 1) & mask {
		if s := x.at(x.table[i] - 1); s.series == series {
			s.series = nil
			x.removed++
			return
		}
	}
}

// replaySequencer is the state of the one goroutine that sees all records in
// order. Its rules are those of the loop over decoded records in loadWAL.
type replaySequencer struct {
	r            *walReplay
	next         uint64 // Number of the next record.
	index        replayIndex
	lastSeriesID uint64
	tombstones   *tombstones.MemTombstones
	counts       replayCounts
	created      int // Series.
	leaving      int // Of them, those that are not made and were not written off yet.
	left         int // Those that were.
}

func newReplaySequencer(r *walReplay) *replaySequencer {
	return &replaySequencer{
		r:            r,
		next:         1,
		index:        replayIndex{table: make([]uint32, 1<<10)},
		lastSeriesID: r.h.lastSeriesID.Load(),
		tombstones:   tombstones.NewMemTombstones(),
		counts:       newReplayCounts(),
	}
}

func (r *walReplay) sequence() {
	stopped := false
	for b := range r.ordered {
		<-b.split
		stopped = stopped || r.broken.Load()
		if stopped {
			b.forget()
		} else {
			r.guard(func() { r.seq.batch(b) })
			if b.err != nil {
				r.fail(b.err)
			}
			if b.stop {
				r.stopped.Store(true)
				stopped = true
			}
		}
		r.toRoute <- b
		r.index.in <- b
		for _, a := range r.appliers {
			a.in <- b
		}
	}
	close(r.toRoute)
	close(r.index.in)
	for _, a := range r.appliers {
		close(a.in)
	}
}

// forget makes the batch one without content.
func (b *replayBatch) forget() {
	b.records, b.events, b.created, b.exemplify = b.records[:0], b.events[:0], b.created[:0], b.exemplify[:0]
}

func (s *replaySequencer) batch(b *replayBatch) {
	b.first = s.next
	for i := range b.records {
		rec := &b.records[i]
		switch rec.typ {
		case record.Series:
			for j := range b.series[rec.from:rec.to] {
				if err := s.series(b, b.series[int(rec.from)+j]); err != nil {
					b.err = err
					return
				}
			}
		case record.Tombstones:
			for _, stone := range b.stones[rec.from:rec.to] {
				s.tombstone(b, stone)
			}
		case record.Exemplars:
			for _, e := range b.exemplars[rec.from:rec.to] {
				s.exemplar(b, e)
			}
		case record.Metadata:
			for _, m := range b.metadata[rec.from:rec.to] {
				s.metadata(b, m)
			}
		}
		s.next++
	}
	s.r.created.Store(int64(s.index.n - s.index.removed))
	b.unit.records += uint64(len(b.records))
	b.unit.done = b.lastOfUnit && !b.stop
	s.r.sequenced(b)
}

func (s *replaySequencer) series(b *replayBatch, rs replaySeries) error {
	refs := s.r.refs
	if rs.series == nil {
		s.leaver(chunks.HeadSeriesRef(rs.hash))
		return nil
	}
	ref := rs.series.ref
	if ref == 0 || ref >= replayMaxRef {
		return errOddReplay
	}
	s.lastSeriesID = max(s.lastSeriesID, uint64(ref))
	existing, place := s.index.find(rs.hash, rs.series.labels())
	if existing != nil {
		s.duplicate(b, ref, existing)
		select {
		case s.r.spare <- rs.series:
		default:
		}
		return nil
	}
	p, i := refs.addPage(ref), int(ref&replayPageMask)
	if p.slot(i) != nil {
		return errOddReplay // Two series of one reference.
	}
	s.index.add(rs, place)
	s.created++
	s.counts.attach(rs.series, p.mmapped.of(i), s.r.oooMmapped[ref])
	refs.add(p, i, replaySlot{series: rs.series, from: s.next})
	b.created = append(b.created, rs.series)
	return nil
}

// leaver begins a series that is not made.
func (s *replaySequencer) leaver(ref chunks.HeadSeriesRef) {
	s.lastSeriesID = max(s.lastSeriesID, uint64(ref))
	l := s.r.refs.leaver(ref)
	if mmapped := s.r.refs.page(ref).mmapped.of(int(ref & replayPageMask)); len(mmapped) > 0 {
		l.has(mmapped[0].minTime)
		l.has(mmapped[len(mmapped)-1].maxTime)
		s.counts.chunksCreated += int64(len(mmapped))
		s.counts.chunksRemoved += int64(len(mmapped))
	}
	l.from.Store(s.next)
	s.created++
	s.leaving++
}

// duplicate notes that records with ref are about an existing series, which
// starts again with the m-mapped chunks of ref.
func (s *replaySequencer) duplicate(b *replayBatch, ref chunks.HeadSeriesRef, existing *memSeries) {
	s.r.refs.duplicate(ref, existing, s.next)
	b.events = append(b.events, replayBatchEvent{record: s.next, kind: replayReset, extra: replayExtra{series: existing, walRef: ref}})
}

func (s *replaySequencer) tombstone(b *replayBatch, stone tombstones.Stone) {
	refs := s.r.refs
	ref := chunks.HeadSeriesRef(stone.Ref)
	s.lastSeriesID = max(s.lastSeriesID, uint64(ref))
	leaver := refs.leaver(ref)
	if len(stone.Intervals) == 1 && stone.Intervals[0].Mint == math.MinInt64 && stone.Intervals[0].Maxt == math.MaxInt64 {
		if leaver.lives(s.next) {
			leaver.to.Store(s.next)
			s.leaving--
			s.left++
		} else if series, _, _ := refs.resolve(ref, s.next); series != nil {
			s.delete(b, series)
		}
		return
	}
	if leaver.lives(s.next) {
		return
	}
	for _, interval := range stone.Intervals {
		if interval.Maxt < s.r.minValidTime {
			continue
		}
		series, to, duplicate := refs.resolve(ref, s.next)
		if duplicate {
			refs.raiseExpiry(ref, interval.Maxt)
		}
		if series == nil {
			b.unit.unknown.addTo(&b.unit.unknown.deleted, to)
			continue
		}
		s.tombstones.AddInterval(storage.SeriesRef(to), interval)
	}
}

// delete removes the series for what comes after this record. Its applier does
// what depends on its samples.
func (s *replaySequencer) delete(b *replayBatch, series *memSeries) {
	s.index.remove(series.lset.Hash(), series)
	s.r.refs.change(series.ref, s.next, func(e *replayEvent) { e.series = nil })
	s.tombstones.DeleteTombstones(map[storage.SeriesRef]struct{}{storage.SeriesRef(series.ref): {}})
	b.events = append(b.events, replayBatchEvent{record: s.next, kind: replayDelete, extra: replayExtra{series: series}})
}

// replayExemplar is an exemplar on its way to the indexer.
type replayExemplar struct {
	series *memSeries
	e      exemplar.Exemplar
}

func (s *replaySequencer) exemplar(b *replayBatch, e record.RefExemplar) {
	if e.T < s.r.minValidTime || s.r.refs.leaver(e.Ref).lives(s.next) {
		return
	}
	series, to, duplicate := s.r.refs.resolve(e.Ref, s.next)
	if duplicate {
		s.r.refs.raiseExpiry(e.Ref, e.T)
	}
	if series == nil {
		b.unit.unknown.addTo(&b.unit.unknown.exemplars, to)
		return
	}
	b.exemplify = append(b.exemplify, replayExemplar{series: series, e: exemplar.Exemplar{Ts: e.T, Value: e.V, Labels: e.Labels}})
}

func (s *replaySequencer) metadata(b *replayBatch, m record.RefMetadata) {
	series, to, _ := s.r.refs.resolve(m.Ref, s.next)
	if series == nil {
		if s.r.refs.leaver(m.Ref).lives(s.next) {
			return
		}
		b.unit.unknown.addTo(&b.unit.unknown.metadata, to)
		return
	}
	s.r.replayed.metadata[series.ref] = unique.Make(metadata.Metadata{Type: record.ToMetricType(m.Type), Unit: m.Unit, Help: m.Help})
}

// replayIndexer takes work off the sequencer that nothing waits for: postings,
// and the exemplars, whose order counts.
type replayIndexer struct {
	r         *walReplay
	in        chan *replayBatch
	postings  *index.PostingsBuilder
	exemplars *CircularExemplarStorage // Nil if none are kept.
	metrics   *ExemplarMetrics         // Of exemplars, until it is published.
}

func (x *replayIndexer) init() {
	opts := x.r.h.opts
	if opts.MaxExemplars.Load() <= 0 {
		return
	}
	x.metrics = NewExemplarMetrics(prometheus.NewRegistry())
	es, err := NewCircularExemplarStorage(opts.MaxExemplars.Load(), x.metrics, opts.OutOfOrderTimeWindow.Load())
	if err != nil {
		x.r.fail(err)
		return
	}
	x.exemplars = es.(*CircularExemplarStorage)
}

func (x *replayIndexer) run() {
	for b := range x.in {
		x.r.guard(func() {
			for _, s := range b.created {
				x.postings.Add(storage.SeriesRef(s.ref), s.labels())
			}
			for _, e := range b.exemplify {
				x.addExemplar(e)
			}
		})
		x.r.release(b)
	}
}

func (x *replayIndexer) addExemplar(e replayExemplar) {
	if x.exemplars == nil {
		return
	}
	err := x.exemplars.AddExemplar(e.series.labels(), e.e)
	if err == nil {
		x.r.replayed.exemplar(e.series.ref, e.e.Ts)
	}
	if err != nil && errors.Is(err, storage.ErrOutOfOrderExemplar) {
		x.r.h.logger.Warn("Unexpected error when replaying WAL on exemplar record", "err", err)
	}
}
