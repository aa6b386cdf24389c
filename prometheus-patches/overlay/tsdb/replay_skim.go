// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"slices"

	"github.com/golang/snappy"

	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/util/compression"
)

// replaySkimmer reads the records of some types, and of all others no more than how
// long they are. It checks no sums.
type replaySkimmer struct {
	types   []record.Type
	in      *bufio.Reader
	at      int64 // Position in the file.
	joined  []byte
	decoded []byte
	zstd    compression.DecodeBuffer
}

func newReplaySkimmer(types ...record.Type) *replaySkimmer {
	return &replaySkimmer{types: types, in: bufio.NewReaderSize(nil, 2*replayLogPageSize), zstd: compression.NewSyncDecodeBuffer()}
}

// skim calls f for each record of a file, which is good until f returns. An error says
// that the file cannot be read to its end.
func (s *replaySkimmer) skim(name string, f func(rec []byte) error) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	s.in.Reset(file)
	s.at = 0
	for {
		rec, err := s.next()
		if err == nil && slices.Contains(s.types, recordType(rec)) {
			err = f(rec)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func recordType(rec []byte) record.Type {
	if len(rec) == 0 {
		return record.Unknown
	}
	return record.Type(rec[0])
}

// next returns the next record that is, or may be, of a type that is looked for.
func (s *replaySkimmer) next() ([]byte, error) {
	wanted, inside := false, false
	for s.joined = s.joined[:0]; ; {
		header, err := s.in.Peek(replayLogHeaderSize)
		if len(header) > 0 && header[0]&replayLogTypeMask == replayLogPageTerm {
			if err := s.skip(padding(s.at)); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, err // Perhaps in the middle of a record: the last was torn.
		}
		flags, typ := header[0], header[0]&replayLogTypeMask
		length := int(binary.BigEndian.Uint16(header[1:]))
		if first := typ == replayLogFull || typ == replayLogFirst; typ > replayLogLast || first == inside {
			return nil, errReplayLog
		}
		if err := s.skip(replayLogHeaderSize); err != nil {
			return nil, err
		}
		if !inside {
			start, _ := s.in.Peek(min(length, snappyFirstByte+1))
			wanted = s.mayWant(flags, start)
		}
		inside = typ == replayLogFirst || typ == replayLogMiddle
		if !wanted {
			err = s.skip(length)
		} else {
			err = s.join(length)
		}
		if err != nil {
			return nil, err
		}
		if wanted && !inside {
			return s.decompress(flags)
		}
	}
}

func (s *replaySkimmer) skip(n int) error {
	n, err := s.in.Discard(n)
	s.at += int64(n)
	return err
}

// join appends the next bytes to the record.
func (s *replaySkimmer) join(n int) error {
	at := len(s.joined)
	s.joined = slices.Grow(s.joined, n)[:at+n]
	n, err := io.ReadFull(s.in, s.joined[at:])
	s.at += int64(n)
	return err
}

// snappyFirstByte is the furthest position of the first byte in what snappy makes of
// bytes: after their number, and the number of those that come as they are.
const snappyFirstByte = binary.MaxVarintLen32 + 5

// mayWant reports whether a record that begins like this can be of one of the types.
// Which it is of is its first byte, which snappy leaves as it is.
func (s *replaySkimmer) mayWant(flags byte, start []byte) bool {
	switch {
	case flags&replayLogSnappy != 0:
		_, n := binary.Uvarint(start)
		if n <= 0 || n == len(start) || start[n]&3 != 0 {
			return true
		}
		n += 1 + max(0, int(start[n]>>2)-59)
		start = start[min(n, len(start)):]
	case flags&replayLogZstd != 0:
		return true
	}
	return len(start) == 0 || slices.Contains(s.types, recordType(start))
}

func (s *replaySkimmer) decompress(flags byte) (rec []byte, err error) {
	switch {
	case len(s.joined) == 0:
	case flags&replayLogSnappy != 0:
		s.decoded, err = snappy.Decode(s.decoded[:cap(s.decoded)], s.joined)
		return s.decoded, err
	case flags&replayLogZstd != 0:
		return compression.Decode(compression.Zstd, s.joined, s.zstd)
	}
	return s.joined, nil
}
