// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"

	"github.com/golang/snappy"
	"github.com/klauspost/compress/zstd"

	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/util/compression"
)

// The format of a log, as package wlog writes it: pages of 32 KiB with fragments
// of records, each with a header of type and flags, length and checksum.
const (
	replayLogPageSize   = 32 * 1024
	replayLogHeaderSize = 7

	replayLogTypeMask = 1<<3 - 1
	replayLogSnappy   = 1 << 3
	replayLogZstd     = 1 << 4

	replayLogPageTerm = 0
	replayLogFull     = 1
	replayLogFirst    = 2
	replayLogMiddle   = 3
	replayLogLast     = 4
)

const (
	// replayBatchBytes is how much of a log is read into a batch.
	replayBatchBytes = 4 * replayLogPageSize
	// replayBatchDecoded is how much a batch's records take when they are
	// decompressed, unless it is a single one.
	replayBatchDecoded = 256 << 10
	// replayMaxRecord is more than a record that can be takes.
	replayMaxRecord = 1 << 30
)

var (
	replayLogTable = crc32.MakeTable(crc32.Castagnoli)

	// errReplayLog says that the reader of package wlog must be asked what is wrong
	// with a log, and where.
	errReplayLog = errors.New("unreadable log")
)

// replaySnappyRatio is more than snappy can expand: a copy of 64 bytes takes 3.
const replaySnappyRatio = 22

// frame reads all units into batches that start and end between records. It
// returns when the units are at their end or cannot be read on. Only the headers
// are looked at; decoders check the rest.
func (r *walReplay) frame() {
	defer close(r.ordered)
	defer close(r.toSplit)
	for _, u := range r.units {
		for i, name := range u.files {
			ok, err := r.frameFile(u, name, i == len(u.files)-1)
			if err != nil {
				r.fail(err)
			}
			if !ok || err != nil {
				return
			}
		}
	}
}

// frameFile reports whether the next file may be read.
func (r *walReplay) frameFile(u *replayUnit, name string, last bool) (ok bool, err error) {
	f, err := os.Open(name)
	if err != nil {
		return false, err
	}
	defer f.Close()

	var carry []byte       // What the batch before left.
	base := int64(0)       // Position of carry in the file.
	size := int64(0)       // Of what was read so far.
	for read := false; ; { // All of the file.
		b := r.nextBatch()
		if r.stopped.Load() {
			r.free <- b
			return false, nil
		}
		b.raw = append(b.raw[:0], carry...)
		b.base, b.unit, b.read = base, u, 0
		var whole framed
		for whole = wholeRecords(b.raw, base); whole.end == 0 && !read && !whole.broken; whole = wholeRecords(b.raw, base) {
			n := len(b.raw)
			if b.raw, err = readInto(f, b.raw, replayBatchBytes); err != nil {
				r.free <- b
				return false, err
			}
			size += int64(len(b.raw) - n)
			b.read += len(b.raw) - n
			if read = len(b.raw)-n < replayBatchBytes; read {
				// What package wlog reads of a short last page.
				for size%replayLogPageSize != 0 {
					b.raw = append(b.raw, 0)
					size++
				}
			}
		}
		done := whole.broken || read && !whole.full
		if done {
			whole.end = len(b.raw)
		}
		carry = append(carry[:0], b.raw[whole.end:]...)
		base += int64(whole.end)
		b.raw = b.raw[:whole.end]
		b.lastOfUnit = done && last
		b.size = max(whole.decoded, len(b.raw))
		r.inFlight.Add(int64(b.size))
		b.begin()
		r.ordered <- b // From here on it belongs to others.
		r.toSplit <- b
		if done {
			return !whole.broken, nil
		}
	}
}

// readInto appends up to n bytes of f to buf; fewer mean that f is at its end.
func readInto(f io.Reader, buf []byte, n int) ([]byte, error) {
	at := len(buf)
	if need := at + n + replayLogPageSize; cap(buf) < need {
		if at > n { // A long record: it may go on, and must not be copied each time.
			need += at
		}
		grown := make([]byte, at, need)
		copy(grown, buf)
		buf = grown
	}
	k, err := io.ReadFull(f, buf[at:at+n])
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return buf[:at+k], err
}

// framed is what wholeRecords finds.
type framed struct {
	end     int  // Of the whole records.
	decoded int  // Their bytes when they are decompressed, about.
	full    bool // More would be too many for a batch.
	broken  bool // A header cannot be.
}

