// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package jsonedit

import "io"

// Editor reads Prometheus's envelope as it passes, and adds to its warnings. Bytes that
// are not changed stay in the reader's buffer.
//
// It goes through the answer in steps: those of the envelope are in envelope.go, and
// what they add in warnings.go.
type Editor struct {
	output
	outside outside

	src  io.ReadCloser
	next step
	// Where next is: the last key, cut to what matters, and the object or array that is
	// skipped.
	key  []byte
	nest nest

	// warnings are added, as JSON strings with commas between them. Told says that they
	// have been.
	warnings              []byte
	told                  bool
	hasMembers, needComma bool // before those that are added, and behind them
	lost                  func()
	seen                  func([]string)
	texts                 []byte // of the warnings of the server so far
}

// step looks at the chunk from i on, and returns where it went to. It goes on
// with another one by setting next.
type step func(e *Editor, i int) int

// Options say what is changed of an answer.
type Options struct {
	// Warnings are added to those of the envelope.
	Warnings []string
	// Seen, if not nil, is called with the warnings of the server, if there are any: all,
	// or the first 16 KiB.
	Seen func([]string)
	// Lost is called if Warnings do not reach the client in an answer that does.
	Lost func()
}

// New returns what src becomes.
func New(src io.ReadCloser, o Options) *Editor {
	return &Editor{src: src, warnings: items(o.Warnings), lost: o.Lost, seen: o.Seen, next: (*Editor).beforeEnvelope}
}

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
		if err == io.EOF && !e.told && len(e.warnings) > 0 { // It was no JSON.
			e.lost()
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
	for i := 0; i < len(p); {
		e.chunk = p[:min(i+window, len(p))]
		e.outside.start(e.chunk)
		for i < len(e.chunk) {
			i = e.next(e, i)
		}
		e.send(len(e.chunk))
	}
}
