// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/index"
)

// replaySweepFrom is how many series have to be deleted before they are looked for,
// beside so many that are left.
var replaySweepFrom = func(living int) int { return max(4096, living/4) }

// sweep lets go of the series that were deleted, once they are many beside those that
// are left. The log of a server that takes series out of its head when they end has
// all that ever were, of which few were there at a time.
//
// It waits until nothing is under way. Then no batch can refer to a series before the
// record that deleted it.
func (s *replaySequencer) sweep() {
	if s.deleted < replaySweepFrom(s.index.living()) {
		return
	}
	s.deleted = 0
	s.r.downstream.Wait()
	s.index.compact()
	for _, a := range s.r.appliers {
		a.flush()
		for ref := range a.counts.deleted {
			s.r.refs.forget(chunks.HeadSeriesRef(ref))
		}
		s.swept += len(a.counts.deleted)
		clear(a.counts.deleted)
		a.counts.affected = map[labels.Label]struct{}{} // A map that is cleared keeps its room.
	}
	x := s.r.index
	x.postings = index.NewPostingsBuilder()
	for _, series := range s.index.all() {
		x.postings.Add(storage.SeriesRef(series.series.ref), series.series.lset)
	}
}

// living returns how many series were not removed.
func (x *replayIndex) living() int { return x.n - x.removed }

// compact gives back what removed series take.
func (x *replayIndex) compact() {
	left := replayIndex{table: make([]uint32, 1<<10)}
	for _, s := range x.all() {
		left.add(*s, left.free(s.hash))
	}
	*x = left
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

// forget lets go of the series of a deleted reference, and of its history if that
// ends with the deletion. Later records find none, as before.
func (r *replayRefs) forget(ref chunks.HeadSeriesRef) {
	r.mtx.Lock()
	defer r.mtx.Unlock()
	events := r.histories[ref]
	if len(events) == 0 || events[len(events)-1].series != nil || events[len(events)-1].duplicateOf != 0 {
		return
	}
	delete(r.histories, ref)
	r.page(ref).slot(int(ref & replayPageMask)).series = nil
}
