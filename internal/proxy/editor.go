// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"errors"
	"io"
	"math"
	"slices"
)

// errTooLarge ends an answer that is longer than allowed.
var errTooLarge = errors.New("the answer is too long")

// editor reads Prometheus's envelope as it passes, adds to its warnings, and
// leaves out the end of its list where that would be too long. The list is data,
// or result in it if its entries are objects. Entries are sent whole or not at
// all, and what stands around the list is kept. What is no envelope passes as it
// is. Bytes that are not changed stay in the reader's buffer.
type editor struct {
	src io.ReadCloser
	// warnings are added, as JSON strings with commas between them; more is added
	// to them if entries are left out.
	warnings, more []byte

	// left is how many bytes may still be sent, and tail how many more of what is
	// no entry; discard is how many bytes of entries that are left out are read to
	// get to what follows the list. Beyond that the envelope is closed without it.
	left, tail, discard int64
	// maxHeld is how close to the limit an entry is held back until it is whole.
	// One that begins earlier, and is so long that it passes the limit, can
	// neither be sent nor be taken back, and breaks the answer off.
	maxHeld  int64
	exceeded func() // called once
	// lost is called if warnings, of either end, do not reach the client in an
	// answer that does.
	lost func()
	// isMap is set if data is no result of a query: a key in it may have any name.
	isMap bool

	chunk      []byte // of the reader's buffer, up to the end of the window
	from       int    // nothing of the chunk from here on is sent or dropped yet
	kept       int    // so much of the front of the chunk is sent as it is
	out        queue  // is sent after that
	held       queue  // the beginning of an entry that is not whole yet
	err        error  // that ends the answer when out is empty
	ended      bool   // nothing more is sent of what comes
	next       step
	outside    outside
	level      int    // 1 in the envelope, 2 in its data
	key        []byte // the last one of this level, cut to what matters
	hasMembers bool
	nest       nest
	behind     step // where to go on behind a value
	told       bool // the warnings have been added
	needComma  bool

	truncates, inList, truncated bool
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

// step looks at the chunk from i on, and returns where it went to. It goes on
// with another one by setting next.
type step func(e *editor, i int) int

const (
	// tailBytes is kept for what follows the list; of a small limit, half of it.
	tailBytes = 16 << 10
	// defaultMaxHeld is what a truncated answer may take of the guard's memory.
	defaultMaxHeld = 8 << 20
)

// newEditor adds warnings, which may be nil, to the envelope from src, and calls
// lost if it turns out to be none.
func newEditor(src io.ReadCloser, warnings []byte, lost func()) *editor {
	return &editor{src: src, warnings: warnings, lost: lost, left: math.MaxInt64, next: (*editor).beforeEnvelope}
}

// truncateAt leaves out entries beyond limit, with a warning, and calls exceeded.
func (e *editor) truncateAt(limit int64, warning []byte, exceeded func()) {
	e.left, e.discard, e.maxHeld = max(limit-tailBytes, limit/2), limit+1<<20, defaultMaxHeld
	e.tail = limit - e.left
	e.truncates, e.more, e.exceeded = true, warning, exceeded
}

// tooLarge implements bounded.
func (e *editor) tooLarge() bool { return errors.Is(e.err, errTooLarge) }

// Read implements io.Reader.
func (e *editor) Read(p []byte) (int, error) {
	for {
		switch {
		case e.out.Len() > 0:
			return e.out.Read(p), nil
		case e.err != nil:
			return 0, e.err
		}
		n, err := e.src.Read(p)
		e.err = err
		e.edit(p[:n])
		if err == io.EOF && !e.ended {
			e.out.take(&e.held) // It was no JSON.
			if !e.told && len(e.warnings) > 0 {
				e.lost()
			}
		}
		if e.kept > 0 {
			return e.kept, nil
		}
		if len(p) == 0 {
			return 0, nil
		}
	}
}

// Close implements io.Closer.
func (e *editor) Close() error { return e.src.Close() }

// window is how much is looked at in one go: each byte several times, and so no
// more than the processor has at hand.
const window = 16 << 10

func (e *editor) edit(p []byte) {
	e.from, e.kept = 0, 0
	for i := 0; i < len(p) && !e.ended; {
		e.chunk = p[:min(i+window, len(p))]
		e.outside.start(e.chunk)
		if e.many && !e.far() {
			e.endMany()
		}
		for i < len(e.chunk) && !e.ended {
			i = e.next(e, i)
		}
		e.endChunk()
	}
}

// far reports whether the limit is so far away that entries need not be held.
func (e *editor) far() bool { return e.left > e.maxHeld+window }

// The steps through the envelope.

func (e *editor) beforeEnvelope(i int) int {
	switch c := e.chunk[i]; {
	case isSpace(c):
	case c == '{':
		e.level, e.next = 1, (*editor).member
	default:
		e.next = (*editor).rest
	}
	return i + 1
}

// rest is all that is not looked at.
func (e *editor) rest(int) int { return len(e.chunk) }

// member is between the members of the envelope or its data.
func (e *editor) member(i int) int {
	switch e.chunk[i] {
	case '"':
		e.key, e.next = e.key[:0], (*editor).inKey
		e.hasMembers = true
	case '}':
		e.level--
		if e.level == 0 {
			e.addWarnings(i)
			e.next = (*editor).rest
		}
	}
	return i + 1
}

const warningsKey = "warnings"

func (e *editor) inKey(i int) int {
	c := e.chunk[i]
	switch {
	case e.outside.escaped:
		e.outside.escaped = false
	case c == '\\':
		e.outside.escaped = true
	case c == '"':
		e.next = (*editor).value
		return i + 1
	}
	if len(e.key) <= len(warningsKey) {
		e.key = append(e.key, c)
	}
	return i + 1
}

// value is between a key and its value.
func (e *editor) value(i int) int {
	e.behind = (*editor).member
	switch c := e.chunk[i]; {
	case isSpace(c) || c == ':':
		return i + 1
	case c == '{' && e.truncates && !e.isMap && e.isKey(1, "data"):
		e.level, e.next = 2, (*editor).member
		return i + 1
	case c == '[' && e.truncates && (e.isKey(1, "data") || e.isKey(2, "result")):
		e.next = (*editor).firstEntry
		return i + 1
	case c == '[' && !e.told && e.isKey(1, warningsKey):
		e.insertWarnings(i + 1)
		return i + 1
	}
	return e.skip(i)
}

func (e *editor) isKey(level int, key string) bool { return e.level == level && string(e.key) == key }

// skip goes on behind the value that begins at i.
func (e *editor) skip(i int) int {
	switch e.chunk[i] {
	case '"':
		e.outside.inString, e.next = true, (*editor).inText
	case '{':
		e.nest, e.next = nest{openBrace, closeBrace, 1}, (*editor).nested
	case '[':
		e.nest, e.next = nest{openBracket, closeBracket, 1}, (*editor).nested
	default:
		e.next = (*editor).literal
	}
	return i + 1
}

func (e *editor) inText(i int) int {
	i = e.outside.stringEnd(i)
	if !e.outside.inString {
		e.next = e.behind
	}
	return i
}

func (e *editor) nested(i int) int {
	i = e.outside.nestEnd(i, &e.nest)
	if e.nest.depth == 0 {
		e.next = e.behind
	}
	return i
}

func (e *editor) literal(i int) int {
	switch e.chunk[i] {
	case ',', '}', ']':
		e.next = e.behind
		return i
	}
	return i + 1
}

// The steps through the list.

func (e *editor) firstEntry(i int) int {
	c := e.chunk[i]
	switch {
	case isSpace(c):
		return i + 1
	case e.level == 2 && c != '{' && c != ']': // A scalar or a string: two values, not a list.
		e.nest, e.next = nest{openBracket, closeBracket, 1}, (*editor).nested
		return i
	}
	e.send(i)
	e.inList, e.loose, e.next = true, e.far(), (*editor).entry
	rest := e.chunk[i:]
	e.byObject = c == '{' && bytes.Count(rest, []byte{'['}) > bytes.Count(rest, []byte{'{'})
	return i
}

// entry is before the value of an entry. The comma before it is part of it.
func (e *editor) entry(i int) int {
	e.behind = (*editor).behindEntry
	switch c := e.chunk[i]; {
	case isSpace(c) || c == ',':
		return i + 1
	case c == ']':
		return e.endList(i)
	case e.loose && e.byObject && c == '{':
		return e.manyObjects(i)
	case e.loose && !e.byObject:
		e.many, e.next, e.nest = true, (*editor).manyEntries, nest{openBracket, closeBracket, 1}
		return i
	}
	return e.skip(i)
}

// manyObjects skips as many as there are in the chunk.
func (e *editor) manyObjects(i int) int {
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

func (e *editor) behindEntry(i int) int {
	switch e.chunk[i] {
	case ',':
		e.endEntry(i)
		e.next = (*editor).entry
	case ']':
		return e.endList(i)
	}
	return i + 1
}

// manyEntries goes on until the end of the list.
func (e *editor) manyEntries(i int) int {
	i = e.outside.nestEnd(i, &e.nest)
	if e.nest.depth > 0 {
		return i
	}
	e.many = false
	return e.endList(i - 1)
}

// endMany goes on with single entries, from anywhere in one.
func (e *editor) endMany() {
	e.many, e.behind, e.next, e.place = false, (*editor).resync, (*editor).resync, elsewhere
	e.nest.depth--
	switch {
	case e.nest.depth > 0:
		e.next = (*editor).nested
	case e.outside.inString:
		e.next = (*editor).inText
	}
}

// resync finds an entry. It is in no string and in no list but that of entries,
// but in objects perhaps: there, a comma is followed by a text and a colon.
func (e *editor) resync(i int) int {
	before := e.place
	switch c := e.chunk[i]; {
	case isSpace(c):
		return i + 1
	case c == ']':
		return e.endList(i)
	case c == ',' && before == behindText:
		e.next = (*editor).behindEntry
		return i
	case c == ',':
		e.place = behindComma
		return i + 1
	case c == ':' || c == '}':
	case before == behindComma && c == '"':
		e.place = behindText
		return e.skip(i)
	case before == behindComma: // No key, and so an entry.
		e.behind = (*editor).behindEntry
		return e.skip(i)
	case c == '"' || c == '[':
		e.place = elsewhere
		return e.skip(i)
	}
	e.place = elsewhere
	return i + 1
}

// endEntry sends or drops the entry that ends before i.
func (e *editor) endEntry(i int) {
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
		e.out.take(&e.held)
		e.emit(i)
	}
	e.from, e.loose = i, e.far()
}

func (e *editor) endList(i int) int {
	e.endEntry(i)
	e.inList, e.next = false, (*editor).member
	return i + 1
}

func (e *editor) sendLoose(i int) {
	if e.left -= int64(i - e.from); e.left < 0 {
		e.fail()
		return
	}
	e.emit(i)
}

func (e *editor) truncate() {
	e.held.reset()
	if e.told { // Nobody can be told any more that entries are left out.
		e.fail()
		return
	}
	e.truncated = true
	e.exceeded()
}

// send lets bytes up to i pass that are no entries.
func (e *editor) send(i int) {
	if e.spend(i - e.from) {
		e.emit(i)
	}
}

// insert sends text after that.
func (e *editor) insert(text []byte) {
	if !e.ended && e.spend(len(text)) {
		_, _ = e.out.Write(text) // It never fails.
	}
}

// spend reports whether n more bytes may be sent that are no entries. If not, it
// breaks the answer off.
func (e *editor) spend(n int) bool {
	if e.left -= int64(n); e.truncates && e.left < -e.tail {
		e.fail()
		return false
	}
	return true
}

// fail breaks the answer off.
func (e *editor) fail() {
	if !e.truncated {
		e.exceeded()
	}
	e.ended, e.err = true, errTooLarge
}

// emit sends bytes up to i: where they are, if nothing is changed before them.
func (e *editor) emit(i int) {
	if e.ended {
		return
	}
	if e.out.Len() == 0 && e.kept == e.from {
		e.kept = i
	} else {
		_, _ = e.out.Write(e.chunk[e.from:i]) // It never fails.
	}
	e.from = i
}

// endChunk sends, drops or holds what is left of the chunk.
func (e *editor) endChunk() {
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

// unreadWarning says what closeEnvelope leaves out, as a JSON string.
const unreadWarning = `"promguard did not read what follows the list, such as warnings of the server: the answer is too long"`

// closeEnvelope ends the answer, as if nothing followed the list.
func (e *editor) closeEnvelope() {
	text := []byte("]")
	if e.level == 2 {
		text = append(text, '}')
	}
	e.more = slices.Concat(e.more, []byte{','}, []byte(unreadWarning))
	e.insert(append(e.appendWarnings(text), '}'))
	if !e.ended {
		e.lost()
		e.ended, e.err = true, io.EOF
	}
}

// The warnings.

func (e *editor) items() []byte {
	if !e.truncated {
		return e.warnings
	}
	if len(e.warnings) == 0 {
		return e.more
	}
	return bytes.Join([][]byte{e.warnings, e.more}, []byte{','})
}

// insertWarnings puts them in front of those of the server, which begin at i.
func (e *editor) insertWarnings(i int) {
	e.send(i)
	items := e.items()
	e.insert(items)
	e.told, e.needComma, e.next = true, len(items) > 0, (*editor).firstWarning
}

func (e *editor) firstWarning(i int) int {
	c := e.chunk[i]
	if isSpace(c) {
		return i + 1
	}
	if e.needComma && c != ']' {
		e.send(i)
		e.insert([]byte{','})
	}
	e.nest, e.next = nest{openBracket, closeBracket, 1}, (*editor).nested
	return i
}

// addWarnings puts them before the end of the envelope at i.
func (e *editor) addWarnings(i int) {
	if text := e.appendWarnings(nil); len(text) > 0 {
		e.send(i)
		e.insert(text)
	}
}

func (e *editor) appendWarnings(to []byte) []byte {
	items := e.items()
	if e.told || len(items) == 0 {
		return to
	}
	e.told = true
	if e.hasMembers {
		to = append(to, ',')
	}
	to = append(to, `"`+warningsKey+`":[`...)
	return append(append(to, items...), ']')
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }
