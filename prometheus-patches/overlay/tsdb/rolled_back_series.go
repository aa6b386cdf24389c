// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/record"
)

// removeCreatedSeries removes the series that the appender has created from the head,
// but for those that another one has found since. Only these are left to be logged.
// The reservations of the samples are released already.
//
// While a series is taken out it keeps the reservation of its creation, so that garbage
// collection leaves it alone. Whoever has found it already sees that it is gone when
// the series is locked, and creates another one.
func (a *headAppenderBase) removeCreatedSeries() {
	h := a.head
	var (
		deleted  = map[storage.SeriesRef]struct{}{}
		affected = map[labels.Label]struct{}{}
		callback = map[chunks.HeadSeriesRef]labels.Labels{}
	)
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
		deleted[storage.SeriesRef(s.ref)] = struct{}{}
		callback[s.ref] = s.lset
		s.lset.Range(func(l labels.Label) { affected[l] = struct{}{} })
	}
	if len(deleted) == 0 {
		return
	}
	h.metrics.seriesRemoved.Add(float64(len(deleted)))
	h.numSeries.Sub(uint64(len(deleted)))
	h.postings.Delete(deleted, affected)
	h.series.seriesLifecycleCallback.PostDeletion(callback)
	a.seriesRefs = slices.DeleteFunc(a.seriesRefs, func(s record.RefSeries) bool {
		_, ok := deleted[storage.SeriesRef(s.Ref)]
		return ok
	})
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
	delete(s.series[stripe], series.ref)
	s.locks[stripe].Unlock()
}
