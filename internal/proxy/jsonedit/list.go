// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package jsonedit

import "bytes"

// list is what an editor remembers of the list whose entries are sent, held back
// or left out.
type list struct {
	inList, truncated bool
	held              bytes.Buffer // the beginning of an entry that is not whole yet
	// discard is how many bytes of entries that are left out are read to get to what
	// follows the list. Beyond that the envelope is closed without it.
	discard int64
	// maxHeld is how close to the limit an entry is held back until it is whole.
	// One that begins earlier, and is so long that it passes the limit, can
	// neither be sent nor be taken back, and breaks the answer off.
	maxHeld int64

	// loose is set if the entry is sent as it comes.
	loose bool
}

// far reports whether the limit is so far away that entries need not be held.
func (e *Editor) far() bool { return e.left > e.maxHeld+window }

// The steps through the list.

func (e *Editor) firstEntry(i int) int {
	c := e.chunk[i]
	switch {
	case isSpace(c):
		return i + 1
	case e.level == 2 && c != '{' && c != ']': // A scalar or a string: two values, not a list.
		e.nest, e.next = nest{openBracket, closeBracket, 1}, (*Editor).nested
		return i
	}
	e.send(i)
	e.inList, e.loose, e.next = true, e.far(), (*Editor).entry
	return i
}

// entry is before the value of an entry. The comma before it is part of it.
func (e *Editor) entry(i int) int {
	e.behind = (*Editor).behindEntry
	switch c := e.chunk[i]; {
	case isSpace(c) || c == ',':
		return i + 1
	case c == ']':
		return e.endList(i)
	}
	return e.skip(i)
}

func (e *Editor) behindEntry(i int) int {
	switch e.chunk[i] {
	case ',':
		e.endEntry(i)
		e.next = (*Editor).entry
	case ']':
		return e.endList(i)
	}
	return i + 1
}

// endEntry sends or drops the entry that ends before i.
func (e *Editor) endEntry(i int) {
	n := int64(e.held.Len() + i - e.from)
	switch {
	case e.truncated:
		e.discard -= n
	case e.loose:
		e.sendLoose(i)
	case n > 0 && n >= e.left:
		e.discard -= n
		e.truncate()
	default:
		e.left -= n
		e.take(&e.held)
		e.emit(i)
	}
	e.from, e.loose = i, e.far()
}

func (e *Editor) endList(i int) int {
	e.endEntry(i)
	e.inList, e.next = false, (*Editor).member
	return i + 1
}

func (e *Editor) sendLoose(i int) {
	if e.left -= int64(i - e.from); e.left < 0 {
		e.fail()
		return
	}
	e.emit(i)
}

func (e *Editor) truncate() {
	e.held = bytes.Buffer{}
	if e.told { // Nobody can be told any more that entries are left out.
		e.fail()
		return
	}
	e.truncated = true
	e.exceed()
}

// endChunk sends, drops or holds what is left of the chunk.
func (e *Editor) endChunk() {
	n := len(e.chunk)
	switch {
	case e.ended:
		return
	case !e.inList:
		e.send(n)
	case e.truncated:
		e.discard -= int64(n - e.from)
	case e.loose:
		e.sendLoose(n)
	default:
		_, _ = e.held.Write(e.chunk[e.from:]) // It never fails.
		if size := int64(e.held.Len()); size > 0 && size >= e.left {
			e.discard -= size
			e.truncate()
		}
	}
	e.from = n
	if e.inList && e.truncated && e.discard < 0 && !e.ended {
		e.closeEnvelope()
	}
}
