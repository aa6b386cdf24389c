// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"math"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/prometheus/tsdb/chunks"
)

const (
	replayPageBits = 6
	replayPageRefs = 1 << replayPageBits
	replayPageMask = replayPageRefs - 1

	// replayMaxRef bounds references. Prometheus counts them from 1, so that a
	// larger one says that something is odd.
	replayMaxRef = 1 << 34
)

// replayPage holds what is known about the series of 64 consecutive references.
// Appliers own whole pages, so that series that were created together, and are
// scraped together, are applied together.
//
// The sequencer alone writes, any number may read: a bit is set when what it
// speaks of is complete, and no slot changes once its bit is set.
type replayPage struct {
	slots atomic.Pointer[replaySlots]
	// known has a bit for each reference that has a slot. Those in special do not
	// lead the usual life, one series record and then its samples: for some the
	// slot says how, for those in storied their history.
	known, special, storied atomic.Uint64
	// newest is the last record that a slot was made for, written before its bit.
	newest atomic.Uint64

	number uint64 // Of the page: its first reference is number << replayPageBits.
	shard  int    // The applier that owns the page.

	mmapped *replayPageChunks // Nil if the page has no m-mapped chunks.
	leavers *replayLeavers    // Nil if no series leaves.
	parked  replayParked      // Belongs to the applier.
}

// replaySlot says what a reference means from a record on.
type replaySlot struct {
	// series is what the record created or, if it is of another reference, what it
	// names again.
	series *memSeries
	from   uint64 // Number of the record, counted from 1.
}

// replaySlots has the slots of the references that there are, one after the
// other. When they do not come in the order of the references, each has the place
// of its reference.
type replaySlots struct {
	slots  []replaySlot
	placed bool
}

// slot returns the slot of the reference at a place of the page, if there is one.
func (p *replayPage) slot(i int) *replaySlot {
	known := p.known.Load() // Before the slots, which then have all of these.
	if known>>i&1 == 0 {
		return nil
	}
	s := p.slots.Load()
	if s.placed {
		return &s.slots[i]
	}
	return &s.slots[bits.OnesCount64(known&(1<<i-1))]
}

// series returns the series that was created for a reference at a place of the
// page that has one.
func (p *replayPage) series(i int) *memSeries { return p.slot(i).series }

// add makes a slot for a reference that has none. Room is made for as many as
// the page before had: series mostly have references in a row, or all some apart.
func (p *replayPage) add(i, room int, slot replaySlot) {
	known := p.known.Load()
	s := p.slots.Load()
	n := bits.OnesCount64(known)
	switch {
	case s != nil && s.placed:
		s.slots[i] = slot
	case known>>i != 0: // Out of order.
		placed := &replaySlots{slots: make([]replaySlot, replayPageRefs), placed: true}
		for left := known; left != 0; left &= left - 1 {
			j := bits.TrailingZeros64(left)
			placed.slots[j] = *p.slot(j)
		}
		placed.slots[i] = slot
		p.slots.Store(placed)
	case s == nil || n == len(s.slots):
		grown := &replaySlots{slots: make([]replaySlot, min(replayPageRefs, max(2, 2*n, room)))}
		if s != nil {
			copy(grown.slots, s.slots)
		}
		grown.slots[n] = slot
		p.slots.Store(grown)
	default:
		s.slots[n] = slot
	}
	p.newest.Store(slot.from)
	p.known.Store(known | 1<<i)
}

// ref returns the reference at a place of the page.
func (p *replayPage) ref(i int) chunks.HeadSeriesRef {
	return chunks.HeadSeriesRef(p.number<<replayPageBits | uint64(i))
}

// plain has a bit for each reference that leads the usual life.
func (p *replayPage) plain() uint64 { return p.known.Load() &^ p.special.Load() }

// replayRefs finds the page of a reference. One goroutine adds pages, any number
// may look them up.
type replayRefs struct {
	// table finds pages by their number: open addressing, a power of two.
	table  atomic.Pointer[[]atomic.Pointer[replayPage]]
	shards int
	pages  []*replayPage // In the order in which they were added.

	// histories holds the references that several records change the meaning of.
	// They are few.
	mtx       sync.RWMutex
	histories map[chunks.HeadSeriesRef][]replayEvent

	expiries [64]replayExpiries
}

// replayExpiries holds until when the series records of some duplicates must be
// kept: those that records were about.
type replayExpiries struct {
	mtx sync.Mutex
	of  map[chunks.HeadSeriesRef]int64
}

// raiseExpiry moves the expiry of a duplicate up to t.
func (r *replayRefs) raiseExpiry(ref chunks.HeadSeriesRef, t int64) {
	e := &r.expiries[ref%chunks.HeadSeriesRef(len(r.expiries))]
	e.mtx.Lock()
	defer e.mtx.Unlock()
	if e.of == nil {
		e.of = map[chunks.HeadSeriesRef]int64{}
	}
	e.of[ref] = max(t, e.of[ref]) // As upstream's start from 0.
}

func newReplayRefs(shards int) *replayRefs {
	r := &replayRefs{shards: shards, histories: map[chunks.HeadSeriesRef][]replayEvent{}}
	table := make([]atomic.Pointer[replayPage], 64)
	r.table.Store(&table)
	return r
}

// page returns the page of the reference, or nil if there is none.
func (r *replayRefs) page(ref chunks.HeadSeriesRef) *replayPage {
	return findPage(*r.table.Load(), uint64(ref)>>replayPageBits).Load()
}

