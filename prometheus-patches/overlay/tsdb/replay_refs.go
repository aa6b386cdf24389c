// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/prometheus/tsdb/chunks"
)

const (
	replayPageBits = 6
	replayPageRefs = 1 << replayPageBits
	replayPageMask = replayPageRefs - 1

	replayDirBits  = 12 // Pages per entry of the directory, as a power of two.
	replayDirPages = 1 << replayDirBits

	// replayMaxRef bounds the directory. Prometheus counts references from 1, so
	// that a larger one says that something is odd.
	replayMaxRef = 1 << 34

	// replaySpecial, in place of the record that created a series, sends a
	// reference to the table of histories.
	replaySpecial = 1 << 63
)

// replayPage holds what is known about the series of 64 consecutive references.
// Appliers own whole pages, so that series that were created together, and are
// scraped together, are applied together.
type replayPage struct {
	// createdBy is the number of the record that created the series, counted from
	// 1; 0 means that there is none and replaySpecial that the histories know.
	// The sequencer writes it, last, and decoders read it.
	createdBy [replayPageRefs]atomic.Uint64
	// mmMaxTime is the time of the newest sample in the m-mapped chunks of each
	// reference. It does not change once the WAL is read.
	mmMaxTime [replayPageRefs]int64
	// series is written before createdBy, once for each reference.
	series [replayPageRefs]*memSeries

	// plain has a bit for each reference that createdBy has a record of; newest is
	// at least the last of these records, and written before.
	plain, newest atomic.Uint64
	// minMmMaxTime and maxMmMaxTime are of mmMaxTime.
	minMmMaxTime, maxMmMaxTime int64

	number uint64 // Of the page: its first reference is number << replayPageBits.
	shard  int    // The applier that owns the page.

	mmapped *replayPageChunks // Nil if the page has no m-mapped chunks.
	parked  replayParked      // Belongs to the applier.
}

// ref returns the reference at a place of the page.
func (p *replayPage) ref(i int) chunks.HeadSeriesRef {
	return chunks.HeadSeriesRef(p.number<<replayPageBits | uint64(i))
}

// create makes the reference at a place of the page one of the series, which a
// record created.
func (p *replayPage) create(i int, series *memSeries, record uint64) {
	p.series[i] = series
	p.createdBy[i].Store(record)
	p.newest.Store(record)
	p.plain.Or(1 << i)
}

// mmappedAt has a bit for each reference of which m-mapped chunks have the samples
// of a time.
func (p *replayPage) mmappedAt(t int64) (mask uint64) {
	switch {
	case t <= p.minMmMaxTime:
		return math.MaxUint64
	case t > p.maxMmMaxTime:
		return 0
	}
	for i, end := range p.mmMaxTime {
		if t <= end {
			mask |= 1 << i
		}
	}
	return mask
}

// setMmMaxTimes is to be called when mmMaxTime is complete.
func (p *replayPage) setMmMaxTimes() {
	p.minMmMaxTime, p.maxMmMaxTime = slices.Min(p.mmMaxTime[:]), slices.Max(p.mmMaxTime[:])
}

type replayDir [replayDirPages]atomic.Pointer[replayPage]

// replayRefs finds the page of a reference. One goroutine adds pages, any number
// may look them up.
type replayRefs struct {
	dirs   atomic.Pointer[[]*replayDir]
	shards int
	pages  []*replayPage // In the order in which they were added.

	// histories holds the references that did not keep to the usual life: one
	// series record, then its samples. They are few.
	mtx       sync.RWMutex
	histories map[chunks.HeadSeriesRef]*replayHistory
}

func newReplayRefs(shards int) *replayRefs {
	r := &replayRefs{shards: shards, histories: map[chunks.HeadSeriesRef]*replayHistory{}}
	r.dirs.Store(&[]*replayDir{})
	return r
}

// page returns the page of the reference, or nil if there is none.
func (r *replayRefs) page(ref chunks.HeadSeriesRef) *replayPage {
	number := uint64(ref) >> replayPageBits
	dirs := *r.dirs.Load()
	if at := number >> replayDirBits; at < uint64(len(dirs)) && dirs[at] != nil {
		return dirs[at][number&(replayDirPages-1)].Load()
	}
	return nil
}

