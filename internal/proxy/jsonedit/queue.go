// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package jsonedit

// queue holds bytes in the order in which they came. It never moves them to make
// room, and so takes little more memory than it holds. The zero value is empty.
type queue struct {
	blocks [][]byte
	read   int // bytes of the first block that are gone
	length int
}

// The sizes of blocks: the first of a queue is small, as most hold little.
const (
	firstBlock = 1 << 10
	nextBlock  = 64 << 10
)

// Len returns how many bytes there are.
func (q *queue) Len() int { return q.length }

// Write implements io.Writer. It never fails, and copies p.
func (q *queue) Write(p []byte) (int, error) {
	q.length += len(p)
	rest := p
	for len(rest) > 0 {
		last := len(q.blocks) - 1
		if last < 0 || len(q.blocks[last]) == cap(q.blocks[last]) {
			size := nextBlock
			if last < 0 {
				size = firstBlock
			}
			q.blocks = append(q.blocks, make([]byte, 0, size))
			last++
		}
		b := q.blocks[last]
		n := copy(b[len(b):cap(b)], rest)
		q.blocks[last], rest = b[:len(b)+n], rest[n:]
	}
	return len(p), nil
}

// Read takes bytes out of a queue that is not empty.
func (q *queue) Read(p []byte) int {
	n := copy(p, q.blocks[0][q.read:])
	q.read += n
	q.length -= n
	switch {
	case q.length == 0:
		q.reset()
	case q.read == len(q.blocks[0]):
		q.blocks, q.read = q.blocks[1:], 0
	}
	return n
}

// take moves all bytes of from, none of which was read, to the end of q.
func (q *queue) take(from *queue) {
	if q.length == 0 {
		*q, *from = *from, *q
		return
	}
	q.blocks = append(q.blocks, from.blocks...)
	q.length += from.length
	*from = queue{}
}

// reset forgets all. It keeps the memory of one small block.
func (q *queue) reset() {
	if len(q.blocks) == 0 || cap(q.blocks[0]) != firstBlock {
		*q = queue{}
		return
	}
	clear(q.blocks[1:])
	q.blocks[0] = q.blocks[0][:0]
	*q = queue{blocks: q.blocks[:1]}
}
