// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package floor

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/prometheus/prometheus/util/compression"
)

// The framing of a segment, as tsdb/wlog writes it: pages of 32 KiB with
// fragments of records, each one a header of type and flags (1 byte), length
// (2) and CRC (4), and its data; what is left of a page is zero.
const (
	pageSize   = 32 << 10
	headerSize = 7

	typeMask   = 1<<3 - 1
	snappyFlag = 1 << 3
	zstdFlag   = 1 << 4
)

const (
	pageTerm = iota
	full
	first
	middle
	last
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// framer takes a segment apart into records, still compressed. Upstream's
// reader always decompresses; here that must be left out to be measured. It
// reads what upstream's reads, and ends where that ends.
type framer struct {
	r       *bufio.Reader
	offset  int64
	partial []byte // the fragments so far of a record in several
	kind    byte   // of the last fragment
	err     error

	data        []byte
	compression compression.Type
}

func newFramer() *framer {
	return &framer{r: bufio.NewReaderSize(nil, 1<<20)}
}

// reset begins with another segment.
func (f *framer) reset(segment io.Reader) {
	f.r.Reset(&padded{r: segment})
	f.offset, f.kind, f.err = 0, pageTerm, nil
}

// next finds the next record; its data are valid until next is called again.
func (f *framer) next() bool {
	f.partial = f.partial[:0]
	for i := 0; ; {
		err := f.fragment(i)
		switch {
		case errors.Is(err, io.EOF):
			if f.kind == first || f.kind == middle {
				f.err = errors.New("last record is torn")
			}
			return false
		case err != nil:
			f.err = err
			return false
		case f.kind == full, f.kind == last:
			return true
		case f.kind != pageTerm:
			i++
		}
	}
}

// skipPage passes over the rest of a page, which must be zero but for the flags
// of its first byte.
func (f *framer) skipPage() error {
	rest := int(pageSize - f.offset%pageSize)
	b, err := f.r.Peek(rest)
	if err != nil {
		return err
	}
	for _, c := range b[1:] {
		if c != 0 {
			return errors.New("unexpected non-zero byte in padded page")
		}
	}
	return f.discard(rest)
}

// fragment reads and checks the i-th fragment of a record, or passes over the
// rest of a page. It returns io.EOF if the segment ends before the header or
// between the header and the data, which upstream takes for an end as well.
func (f *framer) fragment(i int) error {
	head, err := f.r.Peek(headerSize)
	if len(head) == 0 {
		return err
	}
	flags := head[0]
	f.kind = flags & typeMask
	switch {
	case f.kind == pageTerm:
		return f.skipPage()
	case len(head) == 1:
		return io.EOF
	case len(head) < headerSize:
		return io.ErrUnexpectedEOF
	}
	length, sum := int(binary.BigEndian.Uint16(head[1:])), binary.BigEndian.Uint32(head[3:])
	if length > pageSize-headerSize {
		return fmt.Errorf("invalid record size %d", length)
	}
	b, err := f.r.Peek(headerSize + length)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return err
	case err != nil && len(b) == headerSize:
		return io.EOF
	case err != nil:
		return io.ErrUnexpectedEOF
	}
	data := b[headerSize:]
	if got := crc32.Checksum(data, castagnoli); got != sum {
		return fmt.Errorf("unexpected checksum %x, expected %x", got, sum)
	}
	if f.kind > last || (i == 0) != (f.kind == full || f.kind == first) {
		return fmt.Errorf("unexpected fragment %d of type %d", i, f.kind)
	}
	f.take(flags, data)
	return f.discard(headerSize + length)
}

func (f *framer) take(flags byte, data []byte) {
	switch f.compression = compression.None; {
	case flags&snappyFlag != 0:
		f.compression = compression.Snappy
	case flags&zstdFlag != 0:
		f.compression = compression.Zstd
	}
	if f.kind == full {
		f.data = data // Valid until the next Peek.
		return
	}
	f.partial = append(f.partial, data...)
	f.data = f.partial
}

func (f *framer) discard(n int) error {
	f.offset += int64(n)
	_, err := f.r.Discard(n)
	return err
}

// padded fills the last page of a segment with zeros: a killed process leaves
// part of a page.
type padded struct {
	r   io.Reader
	n   int64
	end bool
}

func (p *padded) Read(b []byte) (int, error) {
	if !p.end {
		n, err := p.r.Read(b)
		p.n += int64(n)
		if !errors.Is(err, io.EOF) {
			return n, err
		}
		p.end = true
		if n > 0 {
			return n, nil
		}
	}
	missing := int((pageSize - p.n%pageSize) % pageSize)
	if missing == 0 {
		return 0, io.EOF
	}
	n := min(missing, len(b))
	clear(b[:n])
	p.n += int64(n)
	return n, nil
}
