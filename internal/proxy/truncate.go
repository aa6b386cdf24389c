// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"errors"
	"io"
)

// errTooLarge ends an answer that is longer than allowed.
var errTooLarge = errors.New("the answer is too long")

// sizeLimiter breaks an answer off that is longer than allowed, or only notices.
type sizeLimiter struct {
	io.ReadCloser

	left     int64
	exceeded func()
	observe  bool
}

// Read implements io.Reader.
func (l *sizeLimiter) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	if l.left < 0 {
		return n, err
	}
	if l.left -= int64(n); l.left >= 0 {
		return n, err
	}
	l.exceeded()
	if l.observe {
		return n, err
	}
	return 0, errTooLarge
}

// truncator leaves out the end of a list in Prometheus's envelope, so that what
// is sent has at most so many bytes and is whole JSON. The list is data, or
// result in it if its entries are objects. Entries are sent whole or not at all,
// and what follows the list is kept, such as warnings. At most one entry is held
// in memory, which may be as large as the limit.
type truncator struct {
	src  io.ReadCloser
	left int64 // bytes that may still be sent
	// discard is how many bytes of entries that are left out are read to get to
	// what follows the list. Beyond that the envelope is closed without it.
	discard   int64
	truncated bool
	// unsaid is set once nobody can be told any more that entries are left out:
	// the answer is broken off then.
	unsaid   bool
	exceeded func()

	in  [16 << 10]byte
	out bytes.Buffer
	err error

	depth             int
	inString, escaped bool
	wantKey           bool
	keys              [2][]byte // of depth 1 and 2, cut to what matters
	listDepth         int       // 0 before the list, -1 behind it
	entry             bytes.Buffer
	entries           int
}

// tailBytes is kept for what follows the list.
const tailBytes = 16 << 10

func newTruncator(src io.ReadCloser, limit int64, exceeded func()) *truncator {
	return &truncator{src: src, left: max(limit-tailBytes, limit/2), discard: limit + 1<<20, exceeded: exceeded}
}

// Read implements io.Reader.
func (t *truncator) Read(p []byte) (int, error) {
	for t.out.Len() == 0 {
		if t.err != nil {
			return 0, t.err
		}
		n, err := t.src.Read(t.in[:])
		t.err = err
		t.copy(t.in[:n])
	}
	return t.out.Read(p)
}

// Close implements io.Closer.
func (t *truncator) Close() error { return t.src.Close() }

func (t *truncator) copy(chunk []byte) {
	for i := 0; i < len(chunk) && t.err != errTooLarge; i++ { //nolint:errorlint // It is set here.
		if n := t.plainBytes(chunk[i:]); n > 0 {
			t.hold(chunk[i : i+n])
			i += n - 1
			continue
		}
		c := chunk[i]
		if t.listDepth < 0 { // Behind the list nothing is looked at.
			t.pass(chunk[i:])
			return
		}
		inList := t.listDepth > 0
		switch {
		case t.inString:
			t.stringByte(c)
		case inList && t.depth == t.listDepth && (c == ',' || c == ']'):
			t.endEntry(c)
			continue
		default:
			t.structureByte(c)
		}
		if inList {
			t.hold(chunk[i : i+1])
		} else {
			t.pass(chunk[i : i+1])
		}
		if t.truncated && t.discard < 0 {
			t.closeEnvelope()
			return
		}
	}
}

// pass sends bytes that are no entries of the list.
func (t *truncator) pass(p []byte) {
	t.left -= int64(len(p))
	if t.left < -tailBytes {
		if !errors.Is(t.err, errTooLarge) {
			t.exceeded()
			t.err = errTooLarge
		}
		return
	}
	t.out.Write(p)
}

// plainBytes returns how many bytes of an entry change nothing of its structure.
func (t *truncator) plainBytes(chunk []byte) int {
	if t.listDepth <= 0 || t.escaped {
		return 0
	}
	structure := &outside
	if t.inString {
		structure = &inside
	}
	for i, c := range chunk {
		if structure[c] {
			return i
		}
	}
	return len(chunk)
}

// The bytes that matter outside and inside of strings.
var outside, inside = byteSet(`"{}[],:`), byteSet(`"\`)

func byteSet(s string) (set [256]bool) {
	for _, c := range []byte(s) {
		set[c] = true
	}
	return set
}

// hold adds bytes to the entry, unless it will not be sent anyway.
func (t *truncator) hold(p []byte) {
	if t.truncated {
		t.discard -= int64(len(p))
		return
	}
	t.entry.Write(p)
	if int64(t.entry.Len()) >= t.left {
		t.discard -= int64(t.entry.Len())
		t.truncate()
	}
}

func (t *truncator) truncate() {
	t.entry = bytes.Buffer{} // It may be large.
	if !t.truncated {
		t.truncated = true
		t.exceeded()
	}
	if t.unsaid {
		t.err = errTooLarge
	}
}

// endEntry sends the entry that ended with c, and c if it ends the list.
func (t *truncator) endEntry(c byte) {
	if !t.truncated && len(bytes.TrimSpace(t.entry.Bytes())) > 0 {
		if t.entries > 0 {
			t.out.WriteByte(',')
		}
		t.entries++
		t.left -= int64(t.entry.Len()) + 1
		t.out.Write(t.entry.Bytes())
		if t.listDepth == 3 && bytes.TrimSpace(t.entry.Bytes())[0] != '{' {
			t.listDepth = -1 // A scalar or a string: two values, not a list.
			t.out.WriteByte(c)
			t.entry.Reset()
			return
		}
		t.entry.Reset()
	}
	if c == ']' {
		t.out.WriteByte(']')
		t.depth--
		t.listDepth = -1
	}
}

// closeEnvelope ends the answer, as if nothing followed the list.
func (t *truncator) closeEnvelope() {
	t.out.WriteByte(']')
	for range t.listDepth - 1 {
		t.out.WriteByte('}')
	}
	t.listDepth, t.err = -1, io.EOF
}

func (t *truncator) stringByte(c byte) {
	switch {
	case t.escaped:
		t.escaped = false
	case c == '\\':
		t.escaped = true
	case c == '"':
		t.inString = false
		return
	}
	const enough = len("result") + 1
	if t.wantKey && len(t.keys[t.depth-1]) < enough {
		t.keys[t.depth-1] = append(t.keys[t.depth-1], c)
	}
}

func (t *truncator) structureByte(c byte) {
	switch c {
	case '"':
		t.inString = true
		if t.wantKey {
			t.keys[t.depth-1] = t.keys[t.depth-1][:0]
		}
	case ':':
		t.wantKey = false
	case ',':
		t.wantKey = t.listDepth == 0 && t.inObject()
	case '{', '[':
		t.depth++
		t.wantKey = false
		if t.listDepth != 0 {
			return
		}
		if c == '{' {
			t.wantKey = t.inObject()
		} else if t.atList() {
			t.listDepth = t.depth
		}
	case '}', ']':
		t.depth--
		t.wantKey = false
	}
}

// inObject reports whether keys at this depth matter: those of the envelope and
// those of data.
func (t *truncator) inObject() bool {
	return t.depth == 1 || t.depth == 2 && string(t.keys[0]) == "data"
}

func (t *truncator) atList() bool {
	return string(t.keys[0]) == "data" && (t.depth == 2 || t.depth == 3 && string(t.keys[1]) == "result")
}
