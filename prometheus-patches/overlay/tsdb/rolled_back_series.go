// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"slices"
	"sync"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/index"
	"github.com/prometheus/prometheus/tsdb/record"
)

// rolledBack are series that were removed from the head, and are still in its postings.
// To take a few out of those costs as much as to take many: all that have a label in
// common with one of them are looked at, while nobody else can read or write postings.
// What reads postings skips series that are gone.
type rolledBack struct {
	mtx  sync.Mutex
	refs map[storage.SeriesRef]struct{}
	with map[labels.Label]int // How many of them have the label.

	leaving sync.Mutex           // Held while some are taken out of the postings,
	left    map[labels.Label]int // which are these.
}

// rolledBackShare is how many series may be in the postings only, as 1 of so many.
const rolledBackShare = 16

// removeCreatedSeries removes the series that the appender has created from the head,
// but for those that another one has found since. Only these are left to be logged.
// The reservations of the samples are released already.
//
// While a series is taken out it keeps the reservation of its creation, so that garbage
// collection leaves it alone. Whoever has found it already sees that it is gone when
// the series is locked, and creates another one.
func (a *headAppenderBase) removeCreatedSeries() {
	h := a.head
	removed := map[chunks.HeadSeriesRef]labels.Labels{}
	for _, s := range a.series {
		s.Lock()
		removable := s.isCreatedOnly()
		if removable {
			s.setGCed()
		}
		s.Unlock()
		if !removable {
			continue
		}
		h.series.remove(s)
		removed[s.ref] = s.lset.Labels()
	}
	if len(removed) == 0 {
		return
	}
	h.metrics.seriesRemoved.Add(float64(len(removed)))
	h.numSeries.Sub(uint64(len(removed)))
	h.series.seriesLifecycleCallback.PostDeletion(removed)
	a.seriesRefs = slices.DeleteFunc(a.seriesRefs, func(s record.RefSeries) bool {
		_, ok := removed[s.Ref]
		return ok
	})
	if h.rolledBack.add(removed) >= h.NumSeries()/rolledBackShare && h.rolledBack.leaving.TryLock() {
		h.rolledBack.leave(h.postings)
	}
}

// leaveRolledBack takes all series that were rolled back out of the postings.
func (h *Head) leaveRolledBack() {
	h.rolledBack.leaving.Lock()
	h.rolledBack.leave(h.postings)
}

// add adds series, and returns how many there are.
func (r *rolledBack) add(removed map[chunks.HeadSeriesRef]labels.Labels) uint64 {
	r.mtx.Lock()
	defer r.mtx.Unlock()
	if r.refs == nil {
		r.refs, r.with = map[storage.SeriesRef]struct{}{}, map[labels.Label]int{}
	}
	for ref, lset := range removed {
		r.refs[storage.SeriesRef(ref)] = struct{}{}
		lset.Range(func(l labels.Label) { r.with[l]++ })
	}
	return uint64(len(r.refs))
}

// leave takes the series out of the postings. It is called with leaving locked, and
// unlocks it.
func (r *rolledBack) leave(p *index.MemPostings) {
	defer r.leaving.Unlock()
	r.mtx.Lock()
	refs, with := r.refs, r.with
	r.refs, r.with, r.left = nil, nil, with
	r.mtx.Unlock()
	if len(refs) == 0 {
		return
	}
	affected := make(map[labels.Label]struct{}, len(with))
	for l := range with {
		affected[l] = struct{}{}
	}
	p.Delete(refs, affected)
	r.mtx.Lock()
	r.left = nil
	r.mtx.Unlock()
}

// count returns how many series with the label may be in the postings only.
func (r *rolledBack) count(l labels.Label) int {
	r.mtx.Lock()
	defer r.mtx.Unlock()
	return r.with[l] + r.left[l]
}

// isCreatedOnly says that the series has nothing, and that nobody but its creator is
// about to append to it. It is called with the series locked.
func (s *memSeries) isCreatedOnly() bool {
	return s.pendingCommitCount() == 1 && s.headChunks == nil && len(s.mmappedChunks) == 0 && s.ooo == nil && !s.hasExemplar
}

// remove removes a series from the maps. It takes one lock at a time, in the order in
// which setUnlessAlreadySet does.
func (s *stripeSeries) remove(series *memSeries) {
	hash := series.lset.Hash()
	i := hash & uint64(s.size-1)
	s.locks[i].Lock()
	s.hashes[i].del(hash, series.ref)
	s.locks[i].Unlock()

	stripe := s.refStripe(series.ref)
	s.locks[stripe].Lock()
	s.series[stripe].del(series.ref)
	s.locks[stripe].Unlock()
}
