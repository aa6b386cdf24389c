// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"iter"
	"math"
	"math/bits"
	"sync/atomic"

	"github.com/prometheus/prometheus/tsdb/chunks"
)

// replayRefSet is a set of references: a bit for each, by the number of its page.
type replayRefSet map[uint64]uint64

func (s replayRefSet) add(ref chunks.HeadSeriesRef) {
	s[uint64(ref)>>replayPageBits] |= 1 << (ref & replayPageMask)
}

func (s replayRefSet) remove(ref chunks.HeadSeriesRef) {
	s[uint64(ref)>>replayPageBits] &^= 1 << (ref & replayPageMask)
}

func (s replayRefSet) has(ref chunks.HeadSeriesRef) bool {
	return s[uint64(ref)>>replayPageBits]>>(ref&replayPageMask)&1 != 0
}

func (s replayRefSet) len() (n int) {
	for _, page := range s {
		n += bits.OnesCount64(page)
	}
	return n
}

// replayLeavers are the series of a page that survey has found.
type replayLeavers struct {
	has uint64         // A bit for each reference that has one.
	of  []replayLeaver // The n-th of them.
}

// replayLeaver stands for a series that is not made, as it leaves again. What upstream's
// replay would keep of it are its times.
type replayLeaver struct {
	from, to   atomic.Uint64 // The records that make it and write it off; 0 until they are seen.
	mint, maxt atomic.Int64  // Of its samples.
}

// leave notes that series of a page leave, and returns how many.
func (r *replayRefs) leave(page, has uint64) int {
	if has == 0 {
		return 0
	}
	l := &replayLeavers{has: has, of: make([]replayLeaver, bits.OnesCount64(has))}
	for i := range l.of {
		l.of[i].mint.Store(math.MaxInt64)
		l.of[i].maxt.Store(math.MinInt64)
	}
	r.addPage(chunks.HeadSeriesRef(page << replayPageBits)).leavers = l
	return len(l.of)
}

// leaver returns what stands for the series of a reference, or nil if that is made.
func (r *replayRefs) leaver(ref chunks.HeadSeriesRef) *replayLeaver {
	p, i := r.page(ref), int(ref&replayPageMask)
	if p == nil || p.leavers == nil || p.leavers.has>>i&1 == 0 {
		return nil
	}
	return &p.leavers.of[bits.OnesCount64(p.leavers.has&(1<<i-1))]
}

// leavers returns those whose series record was seen.
func (r *replayRefs) leavers() iter.Seq2[chunks.HeadSeriesRef, *replayLeaver] {
	return func(yield func(chunks.HeadSeriesRef, *replayLeaver) bool) {
		for _, p := range r.pages {
			if p.leavers == nil {
				continue
			}
			left := p.leavers.has
			for i := range p.leavers.of {
				l := &p.leavers.of[i]
				if l.from.Load() != 0 && !yield(p.ref(bits.TrailingZeros64(left)), l) {
					return
				}
				left &= left - 1
			}
		}
	}
}

// lives reports whether a record is about the series; nil never is one.
func (l *replayLeaver) lives(record uint64) bool {
	if l == nil {
		return false
	}
	from, to := l.from.Load(), l.to.Load()
	return from != 0 && from <= record && (to == 0 || record < to)
}

// has notes a sample of the series.
func (l *replayLeaver) has(t int64) {
	for old := l.mint.Load(); t < old && !l.mint.CompareAndSwap(old, t); old = l.mint.Load() {
	}
	for old := l.maxt.Load(); t > old && !l.maxt.CompareAndSwap(old, t); old = l.maxt.Load() {
	}
}
