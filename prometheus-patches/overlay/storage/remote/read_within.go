// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"bytes"
	"context"
	"encoding/binary"
	"net/http"

	"github.com/golang/snappy"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// Bytes that ToQueryResult holds for each sample: a slice that grows, and the
// message of a native histogram about.
const (
	floatBytes     = 32
	histogramBytes = 512
	// tellEvery is how many bytes the account is told of at a time.
	tellEvery = 256 << 10
)

// accountedQuerier gives selections to accountSamples.
type accountedQuerier struct{ storage.Querier }

// Select implements storage.Querier.
func (q accountedQuerier) Select(ctx context.Context, sorted bool, hints *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	return accountSamples(ctx, q.Querier.Select(ctx, sorted, hints, matchers...))
}

// accountSamples returns the set such that the account of the context is told of
// its samples as they are read. Without one it is the set that was given.
func accountSamples(ctx context.Context, set storage.SeriesSet) storage.SeriesSet {
	account := storage.ReadAccountFrom(ctx)
	if account == nil {
		return set
	}
	return &accountedSet{SeriesSet: set, ctx: ctx, account: account}
}

type accountedSet struct {
	storage.SeriesSet
	ctx     context.Context
	account storage.ReadAccount
	// due is what has been read and not told yet, in bytes.
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
	s.err = s.account.Use(n)
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
	if s.due += n; s.due < tellEvery {
		return nil
	}
	n, s.due = s.due, 0
	if err := s.account.Use(n); err != nil {
		return err
	}
	return s.account.Yield(s.ctx)
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

// encodeReadResponse sends the same bytes as EncodeReadResponse. For a read
// that is counted it does so while it encodes them, a snappy block at a time, and
// stops soon after the context is done.
func encodeReadResponse(ctx context.Context, resp *prompb.ReadResponse, w http.ResponseWriter) error {
	account := storage.ReadAccountFrom(ctx)
	if account == nil {
		return EncodeReadResponse(resp, w)
	}
	results := make([]int, len(resp.Results))
	total := 0
	for i, r := range resp.Results {
		for j, ts := range r.Timeseries {
			if j%checkSeriesEvery == checkSeriesEvery-1 {
				if err := account.Yield(ctx); err != nil {
					return err
				}
			}
			results[i] += fieldSize(ts.Size())
		}
		total += fieldSize(results[i])
	}
	if err := account.CheckResponse(int64(total)); err != nil {
		return err
	}
	e := &snappyStream{ctx: ctx, account: account, w: w}
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
	ctx     context.Context
	account storage.ReadAccount
	w       http.ResponseWriter
	block   bytes.Buffer
	out     []byte
}

func (e *snappyStream) field(size int) {
	e.block.WriteByte(firstField)
	e.block.Write(binary.AppendUvarint(e.block.AvailableBuffer(), uint64(size)))
}

// flush compresses and sends blocks for as long as there are least bytes.
func (e *snappyStream) flush(least int) error {
	for e.block.Len() >= least {
		if err := e.account.Yield(e.ctx); err != nil {
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
