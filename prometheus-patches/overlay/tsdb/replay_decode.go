// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
	"slices"

	"github.com/dennwc/varint"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/util/compression"
)

var errReplaySamples = errors.New("record of samples cannot be decoded")

// replaySeries is a series record, made into a series that may turn out to be a
// duplicate. If the series leaves, it is not made, and hash is its reference.
type replaySeries struct {
	series *memSeries
	hash   uint64
}

// What a replaySample is.
const (
	replayFloat   = iota // The value of a float.
	replayFloatST        // One with a start time; all others have an extra.
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
	st     int64
	v      uint64 // The value of a float without values, or the position of the extra.
	values []byte // A value of 8 bytes each stride bytes.
	at, n  uint8  // Places in the page.
	kind   uint8
	stride uint8
}

// replayExtra is what a sample has besides a float.
type replayExtra struct {
	st     int64
	h      *histogram.Histogram
	fh     *histogram.FloatHistogram
	series *memSeries
	walRef chunks.HeadSeriesRef
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
		err = d.seriesRecord(b, rec)
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

func (d *replayDecoder) seriesRecord(b *replayBatch, rec []byte) error {
	return eachSeries(&d.dec, rec, func(ref chunks.HeadSeriesRef, lset labels.Labels) {
		if d.r.refs.leaver(ref) != nil {
			b.series = appendDoubling(b.series, replaySeries{hash: uint64(ref)})
			return
		}
		b.series = appendDoubling(b.series, d.newSeries(ref, lset))
	})
}

// newSeries keeps nothing of lset.
func (d *replayDecoder) newSeries(ref chunks.HeadSeriesRef, lset labels.Labels) replaySeries {
	shardHash := uint64(0)
	if d.r.h.opts.EnableSharding {
		shardHash = labels.StableHash(lset)
	}
	var ms *memSeries
	select {
	case ms = <-d.r.spare:
		ms.ref = ref
		ms.setShardHash(shardHash)
	default:
		ms = newMemSeries(labels.EmptyLabels(), ref, shardHash, d.r.h.opts.IsolationDisabled, false)
		ms.nextAt = 0 // As upstream's reset leaves it.
		ms.mmMaxTime = math.MinInt64
	}
	ms.lset = lset.PackCopy()
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
	s.runs = appendDoubling(s.runs, run)
}

// appendDoubling is append, which leaves less garbage when long slices grow.
func appendDoubling[T any](s []T, v T) []T {
	if len(s) == cap(s) {
		s = slices.Grow(s, max(16, len(s)))
	}
	return append(s, v)
}

func (d *replayDecoder) emitExtra(p *replayPage, at int, t int64, kind uint8, e replayExtra) {
	s := &d.b.shards[p.shard]
	s.runs = appendDoubling(s.runs, replayRun{page: p, t: t, v: uint64(len(s.extras)), at: uint8(at), n: 1, kind: kind})
	s.extras = appendDoubling(s.extras, e)
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
					if page, at, ok := d.place(chunks.HeadSeriesRef(ref&^replayPageMask|uint64(at)), t, number, replayFloat); ok {
						d.emit(replayRun{page: page, t: t, v: binary.BigEndian.Uint64(p[head:]), at: uint8(at), n: 1})
					}
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
	plain := k.page.plain()
	if k.page.newest.Load() > record {
		return
	}
	k.mmapped = k.page.mmapped.holding(t) & plain
	k.newer = plain &^ k.mmapped
}

// neighbours returns how many samples from the start of p on, the first of which
// has a head of so many bytes, are of one time and of references in a row. It may
// return too few.
func neighbours(p []byte, head int) int {
	stride := head + 8
	if len(p) < 2*stride {
		return 1
	}
	// The encoded integers of neighbours are two apart; negative ones are odd, and
	// fall. Up to the carry into the next byte.
	want, step := binary.LittleEndian.Uint32(p), uint32(2)
	most := 1 + int(0x7e-want&0x7e)/2
	if want&1 != 0 {
		step, most = -step, 1+int(want&0x7e)/2
	}
	mask := uint32(1)<<(8*head) - 1 // All bits of a head of 4 bytes.
	want &= mask
	most = min(most, len(p)/stride)
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
	known := replayKnown{t: math.MinInt64}
	for i := range d.samples {
		s := &d.samples[i]
		if s.T < d.r.minValidTime {
			continue
		}
		if known.t != s.T || known.number != uint64(s.Ref)>>replayPageBits {
			known.look(d.r.refs, uint64(s.Ref), s.T, number)
		}
		page, at := known.page, int(s.Ref&replayPageMask)
		if known.mmapped>>at&1 != 0 {
			continue
		}
		run := replayRun{t: s.T, v: math.Float64bits(s.V), n: 1}
		if s.ST != 0 {
			run.kind, run.st = replayFloatST, s.ST
		}
		if known.newer>>at&1 == 0 {
			var ok bool
			if page, at, ok = d.place(s.Ref, s.T, number, run.kind); !ok {
				continue
			}
		}
		run.page, run.at = page, uint8(at)
		d.emit(run)
	}
	return nil
}

func (d *replayDecoder) histograms(rec []byte, number uint64) (err error) {
	if d.hists, err = d.dec.HistogramSamples(rec, d.hists[:0]); err != nil {
		return err
	}
	for _, s := range d.hists {
		if p, at, ok := d.place(s.Ref, s.T, number, replayHistogram); ok {
			d.emitExtra(p, at, s.T, replayHistogram, replayExtra{st: s.ST, h: s.H})
		}
	}
	return nil
}

func (d *replayDecoder) floatHistograms(rec []byte, number uint64) (err error) {
	if d.fhists, err = d.dec.FloatHistogramSamples(rec, d.fhists[:0]); err != nil {
		return err
	}
	for _, s := range d.fhists {
		if p, at, ok := d.place(s.Ref, s.T, number, replayFloatHistogram); ok {
			d.emitExtra(p, at, s.T, replayFloatHistogram, replayExtra{st: s.ST, fh: s.FH})
		}
	}
	return nil
}

// place finds by all rules where a sample belongs, for those that the hot path
// does not know; nowhere if it is to be dropped.
func (d *replayDecoder) place(ref chunks.HeadSeriesRef, t int64, number uint64, kind uint8) (p *replayPage, at int, ok bool) {
	if t < d.r.minValidTime {
		return nil, 0, false
	}
	if l := d.r.refs.leaver(ref); l.lives(number) {
		if !d.r.refs.page(ref).mmapped.hold(int(ref&replayPageMask), t) {
			l.has(t)
		}
		return nil, 0, false
	}
	series, to, duplicate := d.r.refs.resolve(ref, number)
	if duplicate {
		d.r.refs.raiseExpiry(ref, t)
	}
	if series == nil {
		d.b.unit.unknown.add(to, kind)
		return nil, 0, false
	}
	p, at = d.r.refs.page(to), int(to&replayPageMask)
	return p, at, p.special.Load()>>at&1 != 0 || !p.mmapped.hold(at, t)
}
