// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package jsonedit

import (
	"errors"
	"io"
	"math"
)

// Editor reads Prometheus's envelope as it passes, adds to its warnings, and
// leaves out the end of its list where that would be too long. Bytes that are not
// changed stay in the reader's buffer.
//
// It goes through the answer in steps: those of the envelope are in envelope.go,
// those of the list in list.go, and what they add in warnings.go.
type Editor struct {
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
	isMap  bool

	// warnings are added, as JSON strings with commas between them; more is added
	// to them if entries are left out. Told says that they have been.
	warnings, more        []byte
	told                  bool
	hasMembers, needComma bool // before those that are added, and behind them
	lost                  func()
	seen                  func([]string)
	texts                 []byte // of the warnings of the server so far
}

// step looks at the chunk from i on, and returns where it went to. It goes on
// with another one by setting next.
type step func(e *Editor, i int) int

// maxHeld is how long an entry may be that is held until it is whole. The buffer may
// be twice as large.
const maxHeld = 8 << 20

// Options say what is changed of an answer.
type Options struct {
	// Warnings are added to those of the envelope.
	Warnings []string
	// Limit bounds the bytes of the answer; 0 means no bound.
	// Entries that do not fit are left out, and the warning Truncated is added.
	Limit     int64
	Truncated string
	// IsMap is set if data is no result of a query: a key in it may have any name.
	IsMap bool
	// Exceeded is called once if the answer is longer than Limit.
	Exceeded func()
	// Seen, if not nil, is called with the warnings of the server, if there are any: all,
	// or the first 16 KiB.
	Seen func([]string)
	// Lost is called if warnings, of either end, do not reach the client in an
	// answer that does.
	Lost func()
}

// New returns what src becomes.
func New(src io.ReadCloser, o Options) *Editor {
	e := &Editor{src: src, warnings: items(o.Warnings), isMap: o.IsMap, lost: o.Lost, seen: o.Seen, output: output{left: math.MaxInt64}, next: (*Editor).beforeEnvelope}
	if o.Limit > 0 {
		e.bound(o.Limit, o.Exceeded)
		e.discard, e.maxHeld, e.more = o.Limit+1<<20, maxHeld, items([]string{o.Truncated})
	}
	return e
}

// TooLarge reports whether the answer was broken off because of its size.
func (e *Editor) TooLarge() bool { return errors.Is(e.err, ErrTooLarge) }

// Read implements io.Reader.
func (e *Editor) Read(p []byte) (int, error) {
	for {
		switch {
		case e.out.Len() > 0:
			return e.out.Read(p)
		case e.err != nil:
			return 0, e.err
		}
		n, err := e.src.Read(p)
		e.err = err
		e.edit(p[:n])
		if err == io.EOF && !e.ended {
			e.take(&e.held) // It was no JSON.
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
func (e *Editor) Close() error { return e.src.Close() }

// window is how much is looked at in one go: each byte several times, and so no
// more than the processor has at hand.
const window = 16 << 10

func (e *Editor) edit(p []byte) {
	e.restart()
	for i := 0; i < len(p) && !e.ended; {
		e.chunk = p[:min(i+window, len(p))]
		e.outside.start(e.chunk)
		for i < len(e.chunk) && !e.ended {
			i = e.next(e, i)
		}
		e.endChunk()
	}
}
