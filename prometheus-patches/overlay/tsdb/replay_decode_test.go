// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"github.com/prometheus/common/promslog"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/encoding"
	"github.com/prometheus/prometheus/tsdb/record"
)

// FuzzReplayLabels holds that labels that are copied from a record are those that
// its decoder makes of it.
func FuzzReplayLabels(f *testing.F) {
	for _, n := range []int{0, 1, 127, 128, 254, 255, 1000} {
		b := labels.NewScratchBuilder(0)
		b.Add("__name__", "up")
		b.Add("x", strings.Repeat("y", n))
		rec := (&record.Encoder{}).Series([]record.RefSeries{{Ref: 1, Labels: b.Labels()}}, nil)
		f.Add(rec[9:])
		f.Add(rec[9 : len(rec)-1])
	}
	f.Add([]byte{})
	f.Add([]byte{0})
	f.Fuzz(func(t *testing.T, p []byte) {
		lset, n := verbatimLabels(p)
		if n == 0 {
			return
		}
		dec := record.NewDecoder(labels.NewSymbolTable(), promslog.NewNopLogger())
		buf := encoding.Decbuf{B: p}
		want := dec.DecodeLabels(&buf)
		require.NoError(t, buf.Err())
		require.Equal(t, len(p)-buf.Len(), n)
		require.True(t, labels.Equal(want, lset), "want %s, got %s", want, lset)
		require.Equal(t, want.Hash(), lset.Hash())
	})
}

// FuzzReplaySamples holds that a record of samples is routed as its decoder and
// the rules for a sample on its own say.
func FuzzReplaySamples(f *testing.F) {
	var samples []record.RefSample
	for i := range 300 {
		samples = append(samples, record.RefSample{Ref: chunks.HeadSeriesRef(40 + i), T: 1000, V: float64(i)})
	}
	f.Add((&record.Encoder{}).Samples(samples, nil)[1:], int64(1000), uint64(0x5555))
	samples[7].T++
	samples[70].Ref = 3
	samples[71].Ref = 1 << 30
	f.Add((&record.Encoder{}).Samples(samples, nil)[1:], int64(999), uint64(math.MaxUint64))
	f.Add([]byte{1, 2, 3}, int64(0), uint64(0))
	f.Fuzz(func(t *testing.T, p []byte, mmMaxTime int64, known uint64) {
		rec := append([]byte{byte(record.Samples)}, p...)
		r := &walReplay{refs: newReplayRefs(1), minValidTime: -1000}
		// Of every page of the first few, each series that a bit stands for is known,
		// and every other of those has m-mapped chunks.
		for ref := range chunks.HeadSeriesRef(8 * replayPageRefs) {
			i := int(ref & replayPageMask)
			if known>>i&1 == 0 {
				continue
			}
			page := r.refs.addPage(ref)
			r.refs.add(page, i, replaySlot{series: &memSeries{ref: ref}, from: 1})
			if page.mmapped == nil {
				page.mmapped = &replayPageChunks{counts: &[replayPageRefs]uint32{}}
			}
			page.mmapped.counts[i] = uint32(1 - i%2)
		}
		for _, page := range r.refs.pages {
			c := page.mmapped
			c.allocate()
			for n := range c.maxTimes {
				c.maxTimes[n] = mmMaxTime
			}
			c.oldest, c.newest = mmMaxTime, mmMaxTime
		}
		d := &replayDecoder{r: r, dec: record.NewDecoder(labels.NewSymbolTable(), promslog.NewNopLogger())}
		route := func(decode func() error) (out []record.RefSample, err error) {
			d.b = &replayBatch{unit: &replayUnit{}, shards: make([]replayShard, 1)}
			err = decode()
			for _, run := range d.b.shards[0].runs {
				for i := range int(run.n) {
					s := record.RefSample{Ref: run.page.ref(int(run.at) + i), T: run.t, V: math.Float64frombits(run.v)}
					if run.values != nil {
						s.V = math.Float64frombits(binary.BigEndian.Uint64(run.values[i*int(run.stride):]))
					}
					out = append(out, s)
				}
			}
			return out, err
		}
		again, againErr := route(func() error { return d.samplesV2(rec, 2) })
		got, gotErr := route(func() error { return d.samplesV1(rec, 2) })
		want, wantErr := route(func() error {
			samples, err := d.dec.Samples(rec, nil)
			for _, s := range samples {
				if page, at, ok := d.place(s.Ref, s.T, 2, replayFloat); ok {
					d.emit(replayRun{page: page, t: s.T, v: math.Float64bits(s.V), at: uint8(at), n: 1})
				}
			}
			return err
		})
		require.Equal(t, wantErr != nil, gotErr != nil)
		require.Equal(t, wantErr != nil, againErr != nil)
		if wantErr != nil {
			return
		}
		for _, got := range [][]record.RefSample{got, again} {
			require.Len(t, got, len(want))
			for i, s := range got {
				require.Equal(t, math.Float64bits(want[i].V), math.Float64bits(s.V))
				s.V = want[i].V
				require.True(t, s == want[i] || math.IsNaN(s.V) && s.Ref == want[i].Ref && s.T == want[i].T)
			}
		}
	})
}
