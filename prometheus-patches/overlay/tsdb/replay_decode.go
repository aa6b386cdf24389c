// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"

	"github.com/dennwc/varint"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/encoding"
	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/util/compression"
)

var errReplaySamples = errors.New("record of samples cannot be decoded")

// replaySeries is a series record, made into a series that may turn out to be a
// duplicate.
type replaySeries struct {
	series *memSeries
	hash   uint64
}

// What a replaySample is.
const (
	replayFloat = iota // The value of a float; all others have an extra.
	replayFloatST
	replayHistogram
	replayFloatHistogram
	replayReset  // The series was found in another series record.
	replayDelete // The series is deleted.
)

// replayRun is samples of one time, of neighbours in a page, on their way to the
// applier that owns the page; or one event in the life of a series.
type replayRun struct {
	page   *replayPage
	t      int64
	v      uint64 // The value of a float without values, or the position of the extra.
	values []byte // A value of 8 bytes each stride bytes.
	at, n  uint8  // Places in the page.
	kind   uint8
	stride uint8
}

// replayExtra is what a sample has besides a float.
type replayExtra struct {
	st     int64
	v      float64
	h      *histogram.Histogram
	fh     *histogram.FloatHistogram
	series *memSeries

	walRef          chunks.HeadSeriesRef
	mmapped, ooomap []*mmappedChunk
}

// replayShard is what a batch has for one applier, in the order of the log.
type replayShard struct {
	runs   []replayRun
	extras []replayExtra
}

// replayDecoder decodes batches; each belongs to one goroutine.
type replayDecoder struct {
	r    *walReplay
	dec  record.Decoder
	zstd compression.DecodeBuffer

	b *replayBatch

	samples []record.RefSample
	hists   []record.RefHistogramSample
	fhists  []record.RefFloatHistogramSample
}

func newReplayDecoder(r *walReplay) *replayDecoder {
	return &replayDecoder{
		r:    r,
		dec:  record.NewDecoder(r.syms, r.h.logger),
		zstd: compression.NewSyncDecodeBuffer(),
	}
}

// add adds a record to the batch, and decodes it unless it holds samples.
func (d *replayDecoder) add(b *replayBatch, rec []byte) (err error) {
	r := replayRecord{typ: d.dec.Type(rec)}
	switch r.typ {
	case record.Samples, record.SamplesV2,
		record.HistogramSamples, record.CustomBucketsHistogramSamples, record.HistogramSamplesV2,
		record.FloatHistogramSamples, record.CustomBucketsFloatHistogramSamples, record.FloatHistogramSamplesV2:
		r.data = rec
	case record.Series:
		r.from = int32(len(b.series))
		err = d.seriesRecord(b, rec[1:])
		r.to = int32(len(b.series))
	case record.Tombstones:
		r.from = int32(len(b.stones))
		b.stones, err = d.dec.Tombstones(rec, b.stones)
		r.to = int32(len(b.stones))
	case record.Exemplars:
		r.from = int32(len(b.exemplars))
		b.exemplars, err = d.dec.Exemplars(rec, b.exemplars)
		r.to = int32(len(b.exemplars))
	case record.Metadata:
		r.from = int32(len(b.metadata))
		b.metadata, err = d.dec.Metadata(rec, b.metadata)
		r.to = int32(len(b.metadata))
	default:
		// Counted, and ignored as upstream does.
	}
	if err != nil {
		return err
	}
	b.records = append(b.records, r)
	return nil
}

// seriesRecord accepts what record.Decoder accepts.
func (d *replayDecoder) seriesRecord(b *replayBatch, p []byte) error {
	for len(p) > 0 {
		if len(p) < 8 {
			return encoding.ErrInvalidSize
		}
		ref := chunks.HeadSeriesRef(binary.BigEndian.Uint64(p))
		p = p[8:]
		lset, n := verbatimLabels(p)
		if n == 0 {
			dec := encoding.Decbuf{B: p}
			lset = d.dec.DecodeLabels(&dec)
			if err := dec.Err(); err != nil {
				return err
			}
			n = len(p) - dec.Len()
		}
		p = p[n:]
		b.series = append(b.series, d.newSeries(ref, lset))
	}
	return nil
}

func (d *replayDecoder) newSeries(ref chunks.HeadSeriesRef, lset labels.Labels) replaySeries {
	shardHash := uint64(0)
	if d.r.h.opts.EnableSharding {
		shardHash = labels.StableHash(lset)
	}
	ms := newMemSeries(lset, ref, shardHash, d.r.h.opts.IsolationDisabled, false)
	ms.nextAt = 0 // As upstream's reset leaves it.
	ms.mmMaxTime = math.MinInt64
	return replaySeries{series: ms, hash: lset.Hash()}
}

