// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package jsonedit

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
// It runs over a piece once for each byte that it looks for, many bytes at a time:
// where such bytes are rare, that is far faster than to look at each byte. Whether
// one of them is in a string, the bytes around it tell as a rule; if not, quotes are
// counted. In JSON that is not valid, it finds something.
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
	p, esc, open, shut := o.piece, o.next[backslash], o.next[n.open], o.next[n.shut]
	i = o.unescape(i)
	known, in := i, o.inString // In is whether known is in a string.
	for {
		if esc < i {
			esc = next(p, i, '\\')
		}
		if open < i {
			open = next(p, i, structural[n.open])
		}
		if shut < i {
			shut = next(p, i, structural[n.shut])
		}
		at := min(open, shut)
		if esc < at { // A backslash is in a string.
			i = o.escape(esc)
			known, in = i, true
			continue
		}
		if at == open && shut < esc && shut-open < pairBytes {
			open = next(p, at+1, structural[n.open])
			if shut < open && alike(p, known, at, shut) {
				i = shut + 1
				continue
			}
			open = at
		}
		known, in = at, inStringAt(p, known, at, in)
		if i = at; at == len(p) {
			break
		}
		i++
		if in {
			continue
		}
		if at == open {
			n.depth++
			continue
		}
		n.depth--
		if n.depth == 0 {
			break
		}
	}
	o.next[backslash], o.next[n.open], o.next[n.shut], o.inString = esc, open, shut, in
	return i
}

// pairBytes is how long a pair of brackets may be to be skipped as one.
const pairBytes = 64

// alike reports whether both brackets of a pair are in strings or neither is, so
// that they do not matter. Between known and them are no backslashes.
func alike(p []byte, known, open, shut int) bool {
	if open-2 > known && p[open-1] == ':' && endsString(p, open-2) && endsString(p, shut-1) {
		return true
	}
	return bytes.Count(p[open:shut], quotes)%2 == 0
}

// inStringAt reports whether a bracket at, or the end of the piece there, is in a
// string. In says so of known, and between them are no backslashes.
func inStringAt(p []byte, known, at int, in bool) bool {
	if at+2 < len(p) && p[at+1] == '"' && !behindString[p[at+2]] {
		return false // There a string begins.
	}
	for j := at - 1; j >= max(known, at-nearby); j-- {
		switch {
		case p[j] != '"':
			continue
		case j > 0 && endsString(p, j):
			return false
		case j+1 < len(p) && !behindString[p[j+1]]:
			return true
		}
		break
	}
	return in != (bytes.Count(p[known:at], quotes)%2 == 1)
}

// nearby is how far away a quote is looked for byte by byte.
const nearby = 32

// endsString reports whether the byte at k is a quote that is known to end a string:
// no string begins behind what is before it.
func endsString(p []byte, k int) bool { return p[k] == '"' && !beforeString[p[k-1]] }

var (
	beforeString = oneOf("{[,: \t\r\n")
	behindString = oneOf("}],: \t\r\n")
	quotes       = []byte{'"'}
)

func oneOf(text string) (is [256]bool) {
	for i := range len(text) {
		is[text[i]] = true
	}
	return is
}

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
