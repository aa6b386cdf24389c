// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package jsonedit

import (
	"bytes"
	"errors"
)

// ErrTooLarge ends an answer that is longer than allowed and cannot be truncated.
var ErrTooLarge = errors.New("the answer is too long")

// tailBytes is kept for what follows the list; of a small limit, half of it.
const tailBytes = 16 << 10

// output is what an editor sends: where it is in the reader's buffer, as long as
// nothing is changed before it, and copied after that.
type output struct {
	chunk []byte       // of the reader's buffer, up to the end of the window
	from  int          // nothing of the chunk from here on is sent or dropped yet
	kept  int          // so much of the front of the chunk is sent as it is
	out   bytes.Buffer // is sent after that

	err   error // that ends the answer when out is empty
	ended bool  // nothing more is sent of what comes

	// left is how many bytes may still be sent if it is bounded, and tail how many
	// more of what is no entry.
	bounded    bool
	left, tail int64
	exceeded   func() // called once, and nil then
}

// bound breaks off what is longer than limit.
func (o *output) bound(limit int64, exceeded func()) {
	o.bounded, o.exceeded = true, exceeded
	o.left = max(limit-tailBytes, limit/2)
	o.tail = limit - o.left
}

// restart goes on with another piece in the reader's buffer.
func (o *output) restart() { o.from, o.kept = 0, 0 }

// send lets bytes up to i pass that are no entries.
func (o *output) send(i int) {
	if o.spend(i - o.from) {
		o.emit(i)
	}
}

// insert sends text after that.
func (o *output) insert(text []byte) {
	if !o.ended && o.spend(len(text)) {
		_, _ = o.out.Write(text) // It never fails.
	}
}

// spend reports whether n more bytes may be sent that are no entries. If not, it
// breaks the answer off.
func (o *output) spend(n int) bool {
	if o.left -= int64(n); o.bounded && o.left < -o.tail {
		o.fail()
		return false
	}
	return true
}

// exceed tells that not all is sent.
func (o *output) exceed() {
	if o.exceeded != nil {
		o.exceeded()
		o.exceeded = nil
	}
}

// fail breaks the answer off.
func (o *output) fail() {
	o.exceed()
	o.ended, o.err = true, ErrTooLarge
}

// emit sends bytes up to i: where they are, if nothing is changed before them.
func (o *output) emit(i int) {
	if o.ended {
		return
	}
	if o.out.Len() == 0 && o.kept == o.from {
		o.kept = i
	} else {
		_, _ = o.out.Write(o.chunk[o.from:i]) // It never fails.
	}
	o.from = i
}

// take sends what was held back.
func (o *output) take(held *bytes.Buffer) {
	if o.out.Len() == 0 {
		o.out, *held = *held, o.out
		return
	}
	_, _ = held.WriteTo(&o.out) // It never fails.
}
