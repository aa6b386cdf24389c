// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package scrape

import (
	"crypto/rand"
	"encoding/binary"
	"math/bits"
	"unsafe"

	"golang.org/x/crypto/poly1305" //nolint:staticcheck // What took its place encrypts as well.
)

// lineKey stands for the text of a series in an exposition.
type lineKey [2]uint64

// lineSecret is drawn anew by each process, and never leaves it.
var lineSecret = func() (secret [32]byte) {
	_, _ = rand.Read(secret[:]) // It never returns an error.
	return secret
}()

// keyOf is Poly1305 under the process's secret. Any two different texts of at most
// n bytes, whoever chose them, have the same key with a probability of at most
// 8*ceil(n/16) / 2^106 (Bernstein, "The Poly1305-AES message-authentication code",
// theorem 3.3): of a million lines of 1 KiB in one target any two, 3.2e-18.
func keyOf(line []byte) lineKey { return keyUnder(&lineSecret, line) }

func keyUnder(secret *[32]byte, line []byte) lineKey {
	var sum [16]byte
	poly1305.Sum(&sum, line, secret)
	return lineKey{binary.LittleEndian.Uint64(sum[:]), binary.LittleEndian.Uint64(sum[8:])}
}

// droppedEntry is a line that relabelling dropped, or whose series was refused.
type droppedEntry struct {
	key lineKey
	// lastIter is when the line was last seen, with refusedFlag if it was refused.
	lastIter uint64
}

// refusedFlag is more than there ever are iterations.
const refusedFlag = 1 << 63

func (e *droppedEntry) refused() bool { return e.lastIter&refusedFlag != 0 }

// see says that the line was seen in the iteration.
func (e *droppedEntry) see(iter uint64) { e.lastIter = iter | e.lastIter&refusedFlag }

// lineTable finds the entries of lines by their keys. An entry is 48 bytes for a
// series, 24 more for its labels, and 24 for a dropped one, and 5 to 7 more in the
// index. Entries are in the order in which lines were first met, which is mostly that
// of the next exposition.
type lineTable struct {
	kept    slab[cacheEntry]
	dropped slab[droppedEntry]
	// index is open-addressed by the key. At most three quarters of it are taken; the
	// others are nowhere.
	index []slot

	// What was looked up last: where the line is, its key, and where it was found.
	line *byte
	key  lineKey
	at   slot
	// next is where the next line is looked for first, as a series and as a dropped
	// one: memory is then read in order, and the index not at all.
	next [2]slot

	// recreated are the series that the storage created in this iteration although they
	// were known.
	recreated []int
}

// slot says where an entry is: 2n+2 is the n-th series, 2n+3 the n-th dropped one.
type slot uint32

const nowhere slot = 0

func (s slot) n() int        { return int(s/2) - 1 }
func (s slot) dropped() bool { return s%2 == 1 }

// len returns how many lines there are.
func (t *lineTable) len() int { return t.kept.n + t.dropped.n }

// keyAt returns the key of an entry, or false if there is no such entry.
func (t *lineTable) keyAt(s slot) (lineKey, bool) {
	switch n := s.n(); {
	case s == nowhere:
	case s.dropped() && n < t.dropped.n:
		return t.dropped.at(n).key, true
	case !s.dropped() && n < t.kept.n:
		return t.kept.at(n).key, true
	}
	return lineKey{}, false
}

// find returns where the line is.
func (t *lineTable) find(line []byte) slot {
	t.line, t.key = unsafe.SliceData(line), keyOf(line)
	t.at = t.lookup()
	if t.at != nowhere {
		t.next[t.at%2] = t.at + 2
	}
	return t.at
}

func (t *lineTable) lookup() slot {
	for _, s := range t.next {
		if key, ok := t.keyAt(s); ok && key == t.key {
			return s
		}
	}
	if len(t.index) == 0 {
		return nowhere
	}
	for i := t.home(t.key); ; i = t.after(i) {
		s := t.index[i]
		if s == nowhere {
			return nowhere
		}
		if key, _ := t.keyAt(s); key == t.key {
			return s
		}
	}
}

// found returns where the line is, without looking if it was looked up last.
func (t *lineTable) found(line []byte) slot {
	if t.line == unsafe.SliceData(line) {
		return t.at
	}
	return t.find(line)
}