// addPage returns the page of the reference, which must be below replayMaxRef.
func (r *replayRefs) addPage(ref chunks.HeadSeriesRef) *replayPage {
	if p := r.page(ref); p != nil {
		return p
	}
	number := uint64(ref) >> replayPageBits
	dirs := *r.dirs.Load()
	if at := int(number >> replayDirBits); at >= len(dirs) || dirs[at] == nil {
		grown := make([]*replayDir, max(at+1, len(dirs)))
		copy(grown, dirs)
		grown[at] = &replayDir{}
		r.dirs.Store(&grown)
		dirs = grown
	}
	p := &replayPage{number: number, shard: int(number % uint64(r.shards))}
	for i := range p.mmMaxTime {
		p.mmMaxTime[i] = math.MinInt64
	}
	p.setMmMaxTimes()
	dirs[number>>replayDirBits][number&(replayDirPages-1)].Store(p)
	r.pages = append(r.pages, p)
	return p
}

// replayHistory is what became of a reference, in the order of the records. A
// reference has one when a series record names it for labels that the head
// already has, when such a record comes again, or when its series is deleted.
type replayHistory struct {
	events []replayEvent
}

// replayEvent says what a reference means from a record on.
type replayEvent struct {
	from uint64 // Number of the record.
	// series is the one that the reference itself stands for; nil means none.
	series *memSeries
	// duplicateOf is the reference that stands in for this one in all records but
	// those of series, or 0. It can be the reference itself.
	duplicateOf chunks.HeadSeriesRef
	// expiry is shared by all events of the reference: the time until which its
	// series record must be kept.
	expiry *atomic.Int64
}

// resolve returns the series that a reference in the given record stands for,
// and the reference that this is looked up by. A nil series is an unknown one. The
// expiry is not nil if the record is about a duplicate, and must then be raised
// to the record's time.
func (r *replayRefs) resolve(ref chunks.HeadSeriesRef, record uint64) (*memSeries, chunks.HeadSeriesRef, *atomic.Int64) {
	p := r.page(ref)
	if p == nil {
		return nil, ref, nil
	}
	i := int(ref & replayPageMask)
	switch created := p.createdBy[i].Load(); {
	case created == 0:
		return nil, ref, nil
	case created < replaySpecial:
		if created > record {
			return nil, ref, nil
		}
		return p.series[i], ref, nil
	}
	e := r.eventAt(ref, record)
	if e.duplicateOf == 0 {
		return e.series, ref, nil
	}
	if e.duplicateOf == ref {
		return e.series, ref, e.expiry
	}
	return r.seriesOf(e.duplicateOf, record), e.duplicateOf, e.expiry
}

// seriesOf returns the series that the reference itself stands for in a record.
func (r *replayRefs) seriesOf(ref chunks.HeadSeriesRef, record uint64) *memSeries {
	p := r.page(ref)
	if p == nil {
		return nil
	}
	i := int(ref & replayPageMask)
	switch created := p.createdBy[i].Load(); {
	case created >= replaySpecial:
		return r.eventAt(ref, record).series
	case created == 0 || created > record:
		return nil
	default:
		return p.series[i]
	}
}

func (r *replayRefs) eventAt(ref chunks.HeadSeriesRef, record uint64) replayEvent {
	r.mtx.RLock()
	defer r.mtx.RUnlock()
	h := r.histories[ref]
	if h == nil {
		return replayEvent{}
	}
	for i := len(h.events) - 1; i >= 0; i-- {
		if h.events[i].from <= record {
			return h.events[i]
		}
	}
	return replayEvent{}
}

// change appends to the history of a reference, which gets one with the life
// that it had so far.
func (r *replayRefs) change(ref chunks.HeadSeriesRef, record uint64, f func(*replayEvent)) {
	p := r.addPage(ref)
	i := int(ref & replayPageMask)
	r.mtx.Lock()
	defer r.mtx.Unlock()
	h := r.histories[ref]
	if h == nil {
		h = &replayHistory{}
		if created := p.createdBy[i].Load(); created != 0 {
			h.events = append(h.events, replayEvent{from: created, series: p.series[i]})
		}
		r.histories[ref] = h
	}
	var e replayEvent
	if n := len(h.events); n > 0 {
		e = h.events[n-1]
	}
	e.from = record
	f(&e)
	h.events = append(h.events, e)
	p.plain.And(^(uint64(1) << i))
	p.createdBy[i].Store(replaySpecial)
}

// raiseExpiry moves the expiry up to t.
func raiseExpiry(expiry *atomic.Int64, t int64) {
	for {
		cur := expiry.Load()
		if t <= cur || expiry.CompareAndSwap(cur, t) {
			return
		}
	}
}