// findPage returns where the page of a number is, or belongs.
func findPage(table []atomic.Pointer[replayPage], number uint64) *atomic.Pointer[replayPage] {
	mask := uint64(len(table) - 1)
	for i := number * 0x9e3779b97f4a7c15 >> 32 & mask; ; i = (i + 1) & mask {
		if p := table[i].Load(); p == nil || p.number == number {
			return &table[i]
		}
	}
}

// addPage returns the page of the reference, which must be below replayMaxRef.
func (r *replayRefs) addPage(ref chunks.HeadSeriesRef) *replayPage {
	if p := r.page(ref); p != nil {
		return p
	}
	number := uint64(ref) >> replayPageBits
	p := &replayPage{number: number, shard: int(number % uint64(r.shards))}
	table := *r.table.Load()
	if r.pages = append(r.pages, p); 2*len(r.pages) <= len(table) {
		findPage(table, number).Store(p)
		return p
	}
	table = make([]atomic.Pointer[replayPage], 2*len(table))
	for _, p := range r.pages {
		findPage(table, p.number).Store(p)
	}
	r.table.Store(&table)
	return p
}

// add makes a slot for a reference that has none. The page is the reference's.
func (r *replayRefs) add(p *replayPage, i int, slot replaySlot) {
	room := 0
	if n := len(r.pages); n > 1 && r.pages[n-1] == p {
		room = bits.OnesCount64(r.pages[n-2].known.Load())
	}
	p.add(i, room, slot)
}

// duplicate makes a reference stand in for a series that there is, whatever it
// meant before.
func (r *replayRefs) duplicate(ref chunks.HeadSeriesRef, existing *memSeries, record uint64) {
	p, i := r.addPage(ref), int(ref&replayPageMask)
	if p.slot(i) == nil {
		p.special.Or(1 << i)
		r.add(p, i, replaySlot{series: existing, from: record})
	} else {
		r.change(ref, record, func(e *replayEvent) { e.duplicateOf = existing.ref })
	}
	// It starts again with other m-mapped chunks.
	r.page(existing.ref).special.Or(1 << (existing.ref & replayPageMask))
}

// replayEvent says what a reference means from a record on.
type replayEvent struct {
	from uint64 // Number of the record.
	// series is the one that the reference itself stands for; nil means none.
	series *memSeries
	// duplicateOf is the reference that stands in for this one in all records but
	// those of series, or 0. It can be the reference itself.
	duplicateOf chunks.HeadSeriesRef
}

// event returns what the slot says of its reference.
func (s *replaySlot) event(ref chunks.HeadSeriesRef) replayEvent {
	if s.series.ref != ref {
		return replayEvent{from: s.from, duplicateOf: s.series.ref}
	}
	return replayEvent{from: s.from, series: s.series}
}

// resolve returns the series that a reference in the given record stands for,
// and the reference that this is looked up by. A nil series is an unknown one. If
// the record is about a duplicate, the expiry of ref must be raised to its time.
func (r *replayRefs) resolve(ref chunks.HeadSeriesRef, record uint64) (series *memSeries, to chunks.HeadSeriesRef, duplicate bool) {
	e := r.lookUp(ref, record)
	switch e.duplicateOf {
	case 0:
		return e.series, ref, false
	case ref:
		return e.series, ref, true
	}
	return r.lookUp(e.duplicateOf, record).series, e.duplicateOf, true
}

// lookUp returns what the reference means in a record.
func (r *replayRefs) lookUp(ref chunks.HeadSeriesRef, record uint64) replayEvent {
	if p := r.page(ref); p != nil {
		return r.eventAt(p, int(ref&replayPageMask), record)
	}
	return replayEvent{}
}

// eventAt returns what the reference at a place of the page means in a record.
func (r *replayRefs) eventAt(p *replayPage, i int, record uint64) replayEvent {
	if p.storied.Load()>>i&1 == 0 {
		if s := p.slot(i); s != nil && s.from <= record {
			return s.event(p.ref(i))
		}
		return replayEvent{}
	}
	r.mtx.RLock()
	defer r.mtx.RUnlock()
	for _, e := range slices.Backward(r.histories[p.ref(i)]) {
		if e.from <= record {
			return e
		}
	}
	return replayEvent{}
}

// change appends to the history of a reference that has a slot. It gets a history
// with what that says.
func (r *replayRefs) change(ref chunks.HeadSeriesRef, record uint64, f func(*replayEvent)) {
	p, i := r.page(ref), int(ref&replayPageMask)
	r.mtx.Lock()
	defer r.mtx.Unlock()
	events := r.histories[ref]
	if events == nil {
		events = []replayEvent{p.slot(i).event(ref)}
	}
	last := events[len(events)-1]
	e := last
	f(&e)
	if e == last {
		return
	}
	e.from = record
	r.histories[ref] = append(events, e)
	p.special.Or(1 << i)
	p.storied.Or(1 << i)
}

// duplicates returns the references that stand for a series of another, or of
// their own again, with the one that stands in for them.
func (r *replayRefs) duplicates() map[chunks.HeadSeriesRef]chunks.HeadSeriesRef {
	m := map[chunks.HeadSeriesRef]chunks.HeadSeriesRef{}
	for _, p := range r.pages {
		for left := p.known.Load() & p.special.Load(); left != 0; left &= left - 1 {
			i := bits.TrailingZeros64(left)
			if e := r.eventAt(p, i, math.MaxUint64); e.duplicateOf != 0 {
				m[p.ref(i)] = e.duplicateOf
			}
		}
	}
	return m
}
