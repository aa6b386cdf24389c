// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package chunkenc

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// XORRun appends several samples to an XOR chunk, with the bits that it writes
// kept in a register. The chunk gets the same bytes as from its appender. Between
// Begin and End nothing else may use the chunk or the appender.
type XORRun struct {
	a      *xorAppender
	stream []byte
	acc    uint64 // Its n lowest bits follow the stream; n is below 32.
	n      uint
	num    int

	t      int64
	v      uint64
	tDelta uint64
}

// OpenXORChunk is an XOR chunk with its appender, which live equally long, in one
// object.
type OpenXORChunk struct {
	XORChunk
	app xorAppender
}

// Open makes it an empty chunk. It must not be copied after that, nor reset.
func (c *OpenXORChunk) Open() {
	c.b.stream = make([]byte, chunkHeaderSize, chunkAllocationSize)
	c.app = xorAppender{b: &c.b, t: math.MinInt64, leading: 0xff}
}

// Appender implements the Chunk interface.
func (c *OpenXORChunk) Appender() (Appender, error) { return &c.app, nil }

// OpenAppender returns the appender, of which there is one.
func (c *OpenXORChunk) OpenAppender() Appender { return &c.app }

// Begin reports whether the appender is one of an XOR chunk; others are left
// alone.
func (r *XORRun) Begin(app Appender) bool {
	a, ok := app.(*xorAppender)
	if !ok {
		return false
	}
	r.num = int(binary.BigEndian.Uint16(a.b.stream))
	r.a, r.stream = a, a.b.stream
	r.acc, r.n = 0, 0
	if free := uint(a.b.count); free > 0 {
		last := len(r.stream) - 1
		r.acc, r.n = uint64(r.stream[last])>>free, 8-free
		r.stream = r.stream[:last]
	}
	r.t, r.v, r.tDelta = a.t, math.Float64bits(a.v), a.tDelta
	return true
}

// Fetch reads what Begin and Append need first. Fetching many chunks before the
// first is appended to lets the processor wait for all of them at once.
func Fetch(app Appender) (sum uint64) {
	if a, ok := app.(*xorAppender); ok {
		s := a.b.stream
		sum = a.tDelta + uint64(s[0]) + uint64(s[len(s)-1])
	}
	return sum
}

// NumSamples returns the samples of the chunk.
func (r *XORRun) NumSamples() int { return r.num }

// NumBytes returns the size of the chunk.
func (r *XORRun) NumBytes() int { return len(r.stream) + int(r.n+7)/8 }

// Append appends a sample; v are the bits of its value. The chunk must have fewer
// than math.MaxUint16.
func (r *XORRun) Append(t int64, v uint64) {
	tDelta := uint64(t - r.t)
	if r.num < 2 {
		r.start(t, v, tDelta)
		return
	}
	switch dod := int64(tDelta - r.tDelta); {
	case dod == 0 && v == r.v:
		r.put(0, 2)
		r.t = t
		r.num++
		return
	case dod == 0:
		r.put(0, 1)
	case bitRange(dod, 14):
		r.put(0b10<<14|uint64(dod)&(1<<14-1), 16)
	case bitRange(dod, 17):
		r.put(0b110<<17|uint64(dod)&(1<<17-1), 20)
	case bitRange(dod, 20):
		r.put(0b1110<<20|uint64(dod)&(1<<20-1), 24)
	default:
		r.put(0b1111, 4)
		r.putLong(uint64(dod), 64)
	}
	r.value(v)
	r.t, r.v, r.tDelta = t, v, tDelta
	r.num++
}

// start appends the first or the second sample.
func (r *XORRun) start(t int64, v, tDelta uint64) {
	var buf [binary.MaxVarintLen64]byte
	if r.num == 0 {
		tDelta = 0
		r.bytes(binary.AppendVarint(buf[:0], t))
		r.putLong(v, 64)
	} else {
		r.bytes(binary.AppendUvarint(buf[:0], tDelta))
		r.value(v)
	}
	r.t, r.v, r.tDelta = t, v, tDelta
	r.num++
}

func (r *XORRun) bytes(p []byte) {
	for _, b := range p {
		r.put(uint64(b), 8)
	}
}

func (r *XORRun) value(v uint64) {
	delta := v ^ r.v
	if delta == 0 {
		r.put(0, 1)
		return
	}
	a := r.a
	leading, trailing := min(uint8(bits.LeadingZeros64(delta)), 31), uint8(bits.TrailingZeros64(delta))
	if a.leading != 0xff && leading >= a.leading && trailing >= a.trailing {
		r.put(0b10, 2)
		r.putLong(delta>>a.trailing, 64-uint(a.leading)-uint(a.trailing))
		return
	}
	a.leading, a.trailing = leading, trailing
	significant := 64 - uint(leading) - uint(trailing)
	r.put(0b11<<11|uint64(leading)<<6|uint64(significant)&(1<<6-1), 13)
	r.putLong(delta>>trailing, significant)
}

// putLong puts up to 64 bits, of which those above n are ignored.
func (r *XORRun) putLong(u uint64, n uint) {
	if n > 32 {
		r.put(u>>32&(1<<(n-32)-1), n-32)
		n = 32
	}
	r.put(u&(1<<n-1), n)
}

// put puts the lowest n bits, up to 32, of u, which has no others.
func (r *XORRun) put(u uint64, n uint) {
	r.acc = r.acc<<n | u
	r.n += n
	if r.n >= 32 {
		r.n -= 32
		r.stream = binary.BigEndian.AppendUint32(r.stream, uint32(r.acc>>r.n))
	}
}

// End writes what is left to the chunk.
func (r *XORRun) End() {
	for r.n >= 8 {
		r.n -= 8
		r.stream = append(r.stream, byte(r.acc>>r.n))
	}
	b := r.a.b
	b.count = 0
	if r.n > 0 {
		b.count = uint8(8 - r.n)
		r.stream = append(r.stream, byte(r.acc<<b.count))
	}
	b.stream = r.stream
	binary.BigEndian.PutUint16(b.stream, uint16(r.num))
	r.a.t, r.a.v, r.a.tDelta = r.t, math.Float64frombits(r.v), r.tDelta
	*r = XORRun{}
}