// home is where the index is searched from. The keys of lines that differ in one
// number lie in a row, as Poly1305 is linear: they are mixed first, with the finalizer
// of rrmxmx (Evensen, "Stronger, better, morer, Moremur", 2019).
func (t *lineTable) home(key lineKey) int {
	const odd = 0xD6E8FEB86659FD93
	h := key[0]
	h = (h ^ h>>32) * odd
	h = (h ^ h>>32) * odd
	i, _ := bits.Mul64(h^h>>32, uint64(len(t.index)))
	return int(i)
}

func (t *lineTable) after(i int) int {
	if i == len(t.index)-1 {
		return 0
	}
	return i + 1
}

// addKept enters a line that was not found as a series.
func (t *lineTable) addKept(line []byte, e cacheEntry) *cacheEntry {
	t.found(line)
	e.key = t.key
	added := t.kept.add(e)
	t.enter(slot(2 * t.kept.n))
	return added
}

// addDropped enters a line that was not found as a dropped one.
func (t *lineTable) addDropped(line []byte, iter uint64) {
	t.found(line)
	t.dropped.add(droppedEntry{t.key, iter})
	t.enter(slot(2*t.dropped.n + 1))
}

// enter puts the entry that was just added for t.line into the index.
func (t *lineTable) enter(s slot) {
	t.at = s
	if 4*t.len() > 3*len(t.index) {
		t.reindex()
		return
	}
	t.put(t.key, s)
}

func (t *lineTable) put(key lineKey, s slot) {
	i := t.home(key)
	for t.index[i] != nowhere {
		i = t.after(i)
	}
	t.index[i] = s
}

// reindex makes the index anew, with room for a quarter more than there are.
func (t *lineTable) reindex() {
	size := max(8, t.len()*5/3)
	if size > len(t.index) || 2*size < len(t.index) {
		t.index = make([]slot, size)
	} else {
		clear(t.index)
	}
	for i := range t.kept.n {
		t.put(t.kept.at(i).key, slot(2*i+2))
	}
	for i := range t.dropped.n {
		t.put(t.dropped.at(i).key, slot(2*i+3))
	}
}

// removeUnseen removes the lines that were not seen in the iteration.
func (t *lineTable) removeUnseen(iter uint64) {
	before, kept := t.len(), uint32(iter)
	t.kept.keep(func(e *cacheEntry) bool { return e.lastIter == kept })
	t.dropped.keep(func(e *droppedEntry) bool { return e.lastIter&^refusedFlag == iter })
	if t.len() != before {
		t.reindex()
	}
}

// forgetRefused removes the lines whose series were refused. It is called between two
// expositions.
func (t *lineTable) forgetRefused() {
	before := t.len()
	t.dropped.keep(func(e *droppedEntry) bool { return !e.refused() })
	if t.len() != before {
		t.reindex()
	}
}

// rewind is called between two expositions. It lets go of the one before.
func (t *lineTable) rewind() {
	t.line, t.at, t.recreated = nil, nowhere, nil
	t.next = [2]slot{2, 3}
}

// slabLen is how many elements are allocated at once: of series 3 KiB with the
// allocator's header of 8 bytes.
const slabLen = 63

// slab is a list that grows without being copied, but for its first few elements,
// as most targets have few. n is its length.
type slab[T any] struct {
	chunks [][]T
	n      int
}

func (s *slab[T]) at(i int) *T { return &s.chunks[i/slabLen][i%slabLen] }

// add appends an element. What at returned before may be another element then.
func (s *slab[T]) add(v T) *T {
	if s.n%slabLen == 0 {
		var chunk []T
		if s.n > 0 {
			chunk = make([]T, 0, slabLen)
		}
		s.chunks = append(s.chunks, chunk)
	}
	last := &s.chunks[len(s.chunks)-1]
	*last = append(*last, v)
	s.n++
	return s.at(s.n - 1)
}

// keep removes the other elements. The order stays.
func (s *slab[T]) keep(keep func(*T) bool) {
	n := 0
	for i := range s.n {
		if e := s.at(i); keep(e) {
			if n < i {
				*s.at(n) = *e
			}
			n++
		}
	}
	s.truncate(n)
}

func (s *slab[T]) truncate(n int) {
	if n == s.n {
		return
	}
	used := (n + slabLen - 1) / slabLen
	clear(s.chunks[used:])
	s.chunks, s.n = s.chunks[:used], n
	if rest := n % slabLen; rest > 0 {
		last := &s.chunks[used-1]
		clear((*last)[rest:])
		*last = (*last)[:rest]
	}
}
