// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package jsonedit

import "bytes"

// output is what an editor sends: where it is in the reader's buffer, as long as
// nothing is changed before it, and copied after that.
type output struct {
	chunk []byte       // of the reader's buffer, up to the end of the window
	from  int          // nothing of the chunk from here on is sent yet
	kept  int          // so much of the front of the chunk is sent as it is
	out   bytes.Buffer // is sent after that
	err   error        // ends the answer when out is empty
}

// restart goes on with another piece in the reader's buffer.
func (o *output) restart() { o.from, o.kept = 0, 0 }

// send sends bytes up to i: where they are, if nothing is changed before them.
func (o *output) send(i int) {
	if o.out.Len() == 0 && o.kept == o.from {
		o.kept = i
	} else {
		_, _ = o.out.Write(o.chunk[o.from:i]) // It never fails.
	}
	o.from = i
}

// insert sends text after that.
func (o *output) insert(text []byte) { _, _ = o.out.Write(text) } // It never fails.
