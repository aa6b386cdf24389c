// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/dennwc/varint"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunks"
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

// replaySample is one sample, or an event in the life of a series, on its way to
// the applier that owns the series.
type replaySample struct {
	t    int64
	v    uint64 // The bits of the value, or the position of the extra.
	at   uint8  // Place of the series in its page.
	kind uint8
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

// replayShard is what a batch has for one applier: samples in the order of the
// log, in runs of samples whose series share a page.
type replayShard struct {
	runs    []replayRun
	samples []replaySample
	extras  []replayExtra
}

type replayRun struct {
	page *replayPage
	from int // In samples; the run ends where the next one starts.
}

// replayDecoder decodes batches; each belongs to one goroutine.
type replayDecoder struct {
	r    *walReplay
	dec  record.Decoder
	zstd compression.DecodeBuffer

	b     *replayBatch
	page  *replayPage // Of the run that is open.
	shard *replayShard

	samples []record.RefSample
	hists   []record.RefHistogramSample
	fhists  []record.RefFloatHistogramSample
	series  []record.RefSeries
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
		if d.series, err = d.dec.Series(rec, d.series[:0]); err != nil {
			return err
		}
		for i := range d.series {
			b.series = append(b.series, d.newSeries(d.series[i]))
			d.series[i].Labels = labels.EmptyLabels()
		}
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
	b.records = append(b.records, r)
	return err
}

func (d *replayDecoder) newSeries(s record.RefSeries) replaySeries {
	shardHash := uint64(0)
	if d.r.h.opts.EnableSharding {
		shardHash = labels.StableHash(s.Labels)
	}
	ms := newMemSeries(s.Labels, s.Ref, shardHash, d.r.h.opts.IsolationDisabled, false)
	ms.nextAt = 0 // As upstream's reset leaves it.
	ms.mmMaxTime = math.MinInt64
	return replaySeries{series: ms, hash: s.Labels.Hash()}
}

// route decodes the samples of a batch whose series records the sequencer has
// seen, drops those that are in m-mapped chunks, and hands the rest out to the
// appliers.
func (d *replayDecoder) route(b *replayBatch) error {
	d.b, d.page, d.shard = b, nil, nil
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

// to opens a run of the page's samples.
func (d *replayDecoder) to(p *replayPage) *replayShard {
	if d.page != p {
		d.page, d.shard = p, &d.b.shards[p.shard]
		d.shard.runs = append(d.shard.runs, replayRun{page: p, from: len(d.shard.samples)})
	}
	return d.shard
}

func (d *replayDecoder) emitExtra(p *replayPage, at int, t int64, kind uint8, e replayExtra) {
	s := d.to(p)
	s.samples = append(s.samples, replaySample{t: t, v: uint64(len(s.extras)), at: uint8(at), kind: kind})
	s.extras = append(s.extras, e)
}

func (d *replayDecoder) event(e replayBatchEvent) {
	p := d.r.refs.page(e.extra.series.ref)
	d.emitExtra(p, int(e.extra.series.ref&replayPageMask), 0, e.kind, e.extra)
}

// samplesV1 is the hot path: the record of one scrape. It accepts exactly what
// record.Decoder accepts.
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
		refs         = d.r.refs
		page         *replayPage
		pageNumber   = uint64(math.MaxUint64)
	)
	for len(p) > 0 {
		dref, dtime, n := shortDeltas(p)
		if n == 0 {
			if dref, dtime, n = longDeltas(p); n == 0 {
				return errReplaySamples
			}
		}
		p = p[n:]
		if len(p) < 8 {
			return errReplaySamples
		}
		t := baseTime + (int64(dtime>>1) ^ -int64(dtime&1))
		if t < minValidTime {
			p = p[8:]
			continue
		}
		ref := uint64(baseRef + (int64(dref>>1) ^ -int64(dref&1)))
		if ref>>replayPageBits != pageNumber {
			pageNumber = ref >> replayPageBits
			page = refs.page(chunks.HeadSeriesRef(ref))
		}
		if page != nil {
			at := ref & replayPageMask
			if page.createdBy[at].Load()-1 < number {
				if t > page.mmMaxTime[at] {
					s := d.to(page)
					s.samples = append(s.samples, replaySample{t: t, v: binary.BigEndian.Uint64(p), at: uint8(at)})
				}
				p = p[8:]
				continue
			}
		}
		d.odd(chunks.HeadSeriesRef(ref), t, number, replayFloat, replayExtra{v: math.Float64frombits(binary.BigEndian.Uint64(p))})
		p = p[8:]
	}
	return nil
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
	for i, s := range d.hists {
		d.odd(s.Ref, s.T, number, replayHistogram, replayExtra{st: s.ST, h: s.H})
		d.hists[i].H = nil
	}
	return nil
}

func (d *replayDecoder) floatHistograms(rec []byte, number uint64) (err error) {
	if d.fhists, err = d.dec.FloatHistogramSamples(rec, d.fhists[:0]); err != nil {
		return err
	}
	for i, s := range d.fhists {
		d.odd(s.Ref, s.T, number, replayFloatHistogram, replayExtra{st: s.ST, fh: s.FH})
		d.fhists[i].FH = nil
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
		s := d.to(p)
		s.samples = append(s.samples, replaySample{t: t, v: math.Float64bits(e.v), at: uint8(at)})
		return
	}
	d.emitExtra(p, at, t, kind, e)
}