// wholeRecords returns how much of buf, which starts between two records at a
// position of its log, are whole records that together make a batch: at least one
// if there is one.
func wholeRecords(buf []byte, base int64) (f framed) {
	inRecord := false
	decoded := 0
	for i := 0; i < len(buf); {
		typ := buf[i] & replayLogTypeMask
		if typ == replayLogPageTerm {
			i += padding(base + int64(i))
			if i > len(buf) {
				return f
			}
		} else {
			if len(buf)-i < replayLogHeaderSize {
				return f
			}
			length := int(binary.BigEndian.Uint16(buf[i+1:]))
			if length > replayLogPageSize-replayLogHeaderSize {
				f.broken = true
				return f
			}
			data := buf[i+replayLogHeaderSize:]
			if length > len(data) {
				return f
			}
			decoded += length
			if !inRecord {
				decoded += decodedLen(buf[i], data[:length])
			}
			i += replayLogHeaderSize + length
			inRecord = typ != replayLogFull && typ != replayLogLast
		}
		if inRecord {
			continue
		}
		if f.full = f.end > 0 && decoded > replayBatchDecoded; f.full {
			return f
		}
		f.end, f.decoded = i, decoded
	}
	return f
}

// decodedLen returns what the start of a compressed record says that it takes
// without compression, if it does say so and it can be.
func decodedLen(header byte, data []byte) int {
	switch {
	case header&replayLogSnappy != 0:
		if n, err := snappy.DecodedLen(data); err == nil {
			return min(n, replayMaxRecord)
		}
	case header&replayLogZstd != 0:
		var h zstd.Header
		if err := h.Decode(data); err == nil && h.HasFCS {
			return int(min(h.FrameContentSize, replayMaxRecord))
		}
	}
	return 0
}

// padding returns the bytes from a terminator at a position up to the end of its
// page.
func padding(at int64) int {
	return int(replayLogPageSize - at%replayLogPageSize)
}

// replayRecord is one record of a batch. What other records than those of
// samples hold is decoded when they are split.
type replayRecord struct {
	typ      record.Type
	data     []byte // Of samples only.
	from, to int32  // Of the batch's slice of this type.
}

// split checks the fragments of a batch, joins and decompresses its records, and
// decodes all but samples. It stops before what package wlog would not read.
func (d *replayDecoder) split(b *replayBatch) {
	buf := b.raw
	var whole []byte // The fragments so far of a record of several.
	fragments := 0
	for i := 0; i < len(buf); {
		header := buf[i]
		typ := header & replayLogTypeMask
		if typ == replayLogPageTerm {
			n := padding(b.base + int64(i))
			if n > len(buf)-i || !allZero(buf[i+1:i+n]) {
				b.stop = true
				return
			}
			i += n
			continue
		}
		if len(buf)-i < replayLogHeaderSize {
			b.stop = true
			return
		}
		length := int(binary.BigEndian.Uint16(buf[i+1:]))
		sum := binary.BigEndian.Uint32(buf[i+3:])
		i += replayLogHeaderSize
		if length > replayLogPageSize-replayLogHeaderSize || length > len(buf)-i {
			b.stop = true
			return
		}
		data := buf[i : i+length]
		i += length
		first := typ == replayLogFull || typ == replayLogFirst
		if typ > replayLogLast || first != (fragments == 0) || crc32.Checksum(data, replayLogTable) != sum {
			b.stop = true
			return
		}
		switch typ {
		case replayLogFirst:
			whole = b.alloc(0, length+lengthOfRest(buf[i:], b.base+int64(i)))
			fallthrough
		case replayLogMiddle:
			whole = append(whole, data...)
			fragments++
			continue
		case replayLogLast:
			data = append(whole, data...)
			whole, fragments = nil, 0
		}
		rec, err := d.decompress(b, header, data)
		if err != nil {
			b.stop = true
			return
		}
		if err := d.add(b, rec); err != nil {
			b.err = err
			return
		}
	}
	// A record whose rest is missing.
	b.stop = b.stop || fragments > 0
}

// lengthOfRest returns the length of the fragments up to the last one of a record
// that buf, at a position of its log, goes on with.
func lengthOfRest(buf []byte, base int64) int {
	sum := 0
	for i := 0; len(buf)-i >= replayLogHeaderSize; {
		typ := buf[i] & replayLogTypeMask
		if typ == replayLogPageTerm {
			i += padding(base + int64(i))
			continue
		}
		length := int(binary.BigEndian.Uint16(buf[i+1:]))
		sum += length
		i += replayLogHeaderSize + length
		if typ != replayLogMiddle {
			break
		}
	}
	return sum
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

func (d *replayDecoder) decompress(b *replayBatch, header byte, data []byte) ([]byte, error) {
	switch {
	case len(data) == 0:
		return data, nil
	case header&replayLogSnappy != 0:
		n, err := snappy.DecodedLen(data)
		if err != nil {
			return nil, err
		}
		if n > replaySnappyRatio*len(data) {
			return nil, snappy.ErrCorrupt // Before room is made for what cannot be.
		}
		return snappy.Decode(b.alloc(n, n), data)
	case header&replayLogZstd != 0:
		rec, err := compression.Decode(compression.Zstd, data, d.zstd)
		if err != nil {
			return nil, err
		}
		return append(b.alloc(0, len(rec)), rec...), nil
	}
	return data, nil
}
