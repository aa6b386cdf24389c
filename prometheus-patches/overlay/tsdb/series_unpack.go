// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !slicelabels && !dedupelabels

package tsdb

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// labelsReader puts the labels of series together for one read: those that it finds
// nowhere, many into one array.
type labelsReader struct {
	whole  *wholeTable
	missed int // Series that have no place there.
	buf    []byte
	once   bool
}

// readOnce says that the labels are read once, such as for a compaction: none are worth
// to be kept.
func (h *headIndexReader) readOnce(once bool) *headIndexReader {
	h.labels.once = once
	return h
}

// An array has room for a few series at first, and twice as much each time, up to where
// an allocation costs next to nothing for each. Who keeps the labels of one series keeps
// its array.
const (
	fewestArrayBytes = 1 << 10
	mostArrayBytes   = 8 << 10
)

// of returns the labels of a series of the head.
func (r *labelsReader) of(h *Head, s *memSeries) labels.Labels {
	base, edits := s.lset.texts()
	if edits == "" {
		return asLabels(base)
	}
	if !r.once && r.keep(h, s) {
		return s.labels()
	}
	most := len(base) + len(edits)
	if cap(r.buf)-len(r.buf) < most {
		size := min(max(2*cap(r.buf), fewestArrayBytes), mostArrayBytes)
		r.buf = make([]byte, 0, max(size, most))
	}
	from := len(r.buf)
	r.buf = s.lset.appendTo(r.buf)
	data := r.buf[from:]
	return asLabels(unsafe.String(unsafe.SliceData(data), len(data)))
}

// keep keeps the labels of the series as a whole, if it has a place. A read of more series
// than there are places stops to ask for some.
func (r *labelsReader) keep(h *Head, s *memSeries) bool {
	if r.whole == nil {
		r.whole = h.whole.at(time.Now(), h.NumSeries())
	}
	if r.whole.keep(s) {
		return true
	}
	r.missed++
	r.once = r.missed > len(r.whole.places)
	return false
}

// wholeLabels has the series whose labels are kept as a whole for some minutes, as they
// are read again and again: those of dashboards need not be put together each time. They
// are a quarter of all series at most.
type wholeLabels struct {
	table atomic.Pointer[wholeTable]
	mtx   sync.Mutex // Held by who makes a table or begins a period.
}

const (
	// wholePeriod is how long one that was read once is remembered, or twice as long.
	wholePeriod = 2 * time.Minute
	// wholePeriods is for how many of them labels are kept. Then a series that is still
	// read gets its place again as the first time.
	wholePeriods = 4
	// wholeShare is for how many series there is one place.
	wholeShare = 4
)

type wholeTable struct {
	period atomic.Int64
	places []wholePlace
}

// wholePlace is for one of the series with the same hash of their references.
type wholePlace struct {
	series atomic.Pointer[wholeSeries]
	// claim is the reference and the period of the first that was read while there was
	// none. What is read once takes no memory.
	claim atomic.Uint64
}

// wholeSeries is a series whose labels are kept as a whole.
type wholeSeries struct {
	series *memSeries
	edits  text // That it had.
	until  int64
}

// noPlace is in the places of tables that are no longer in use.
var noPlace = &wholeSeries{until: math.MaxInt64}

// pack makes the labels what they were.
func (w *wholeSeries) pack() {
	if w != nil && w != noPlace {
		w.series.lset.storeEdits(w.edits)
	}
}

// at returns the table for a read that begins now.
func (w *wholeLabels) at(now time.Time, series uint64) *wholeTable {
	period := now.UnixNano() / int64(wholePeriod)
	t := w.table.Load()
	switch {
	case t == nil:
		w.mtx.Lock()
	case t.period.Load() == period || !w.mtx.TryLock():
		return t
	}
	defer w.mtx.Unlock()
	t = w.table.Load()
	if places := max(1, int(series/wholeShare)); t == nil || places > 2*len(t.places) {
		w.retire()
		t = &wholeTable{places: make([]wholePlace, places)}
		w.table.Store(t)
	}
	t.begin(period)
	return t
}

// forget packs the labels of all.
func (w *wholeLabels) forget() {
	w.mtx.Lock()
	defer w.mtx.Unlock()
	w.retire()
}

// retire packs the labels of all. It is called with the lock held.
func (w *wholeLabels) retire() {
	t := w.table.Swap(nil)
	if t == nil {
		return
	}
	for i := range t.places {
		t.places[i].series.Swap(noPlace).pack()
	}
}

// begin begins a period, and packs the labels of those that were kept long enough.
func (t *wholeTable) begin(period int64) {
	if t.period.Swap(period) == period {
		return
	}
	for i := range t.places {
		place := &t.places[i].series
		if s := place.Load(); s != nil && s.until < period && place.CompareAndSwap(s, nil) {
			s.pack()
		}
	}
}

// placesOf returns the two places that a series may have.
func (t *wholeTable) placesOf(ref chunks.HeadSeriesRef) [2]*wholePlace {
	hash := uint64(ref) * 0x9e3779b97f4a7c15
	n := uint64(len(t.places))
	return [2]*wholePlace{&t.places[hash>>32*n>>32], &t.places[hash&math.MaxUint32*n>>32]}
}

// claimBits are for the period of a claim.
const claimBits = 8

// keep keeps the labels of the series as a whole from now on, if it is not read for the
// first time and has a place that is free.
func (t *wholeTable) keep(s *memSeries) bool {
	period := t.period.Load()
	for _, p := range t.placesOf(s.ref) {
		old := p.series.Load()
		if old != nil && old.until >= period {
			continue
		}
		switch claim := p.claim.Load(); {
		case claim>>claimBits == uint64(s.ref):
			return p.keep(s, old, period+wholePeriods)
		case isOld(claim, period):
			p.claim.Store(uint64(s.ref)<<claimBits | uint64(period)&(1<<claimBits-1))
			return false
		}
	}
	return false
}

// keep keeps the labels of the series at the place of another, or of none.
func (p *wholePlace) keep(s *memSeries, old *wholeSeries, until int64) bool {
	kept := &wholeSeries{series: s, edits: s.lset.loadEdits(), until: until}
	if edits := kept.edits.string(); edits == "" || edits[0] == editWhole || !p.series.CompareAndSwap(old, kept) {
		return false
	}
	old.pack()
	s.lset.storeEdits(newText(string(s.lset.appendTo(append(make([]byte, 0, unpackedSize), editWhole)))))
	if p.series.Load() != kept {
		kept.pack() // Who took the place could not, before that.
	}
	return true
}

// isOld says whether a claim is neither of the period nor of the one before.
func isOld(claim uint64, period int64) bool {
	age := (uint64(period) - claim) & (1<<claimBits - 1)
	return claim == 0 || age > 1
}
