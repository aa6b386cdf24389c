// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"iter"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// seriesTable is a hash table with open addressing of which the series themselves are
// the keys: it has a pointer and a tag, which are 32 bits of the hash, for each. It grows
// by a quarter, as all stripes grow at the same time: maps that double are a third empty
// on average, and half on a bad day.
type seriesTable struct {
	slots []*memSeries // The first that is nil ends the search for what belongs before it.
	tags  []uint32     // Of the series in the slots.
	count int
}

// smallestSeriesTable is how many slots a table has that is not empty.
const smallestSeriesTable = 8

func (t *seriesTable) len() int { return t.count }

// home returns the slot in which a series would be, were there no others.
func (t *seriesTable) home(tag uint32) int {
	return int(uint64(tag) * uint64(len(t.slots)) >> 32)
}

func (t *seriesTable) next(i int) int {
	i++
	if i < len(t.slots) {
		return i
	}
	return 0
}

// reserve makes room for n more series. At most seven of eight slots are used.
func (t *seriesTable) reserve(n int) {
	n += t.count
	if n*8 > len(t.slots)*7 {
		t.resize(max(n*8/7+1, smallestSeriesTable))
	}
}

func (t *seriesTable) resize(n int) {
	old := *t
	t.slots = slices.Grow([]*memSeries(nil), n)
	t.slots = t.slots[:cap(t.slots)] // What is allocated is used.
	t.tags = make([]uint32, len(t.slots))
	for i, s := range old.slots {
		if s != nil {
			t.put(old.tags[i], s)
		}
	}
}

func (t *seriesTable) add(tag uint32, s *memSeries) {
	if (t.count+1)*8 > len(t.slots)*7 {
		t.reserve(1 + t.count/4)
	}
	t.put(tag, s)
	t.count++
}

// put puts a series behind those that belong into the same slot.
func (t *seriesTable) put(tag uint32, s *memSeries) {
	i := t.home(tag)
	for t.slots[i] != nil {
		i = t.next(i)
	}
	t.slots[i], t.tags[i] = s, tag
}

// remove empties a slot, and moves those series back that were put behind it for want
// of a place.
func (t *seriesTable) remove(i int) {
	n := len(t.slots)
	for j := t.next(i); t.slots[j] != nil; j = t.next(j) {
		if home := t.home(t.tags[j]); (j-home+n)%n >= (j-i+n)%n {
			t.slots[i], t.tags[i] = t.slots[j], t.tags[j]
			i = j
		}
	}
	t.slots[i] = nil
	t.count--
}

// slotOf returns the slot of the series with the tag and the reference, or -1.
func (t *seriesTable) slotOf(tag uint32, ref chunks.HeadSeriesRef) int {
	if t.count == 0 {
		return -1
	}
	for i := t.home(tag); t.slots[i] != nil; i = t.next(i) {
		if t.tags[i] == tag && t.slots[i].ref == ref {
			return i
		}
	}
	return -1
}

// all returns the series with their tags. The one that was returned last may be removed:
// it goes backwards from an empty slot, so that only those are moved that it has passed.
func (t *seriesTable) all() iter.Seq2[uint32, *memSeries] {
	return func(yield func(uint32, *memSeries) bool) {
		if t.count == 0 {
			return
		}
		n := len(t.slots)
		empty := slices.Index(t.slots, nil)
		for k := 1; k < n; k++ {
			i := (empty - k + n) % n
			if s := t.slots[i]; s != nil && !yield(t.tags[i], s) {
				return
			}
		}
	}
}

// seriesByRef finds series by their references.
type seriesByRef struct{ seriesTable }

// refTag spreads references, which are numbers in a row, evenly.
func refTag(ref chunks.HeadSeriesRef) uint32 {
	return uint32(uint64(ref) * 0x9e3779b97f4a7c15 >> 32)
}

func (t *seriesByRef) get(ref chunks.HeadSeriesRef) *memSeries {
	if i := t.slotOf(refTag(ref), ref); i >= 0 {
		return t.slots[i]
	}
	return nil
}

func (t *seriesByRef) set(s *memSeries) {
	tag := refTag(s.ref)
	if i := t.slotOf(tag, s.ref); i >= 0 {
		t.slots[i] = s
		return
	}
	t.add(tag, s)
}

func (t *seriesByRef) del(ref chunks.HeadSeriesRef) {
	if i := t.slotOf(refTag(ref), ref); i >= 0 {
		t.remove(i)
	}
}

// seriesHashmap finds series by their labels. Its methods want the labels' hash, which is
// known where they are called. All series of a stripe have its lowest bits in common.
type seriesHashmap struct{ seriesTable }

func hashTag(hash uint64) uint32 { return uint32(hash >> 32) }

// hashOfTag returns a hash with the tag.
func hashOfTag(tag uint32) uint64 { return uint64(tag) << 32 }

func (t *seriesHashmap) slot(tag uint32, has func(*memSeries) bool) int {
	if t.count == 0 {
		return -1
	}
	for i := t.home(tag); t.slots[i] != nil; i = t.next(i) {
		if t.tags[i] == tag && has(t.slots[i]) {
			return i
		}
	}
	return -1
}

func (t *seriesHashmap) get(hash uint64, lset labels.Labels) *memSeries {
	if i := t.slot(hashTag(hash), func(s *memSeries) bool { return s.hasLabels(lset) }); i >= 0 {
		return t.slots[i]
	}
	return nil
}

// set replaces a series that has the same labels.
func (t *seriesHashmap) set(hash uint64, s *memSeries) {
	tag := hashTag(hash)
	if i := t.slot(tag, s.sameLabels); i >= 0 {
		t.slots[i] = s
		return
	}
	t.add(tag, s)
}

func (t *seriesHashmap) del(hash uint64, ref chunks.HeadSeriesRef) {
	if i := t.slotOf(hashTag(hash), ref); i >= 0 {
		t.remove(i)
	}
}
