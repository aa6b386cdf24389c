// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"io"
	"math"
)

// editor reads Prometheus's envelope as it passes, adds to its warnings, and
// leaves out the end of its list where that would be too long. The list is data,
// or result in it if its entries are objects. Entries are sent whole or not at
// all, and what stands around the list is kept. What is no envelope passes as it
// is. Bytes that are not changed stay in the reader's buffer.
//
// It goes through the answer in steps: those of the envelope are in
// editor_envelope.go, those of the list in editor_list.go, and what they add in
// editor_warnings.go.
type editor struct {
	output
	list
	outside outside

	src  io.ReadCloser
	next step
	// Where next is: the level, 1 in the envelope and 2 in its data; the last key of
	// it, cut to what matters; the object or array that is skipped, and where to go
	// on behind it or another value.
	level  int
	key    []byte
	nest   nest
	behind step
	// isMap is set if data is no result of a query: a key in it may have any name.
	isMap bool

	// warnings are added, as JSON strings with commas between them; more is added
	// to them if entries are left out. Told says that they have been.
	warnings, more        []byte
	told                  bool
	hasMembers, needComma bool // before those that are added, and behind them
	// lost is called if warnings, of either end, do not reach the client in an
	// answer that does.
	lost func()
}

// step looks at the chunk from i on, and returns where it went to. It goes on
// with another one by setting next.
type step func(e *editor, i int) int

// defaultMaxHeld is what a truncated answer may take of the guard's memory.
const defaultMaxHeld = 8 << 20

// newEditor adds warnings, which may be nil, to the envelope from src, and calls
// lost if it turns out to be none.
func newEditor(src io.ReadCloser, warnings []byte, lost func()) *editor {
	return &editor{src: src, warnings: warnings, lost: lost, output: output{left: math.MaxInt64}, next: (*editor).beforeEnvelope}
}

// truncateAt leaves out entries beyond limit, with a warning, and calls exceeded.
func (e *editor) truncateAt(limit int64, warning []byte, exceeded func()) {
	e.bound(limit, exceeded)
	e.discard, e.maxHeld, e.more = limit+1<<20, defaultMaxHeld, warning
}

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
	e.restart()
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
