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

	// loose is set if the entry, or many short ones, are sent as they come; many
	// if nothing but the end of the list is looked for; byObject if that would
	// take longer than to go from object to object.
	loose, many, byObject bool
	place                 place // what resync has seen last
}

// place is what comes before, in the list or an object in it.
type place int

const (
	elsewhere place = iota
	behindComma
	behindText // that follows a comma: a key or an entry
)

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
	rest := e.chunk[i:]
	e.byObject = c == '{' && bytes.Count(rest, []byte{'['}) > bytes.Count(rest, []byte{'{'})
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
	case e.loose && e.byObject && c == '{':
		return e.manyObjects(i)
	case e.loose && !e.byObject:
		e.many, e.next, e.nest = true, (*Editor).manyEntries, nest{openBracket, closeBracket, 1}
		return i
	}
	return e.skip(i)
}

// manyObjects skips as many as there are in the chunk.
func (e *Editor) manyObjects(i int) int {
	for {
		i = e.outside.nestEnd(e.skip(i), &e.nest)
		if e.nest.depth > 0 {
			return i // In this state already.
		}
		if rest := e.chunk[i:]; len(rest) < 2 || rest[0] != ',' || rest[1] != '{' {
			e.next = e.behind
			return i
		}
		i++
	}
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

// manyEntries goes on until the end of the list.
func (e *Editor) manyEntries(i int) int {
	i = e.outside.nestEnd(i, &e.nest)
	if e.nest.depth > 0 {
		return i
	}
	e.many = false
	return e.endList(i - 1)
}

// endMany goes on with single entries, from anywhere in one.
func (e *Editor) endMany() {
	e.many, e.behind, e.next, e.place = false, (*Editor).resync, (*Editor).resync, elsewhere
	e.nest.depth--
	switch {
	case e.nest.depth > 0:
		e.next = (*Editor).nested
	case e.outside.inString:
		e.next = (*Editor).inText
	}
}

// resync finds an entry. It is in no string and in no list but that of entries,
// but in objects perhaps: there, a comma is followed by a text and a colon.
func (e *Editor) resync(i int) int {
	before := e.place
	switch c := e.chunk[i]; {
	case isSpace(c):
		return i + 1
	case c == ']':
		return e.endList(i)
	case c == ',' && before == behindText:
		e.next = (*Editor).behindEntry
		return i
	case c == ',':
		e.place = behindComma
		return i + 1
	case c == ':' || c == '}':
	case before == behindComma && c == '"':
		e.place = behindText
		return e.skip(i)
	case before == behindComma: // No key, and so an entry.
		e.behind = (*Editor).behindEntry
		return e.skip(i)
	case c == '"' || c == '[':
		e.place = elsewhere
		return e.skip(i)
	}
	e.place = elsewhere
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
