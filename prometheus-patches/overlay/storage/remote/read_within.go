// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net/http"

	"github.com/golang/snappy"

	"github.com/prometheus/prometheus/promguard/reads"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// maxReadQueries is the most queries that a limited remote read request may have.
const maxReadQueries = 1000

// checkReadRequest returns an error if the request costs too much before its
// first series: by the number of its queries, or by regular expressions, which
// are compiled at once.
func checkReadRequest(ctx context.Context, req *prompb.ReadRequest) error {
	read := reads.FromContext(ctx)
	if read == nil {
		return nil
	}
	if len(req.Queries) > maxReadQueries {
		return fmt.Errorf("Send fewer queries in a request: this one has %d, and at most %d are allowed", len(req.Queries), maxReadQueries) //nolint:staticcheck // It is what a client reads.
	}
	var regexes []string
	for _, q := range req.Queries {
		for _, m := range q.Matchers {
			if m.Type == prompb.LabelMatcher_RE || m.Type == prompb.LabelMatcher_NRE {
				regexes = append(regexes, m.Value)
			}
		}
	}
	return read.CheckRegexes(regexes)
}

// Bytes that ToQueryResult holds for each sample: a slice that grows, and the
// message of a native histogram about.
const (
	floatBytes     = 32
	histogramBytes = 512
	// reserveEvery is how many bytes are reserved at a time.
	reserveEvery = 256 << 10
)

// accountSamples returns the set such that its samples are reserved from the
// memory budget as they are read. All but a limited read request get the set
// that they gave.
func accountSamples(ctx context.Context, set storage.SeriesSet) storage.SeriesSet {
	read := reads.FromContext(ctx)
	if read == nil {
		return set
	}
	return &accountedSet{SeriesSet: set, ctx: ctx, read: read}
}

type accountedSet struct {
	storage.SeriesSet
	ctx  context.Context
	read *reads.Read
	// due is what has been read and not reserved yet, in bytes.
	due int64
	err error
}

// Next implements storage.SeriesSet.
func (s *accountedSet) Next() bool {
	if s.SeriesSet.Next() {
		return true
	}
	n := s.due
	s.due = 0
	s.err = s.read.Reserve(s.ctx, n)
	return false
}

// Err implements storage.SeriesSet.
func (s *accountedSet) Err() error {
	if s.err != nil {
		return s.err
	}
	return s.SeriesSet.Err()
}

func (s *accountedSet) At() storage.Series { return accountedSeries{s.SeriesSet.At(), s} }

func (s *accountedSet) add(n int64) error {
	if s.due += n; s.due < reserveEvery {
		return nil
	}
	n, s.due = s.due, 0
	if err := s.read.Reserve(s.ctx, n); err != nil {
		return err
	}
	return reads.Yield(s.ctx)
}

type accountedSeries struct {
	storage.Series
	set *accountedSet
}

// Iterator implements storage.Series.
func (s accountedSeries) Iterator(it chunkenc.Iterator) chunkenc.Iterator {
	a, ok := it.(*accountedIterator)
	if !ok {
		a = &accountedIterator{set: s.set}
	}
	a.Iterator = s.Series.Iterator(a.Iterator)
	return a
}

type accountedIterator struct {
	chunkenc.Iterator
	set *accountedSet
	err error
}

// Next implements chunkenc.Iterator.
func (it *accountedIterator) Next() chunkenc.ValueType {
	if it.err != nil {
		return chunkenc.ValNone
	}
	v := it.Iterator.Next()
	switch v {
	case chunkenc.ValNone:
		return v
	case chunkenc.ValFloat:
		it.err = it.set.add(floatBytes)
	default:
		it.err = it.set.add(histogramBytes)
	}
	if it.err != nil {
		return chunkenc.ValNone
	}
	return v
}

// Err implements chunkenc.Iterator.
func (it *accountedIterator) Err() error {
	if it.err != nil {
		return it.err
	}
	return it.Iterator.Err()
}

// encodeReadResponse sends the same bytes as EncodeReadResponse. For a limited
// read request it does so while it encodes them, a snappy block at a time, and
// stops soon after the context is done.
func encodeReadResponse(ctx context.Context, resp *prompb.ReadResponse, w http.ResponseWriter) error {
	read := reads.FromContext(ctx)
	if read == nil {
		return EncodeReadResponse(resp, w)
	}
	results := make([]int, len(resp.Results))
	total := 0
	for i, r := range resp.Results {
		for j, ts := range r.Timeseries {
			if j%checkSeriesEvery == checkSeriesEvery-1 {
				if err := reads.Yield(ctx); err != nil {
					return err
				}
			}
			results[i] += fieldSize(ts.Size())
		}
		total += fieldSize(results[i])
	}
	if err := read.CheckResponse(int64(total)); err != nil {
		return err
	}
	e := &snappyStream{ctx: ctx, w: w}
	e.block.Grow(2 * snappyBlock)
	if _, err := w.Write(binary.AppendUvarint(nil, uint64(total))); err != nil {
		return err
	}
	var buf []byte
	for i, r := range resp.Results {
		e.field(results[i])
		for _, ts := range r.Timeseries {
			size := ts.Size()
			if cap(buf) < size {
				buf = make([]byte, size)
			}
			if _, err := ts.MarshalToSizedBuffer(buf[:size]); err != nil {
				return err
			}
			e.field(size)
			e.block.Write(buf[:size])
			if err := e.flush(snappyBlock); err != nil {
				return err
			}
		}
	}
	return e.flush(1)
}

const (
	// snappyBlock is the size of the pieces that the snappy format compresses
	// each on its own.
	snappyBlock = 64 << 10
	// checkSeriesEvery is how many series are measured between two looks at the
	// context.
	checkSeriesEvery = 256
	// firstField is the tag of field 1, length-delimited, which is all that read
	// responses and results have.
	firstField = 1<<3 | 2
)

// fieldSize returns the size of a field that holds n bytes.
func fieldSize(n int) int { return 1 + len(binary.AppendUvarint(nil, uint64(n))) + n }

type snappyStream struct {
	ctx   context.Context
	w     http.ResponseWriter
	block bytes.Buffer
	out   []byte
}

func (e *snappyStream) field(size int) {
	e.block.WriteByte(firstField)
	e.block.Write(binary.AppendUvarint(e.block.AvailableBuffer(), uint64(size)))
}

// flush compresses and sends blocks for as long as there are least bytes.
func (e *snappyStream) flush(least int) error {
	for e.block.Len() >= least {
		if err := reads.Yield(e.ctx); err != nil {
			return err
		}
		e.out = snappy.Encode(e.out[:cap(e.out)], e.block.Next(snappyBlock))
		_, header := binary.Uvarint(e.out) // Each block's own size: the stream has the whole one's.
		if _, err := e.w.Write(e.out[header:]); err != nil {
			return err
		}
	}
	return nil
}
