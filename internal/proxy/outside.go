// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import "bytes"

// The bytes of JSON that outside can look for.
const (
	openBrace = iota
	closeBrace
	openBracket
	closeBracket
	backslash
	quote

	numStructural
)

const structural = `{}[]\"`

// outside finds bytes that stand outside of strings in JSON that comes in pieces.
// It runs over a piece once for each byte that it looks for, and once to count
// quotes, many bytes at a time: where such bytes are rare, that is far faster than
// to look at each byte. In JSON that is not valid, it finds something.
type outside struct {
	inString bool // at the place up to which it has looked
	escaped  bool // the byte there belongs to a backslash before it

	piece []byte
	// next is where the next of each byte is, or a place that is passed if that
	// is not known. No byte is looked for twice in the same place.
	next [numStructural]int
}

// start goes on with the next piece.
func (o *outside) start(piece []byte) {
	o.piece = piece
	for i := range o.next {
		o.next[i] = -1
	}
}

// nest is an object or array: only brackets of its own kind count.
type nest struct{ open, shut, depth int }

// nestEnd returns the place behind the end of the nest that i is in, or the length
// of the piece while its depth is more than 0.
func (o *outside) nestEnd(i int, n *nest) int {
	p := o.piece
	esc, open, shut := o.next[backslash], o.next[n.open], o.next[n.shut]
	defer func() { o.next[backslash], o.next[n.open], o.next[n.shut] = esc, open, shut }()
	i = o.unescape(i)
	counted := i // The quotes before are.
	for i < len(p) {
		if esc < i {
			esc = next(p, i, '\\')
		}
		if open < i {
			open = next(p, i, structural[n.open])
		}
		if shut < i {
			shut = next(p, i, structural[n.shut])
		}
		at := min(esc, open, shut)
		if at == open && shut < esc && shut-open < pairBytes {
			open = next(p, at+1, structural[n.open])
			if shut < open && bytes.Count(p[at:shut], quotes)%2 == 0 {
				i = shut + 1 // Both are in strings or neither is, and so they do not matter.
				continue
			}
			open = at
		}
		if counted < at && bytes.Count(p[counted:at], quotes)%2 == 1 {
			o.inString = !o.inString
		}
		switch {
		case at == len(p):
			return at
		case at == esc:
			i = o.escape(at)
			counted = i
			continue
		case o.inString:
		case at == open:
			n.depth++
		default:
			n.depth--
			if n.depth == 0 {
				return at + 1
			}
		}
		i = at + 1
		counted = i
	}
	if counted < len(p) && bytes.Count(p[counted:], quotes)%2 == 1 {
		o.inString = !o.inString
	}
	return i
}

// pairBytes is how long a pair of brackets may be for its quotes to be counted on
// their own.
const pairBytes = 64

var quotes = []byte{'"'}

// stringEnd returns the place behind the end of the string that i is in, or the
// length of the piece while inString is set.
func (o *outside) stringEnd(i int) int {
	for i = o.unescape(i); i < len(o.piece); {
		end := o.index(quote, i)
		if esc := o.index(backslash, i); esc < end {
			i = o.escape(esc)
			continue
		}
		if end < len(o.piece) {
			o.inString = false
			end++
		}
		return end
	}
	return i
}

// escape returns the place behind the backslash at i and what belongs to it.
func (o *outside) escape(i int) int {
	if i+1 == len(o.piece) {
		o.escaped = true
		return i + 1
	}
	return i + 2
}

func (o *outside) unescape(i int) int {
	if o.escaped && i < len(o.piece) {
		o.escaped = false
		i++
	}
	return i
}

// index returns where byte b is next.
func (o *outside) index(b, i int) int {
	if o.next[b] < i {
		o.next[b] = next(o.piece, i, structural[b])
	}
	return o.next[b]
}

// next returns where c is in p from i on, or the length of p.
func next(p []byte, i int, c byte) int {
	if n := bytes.IndexByte(p[i:], c); n >= 0 {
		return i + n
	}
	return len(p)
}