// route decodes the samples of a batch whose series records the sequencer has
// seen, drops those that are in m-mapped chunks, and hands the rest out to the
// appliers.
func (d *replayDecoder) route(b *replayBatch) error {
	d.b = b
	defer func() {
		d.samples, d.hists, d.fhists = emptied(d.samples, b.kept), emptied(d.hists, b.kept), emptied(d.fhists, b.kept)
	}()
	events := b.events
	for i := range b.records {
		number := b.first + uint64(i)
		for len(events) > 0 && events[0].record == number {
			d.event(events[0])
			events = events[1:]
		}
		rec := &b.records[i]
		var err error
		switch rec.typ {
		case record.Samples:
			err = d.samplesV1(rec.data, number)
		case record.SamplesV2:
			err = d.samplesV2(rec.data, number)
		case record.HistogramSamples, record.CustomBucketsHistogramSamples, record.HistogramSamplesV2:
			err = d.histograms(rec.data, number)
		case record.FloatHistogramSamples, record.CustomBucketsFloatHistogramSamples, record.FloatHistogramSamplesV2:
			err = d.floatHistograms(rec.data, number)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *replayDecoder) emit(run replayRun) {
	s := &d.b.shards[run.page.shard]
	s.runs = append(s.runs, run)
}

func (d *replayDecoder) emitExtra(p *replayPage, at int, t int64, kind uint8, e replayExtra) {
	s := &d.b.shards[p.shard]
	s.runs = append(s.runs, replayRun{page: p, t: t, v: uint64(len(s.extras)), at: uint8(at), n: 1, kind: kind})
	s.extras = append(s.extras, e)
}

func (d *replayDecoder) event(e replayBatchEvent) {
	p := d.r.refs.page(e.extra.series.ref)
	d.emitExtra(p, int(e.extra.series.ref&replayPageMask), 0, e.kind, e.extra)
}

// samplesV1 is the hot path: the record of one scrape. It accepts exactly what
// record.Decoder accepts. Series that were scraped together mostly have references
// in a row, so that a page's samples are dropped, or handed on, at once.
func (d *replayDecoder) samplesV1(rec []byte, number uint64) error {
	p := rec[1:]
	if len(p) == 0 {
		return nil
	}
	if len(p) < 16 {
		return errReplaySamples
	}
	baseRef := int64(binary.BigEndian.Uint64(p))
	baseTime := int64(binary.BigEndian.Uint64(p[8:]))
	p = p[16:]
	var (
		minValidTime = d.r.minValidTime
		known        = replayKnown{t: math.MinInt64}
	)
	for len(p) > 0 {
		dref, dtime, head := shortDeltas(p)
		n := 1
		if head > 0 {
			n = neighbours(p, head)
		} else if dref, dtime, head = longDeltas(p); head == 0 {
			return errReplaySamples
		}
		stride := head + 8
		if len(p) < stride {
			return errReplaySamples
		}
		t := baseTime + (int64(dtime>>1) ^ -int64(dtime&1))
		if t < minValidTime {
			p = p[n*stride:]
			continue
		}
		ref := uint64(baseRef + (int64(dref>>1) ^ -int64(dref&1)))
		at := int(ref & replayPageMask)
		n = min(n, replayPageRefs-at)
		if known.t != t || known.number != ref>>replayPageBits {
			known.look(d.r.refs, ref, t, number)
		}
		for n > 0 {
			k := min(n, bits.TrailingZeros64(^(known.mmapped >> at)))
			if k == 0 {
				if k = min(n, bits.TrailingZeros64(^(known.newer >> at))); k > 0 {
					d.emit(replayRun{page: known.page, t: t, values: p[head:], at: uint8(at), n: uint8(k), stride: uint8(stride)})
				} else {
					k = 1
					d.odd(chunks.HeadSeriesRef(ref&^replayPageMask|uint64(at)), t, number, replayFloat,
						replayExtra{v: math.Float64frombits(binary.BigEndian.Uint64(p[head:]))})
				}
			}
			p = p[k*stride:]
			n, at = n-k, at+k
		}
	}
	return nil
}

// replayKnown is what is known about the references of a page, in samples of one
// time of one record: a bit for each.
type replayKnown struct {
	page    *replayPage // Nil if there is none.
	number  uint64      // Of the page.
	t       int64
	mmapped uint64 // In m-mapped chunks: to be dropped.
	newer   uint64 // For the applier. The others are odd.
}

func (k *replayKnown) look(refs *replayRefs, ref uint64, t int64, record uint64) {
	*k = replayKnown{page: refs.page(chunks.HeadSeriesRef(ref)), number: ref >> replayPageBits, t: t}
	if k.page == nil {
		return
	}
	plain := k.page.plain.Load()
	if k.page.newest.Load() > record {
		return
	}
	k.mmapped = k.page.mmappedAt(t) & plain
	k.newer = plain &^ k.mmapped
}

// neighbours returns how many samples from the start of p on, the first of which
// has a head of so many bytes, are of one time and of references in a row. It may
// return too few.
func neighbours(p []byte, head int) int {
	stride := head + 8
	if len(p) < 2*stride || p[0]&1 != 0 { // An odd integer is a negative one.
		return 1
	}
	const step = 2                  // Between the encoded integers of neighbours.
	mask := uint32(1)<<(8*head) - 1 // All bits of a head of 4 bytes.
	want := binary.LittleEndian.Uint32(p) & mask
	most := min(1+int(0x7e-want&0x7e)/step, len(p)/stride) // Up to the carry into the next byte.
	n := 1
	for p = p[stride:]; n < most; n++ {
		want += step
		if binary.LittleEndian.Uint32(p)&mask != want {
			break
		}
		p = p[stride:]
	}
	return n
}

// shortDeltas returns the two encoded integers at the start of p and how many
// bytes they take, or no bytes if they are not of the usual lengths: up to three
// bytes, and one.
func shortDeltas(p []byte) (ref, time uint64, n int) {
	if len(p) < 4 {
		return 0, 0, 0
	}
	x := binary.LittleEndian.Uint32(p)
	switch {
	case x&0x80 == 0:
		ref, x, n = uint64(x&0x7f), x>>8, 2
	case x&0x8000 == 0:
		ref, x, n = uint64(x&0x7f|x>>1&0x3f80), x>>16, 3
	case x&0x800000 == 0:
		ref, x, n = uint64(x&0x7f|x>>1&0x3f80|x>>2&0x1fc000), x>>24, 4
	default:
		return 0, 0, 0
	}
	if x&0x80 != 0 {
		return 0, 0, 0
	}
	return ref, uint64(x & 0x7f), n
}

// longDeltas does the same for integers of any length; no bytes mean that they
// are malformed.
func longDeltas(p []byte) (ref, time uint64, n int) {
	ref, n = varint.Uvarint(p)
	if n < 1 {
		return 0, 0, 0
	}
	time, m := varint.Uvarint(p[n:])
	if m < 1 {
		return 0, 0, 0
	}
	return ref, time, n + m
}

func (d *replayDecoder) samplesV2(rec []byte, number uint64) (err error) {
	if d.samples, err = d.dec.Samples(rec, d.samples[:0]); err != nil {
		return err
	}
	for _, s := range d.samples {
		kind := uint8(replayFloat)
		if s.ST != 0 {
			kind = replayFloatST
		}
		d.odd(s.Ref, s.T, number, kind, replayExtra{st: s.ST, v: s.V})
	}
	return nil
}

func (d *replayDecoder) histograms(rec []byte, number uint64) (err error) {
	if d.hists, err = d.dec.HistogramSamples(rec, d.hists[:0]); err != nil {
		return err
	}
	for _, s := range d.hists {
		d.odd(s.Ref, s.T, number, replayHistogram, replayExtra{st: s.ST, h: s.H})
	}
	return nil
}

func (d *replayDecoder) floatHistograms(rec []byte, number uint64) (err error) {
	if d.fhists, err = d.dec.FloatHistogramSamples(rec, d.fhists[:0]); err != nil {
		return err
	}
	for _, s := range d.fhists {
		d.odd(s.Ref, s.T, number, replayFloatHistogram, replayExtra{st: s.ST, fh: s.FH})
	}
	return nil
}

// odd routes a sample by all rules, for those that the hot path does not know.
func (d *replayDecoder) odd(ref chunks.HeadSeriesRef, t int64, number uint64, kind uint8, e replayExtra) {
	if t < d.r.minValidTime {
		return
	}
	series, ref, expiry := d.r.refs.resolve(ref, number)
	if expiry != nil {
		raiseExpiry(expiry, max(t, 0))
	}
	if series == nil {
		d.b.unit.unknown.add(ref, kind)
		return
	}
	p := d.r.refs.page(ref)
	at := int(ref & replayPageMask)
	if p.createdBy[at].Load() < replaySpecial && t <= p.mmMaxTime[at] {
		return
	}
	if kind == replayFloat {
		d.emit(replayRun{page: p, t: t, v: math.Float64bits(e.v), at: uint8(at), n: 1})
		return
	}
	d.emitExtra(p, at, t, kind, e)
}
