// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// Difference is the first place where two heads are not the same.
type Difference struct{ text string }

func (d *Difference) Error() string { return "the heads differ: " + d.text }

func differ(format string, args ...any) error { return &Difference{fmt.Sprintf(format, args...)} }

// comparison compares two sources and sums up what they have in common.
type comparison struct {
	names [2]string // of the heads
	ctx   context.Context

	series, floats, histograms int
	fingerprint                *fingerprint
}

// streams compares all series of two sources.
func (c *comparison) streams(a, b source) error {
	for {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		x, err := nextOrNil(a)
		if err != nil {
			return fmt.Errorf("reading everything from %s: %w", c.names[0], err)
		}
		y, err := nextOrNil(b)
		if err != nil {
			return fmt.Errorf("reading everything from %s: %w", c.names[1], err)
		}
		if x == nil && y == nil {
			return nil
		}
		if err := c.one(x, y); err != nil {
			return err
		}
		c.series++
	}
}

func nextOrNil(s source) (*series, error) {
	x, err := s.next()
	if errors.Is(err, io.EOF) {
		return nil, nil //nolint:nilnil // The end.
	}
	return x, err
}

// one compares the next series of both; nil is the end.
func (c *comparison) one(x, y *series) error {
	switch {
	case y == nil || x != nil && labels.Compare(x.labels, y.labels) < 0:
		return differ("series %s has samples in %s and not in %s", x.labels, c.names[0], c.names[1])
	case x == nil || labels.Compare(x.labels, y.labels) > 0:
		return differ("series %s has samples in %s and not in %s", y.labels, c.names[1], c.names[0])
	}
	p, err := x.samples()
	if err != nil {
		return err
	}
	q, err := y.samples()
	if err != nil {
		return err
	}
	c.fingerprint.labels(x.labels)
	for n := 1; ; n++ {
		s, t := read(p), read(q)
		if err := errors.Join(p.Err(), q.Err()); err != nil {
			return fmt.Errorf("series %s: sample %d: %w", x.labels, n, err)
		}
		if !s.equal(&t) {
			return differ("series %s: sample %d: %s has %s, %s has %s", x.labels, n, c.names[0], s, c.names[1], t)
		}
		switch s.kind {
		case chunkenc.ValNone:
			return nil
		case chunkenc.ValFloat:
			c.floats++
		default:
			c.histograms++
		}
		c.fingerprint.sample(&s)
	}
}

// sample is one sample; kind is ValNone after the last.
type sample struct {
	kind  chunkenc.ValueType
	t, st int64
	v     float64
	h     *histogram.Histogram
	fh    *histogram.FloatHistogram
}

func read(it chunkenc.Iterator) sample {
	s := sample{kind: it.Next()}
	switch s.kind {
	case chunkenc.ValFloat:
		s.t, s.v = it.At()
	case chunkenc.ValHistogram:
		s.t, s.h = it.AtHistogram(nil)
	case chunkenc.ValFloatHistogram:
		s.t, s.fh = it.AtFloatHistogram(nil)
	default:
		return s
	}
	s.st = it.AtST()
	return s
}

// equal compares bit by bit, so that stale markers are no other NaN. A counter
// reset hint is not compared: it says where a chunk began.
func (s *sample) equal(o *sample) bool {
	if s.kind != o.kind || s.t != o.t || s.st != o.st {
		return false
	}
	switch s.kind {
	case chunkenc.ValFloat:
		return math.Float64bits(s.v) == math.Float64bits(o.v)
	case chunkenc.ValHistogram:
		return s.h.Equals(o.h)
	case chunkenc.ValFloatHistogram:
		return s.fh.Equals(o.fh)
	}
	return true
}

func (s sample) String() string {
	text := ""
	switch s.kind {
	case chunkenc.ValNone:
		return "none"
	case chunkenc.ValFloat:
		text = strconv.FormatFloat(s.v, 'g', -1, 64)
		if value.IsStaleNaN(s.v) {
			text = "a stale marker"
		}
	case chunkenc.ValHistogram:
		text = "the histogram " + s.h.String()
	case chunkenc.ValFloatHistogram:
		text = "the float histogram " + s.fh.String()
	}
	text += " at " + time.UnixMilli(s.t).UTC().Format("2006-01-02T15:04:05.000Z07:00")
	if s.st != 0 {
		text += ", started " + time.UnixMilli(s.st).UTC().Format("2006-01-02T15:04:05.000Z07:00")
	}
	return text
}

// fingerprint is a hash of series and samples that does not depend on chunks.
type fingerprint struct {
	hash hash.Hash
	w    *bufio.Writer
	buf  []byte
}

func newFingerprint() *fingerprint {
	h := sha256.New()
	return &fingerprint{hash: h, w: bufio.NewWriterSize(h, 64<<10)}
}

func (f *fingerprint) labels(ls labels.Labels) {
	f.buf = ls.Bytes(append(f.buf[:0], 'L'))
	f.write()
}

func (f *fingerprint) sample(s *sample) {
	f.buf = append(f.buf[:0], 'S', byte(s.kind))
	f.ints(s.t, s.st)
	switch s.kind {
	case chunkenc.ValFloat:
		f.floats(s.v)
	case chunkenc.ValHistogram:
		f.histogram(s.h.ToFloat(nil))
	case chunkenc.ValFloatHistogram:
		f.histogram(s.fh)
	}
	f.write()
}

func (f *fingerprint) histogram(h *histogram.FloatHistogram) {
	f.ints(int64(h.Schema))
	f.floats(h.Count, h.Sum, h.ZeroCount, h.ZeroThreshold)
	f.spans(h.PositiveSpans)
	f.spans(h.NegativeSpans)
	for _, values := range [][]float64{h.PositiveBuckets, h.NegativeBuckets, h.CustomValues} {
		f.ints(int64(len(values)))
		f.floats(values...)
	}
}

func (f *fingerprint) spans(spans []histogram.Span) {
	f.ints(int64(len(spans)))
	for _, s := range spans {
		f.ints(int64(s.Offset), int64(s.Length))
	}
}

func (f *fingerprint) ints(values ...int64) {
	for _, v := range values {
		f.buf = binary.LittleEndian.AppendUint64(f.buf, uint64(v))
	}
}

func (f *fingerprint) floats(values ...float64) {
	for _, v := range values {
		f.buf = binary.LittleEndian.AppendUint64(f.buf, math.Float64bits(v))
	}
}

func (f *fingerprint) write() { _, _ = f.w.Write(f.buf) } // A hash has no errors.

func (f *fingerprint) String() string {
	_ = f.w.Flush()
	return "sha256:" + hex.EncodeToString(f.hash.Sum(nil))
}
