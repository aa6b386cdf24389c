// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/gogo/protobuf/proto"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/stretchr/testify/require"
)

// floats makes a chunk of samples at the times given, with values twice them.
func floats(t testing.TB, times ...int64) prompb.Chunk {
	t.Helper()
	return chunk(t, times, func(ts int64) float64 { return float64(2 * ts) })
}

func chunk(t testing.TB, times []int64, v func(int64) float64) prompb.Chunk {
	t.Helper()
	c := chunkenc.NewXORChunk()
	app, err := c.Appender()
	require.NoError(t, err)
	for _, ts := range times {
		app.Append(0, ts, v(ts))
	}
	return prompb.Chunk{MinTimeMs: times[0], MaxTimeMs: times[len(times)-1], Type: prompb.Chunk_XOR, Data: bytes.Clone(c.Bytes())}
}

func histograms(t testing.TB, times []int64, count uint64) prompb.Chunk {
	t.Helper()
	c := chunkenc.NewHistogramChunk()
	app, err := c.Appender()
	require.NoError(t, err)
	for _, ts := range times {
		_, _, app, err = app.AppendHistogram(nil, 0, ts, &histogram.Histogram{Count: count, Sum: 1, PositiveSpans: []histogram.Span{{Length: 1}}, PositiveBuckets: []int64{int64(count)}}, false)
		require.NoError(t, err)
	}
	return prompb.Chunk{MinTimeMs: times[0], MaxTimeMs: times[len(times)-1], Type: prompb.Chunk_HISTOGRAM, Data: bytes.Clone(c.Bytes())}
}

// list is a source of series that are given.
type list []*series

func (l *list) next() (*series, error) {
	if len(*l) == 0 {
		return nil, io.EOF
	}
	s := (*l)[0]
	*l = (*l)[1:]
	return s, nil
}

func one(name string, chunks ...prompb.Chunk) *series {
	return &series{labels.FromStrings(labels.MetricName, name), chunks}
}

func compare(t *testing.T, a, b []*series) (*comparison, error) {
	t.Helper()
	c := &comparison{names: [2]string{"left", "right"}, ctx: t.Context(), fingerprint: newFingerprint()}
	x, y := list(a), list(b)
	return c, c.streams(&x, &y)
}

func TestSameSamplesInOtherChunksAreTheSame(t *testing.T) {
	a := []*series{one("a", floats(t, 1, 2, 3, 4)), one("h", histograms(t, []int64{1, 2}, 3))}
	for _, b := range [][]*series{
		{one("a", floats(t, 1, 2), floats(t, 3, 4)), one("h", histograms(t, []int64{1}, 3), histograms(t, []int64{2}, 3))},
		{one("a", floats(t, 1, 3), floats(t, 2, 4)), one("h", histograms(t, []int64{1, 2}, 3))},
		{one("a", floats(t, 1, 2, 3), floats(t, 3, 4)), one("h", histograms(t, []int64{1, 2}, 3))},
	} {
		c, err := compare(t, a, b)
		require.NoError(t, err)
		again, err := compare(t, b, a)
		require.NoError(t, err)
		require.Equal(t, c.fingerprint.String(), again.fingerprint.String())
		require.Equal(t, []int{2, 4, 2}, []int{c.series, c.floats, c.histograms})
	}
}

func TestFirstDifferenceIsToldBySeriesAndSample(t *testing.T) {
	stale := func(int64) float64 { return math.Float64frombits(value.StaleNaN) }
	nan := func(int64) float64 { return math.NaN() }
	base := []*series{one("a", floats(t, 1000, 2000)), one("b", floats(t, 1000))}
	for _, tc := range []struct {
		name  string
		other []*series
		want  string
	}{
		{"a value", []*series{one("a", floats(t, 1000), chunk(t, []int64{2000}, nan)), base[1]}, `series {__name__="a"}: sample 2: left has 4000 at 1970-01-01T00:00:02.000Z, right has NaN at 1970-01-01T00:00:02.000Z`},
		{"a time", []*series{one("a", floats(t, 1000, 2001)), base[1]}, `series {__name__="a"}: sample 2: left has 4000 at 1970-01-01T00:00:02.000Z, right has 4002 at 1970-01-01T00:00:02.001Z`},
		{"a sample less", []*series{one("a", floats(t, 1000)), base[1]}, `series {__name__="a"}: sample 2: left has 4000 at 1970-01-01T00:00:02.000Z, right has none`},
		{"a kind", []*series{base[0], one("b", histograms(t, []int64{1000}, 7))}, `series {__name__="b"}: sample 1: left has 2000 at 1970-01-01T00:00:01.000Z, right has the histogram {count:7, sum:1, `},
		{"a series less", base[:1], `series {__name__="b"} has samples in left and not in right`},
		{"the first series less", base[1:], `series {__name__="a"} has samples in left and not in right`},
		{"a series more", []*series{base[0], one("aa", floats(t, 1)), base[1]}, `series {__name__="aa"} has samples in right and not in left`},
		{"a series more at the end", []*series{base[0], base[1], one("c", floats(t, 1))}, `series {__name__="c"} has samples in right and not in left`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := compare(t, base, tc.other)
			require.ErrorContains(t, err, "the heads differ: "+tc.want)
			d := &Difference{}
			require.ErrorAs(t, err, &d)
		})
	}
	_, err := compare(t, []*series{one("a", chunk(t, []int64{1}, stale))}, []*series{one("a", chunk(t, []int64{1}, nan))})
	require.ErrorContains(t, err, "left has a stale marker at 1970-01-01T00:00:00.001Z, right has NaN")
	_, err = compare(t, []*series{one("a", histograms(t, []int64{1}, 7))}, []*series{one("a", histograms(t, []int64{1}, 8))})
	require.ErrorContains(t, err, "left has the histogram")
}

func TestFingerprintChangesWithEveryPart(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range [][]*series{
		{},
		{one("a", floats(t, 1))},
		{one("b", floats(t, 1))},
		{one("a", floats(t, 2))},
		{one("a", floats(t, 1, 2))},
		{one("a", chunk(t, []int64{1}, func(int64) float64 { return 7 }))},
		{one("a", histograms(t, []int64{1}, 7))},
		{one("a", histograms(t, []int64{1}, 8))},
	} {
		c, err := compare(t, s, s)
		require.NoError(t, err)
		require.False(t, seen[c.fingerprint.String()])
		seen[c.fingerprint.String()] = true
	}
}

func TestChunkThatCannotBeReadIsNoDifferenceButAnError(t *testing.T) {
	broken := one("a", prompb.Chunk{Type: 77, Data: []byte{1}})
	_, err := compare(t, []*series{broken}, []*series{one("a", floats(t, 1))})
	require.ErrorContains(t, err, `series {__name__="a"}: invalid chunk encoding`)
	d := &Difference{}
	require.False(t, errors.As(err, &d)) //nolint:testifylint // NotErrorAs takes no pointer to a pointer.
}

func TestInterruptEndsTheComparison(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := &comparison{ctx: ctx, fingerprint: newFingerprint()}
	require.ErrorIs(t, c.streams(&list{}, &list{}), context.Canceled)
}

// frame is data in a frame.
func frame(data []byte) []byte {
	b := binary.AppendUvarint(nil, uint64(len(data)))
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)))
	return append(b, data...)
}

func framesOf(t testing.TB, all ...*series) []byte {
	t.Helper()
	var b []byte
	for _, s := range all {
		data, err := proto.Marshal(&prompb.ChunkedReadResponse{ChunkedSeries: []*prompb.ChunkedSeries{{Labels: prompb.FromLabels(s.labels, nil), Chunks: s.chunks}}})
		require.NoError(t, err)
		b = append(b, frame(data)...)
	}
	return b
}

func streamOf(b []byte) *stream {
	return &stream{frames: remote.NewChunkedReader(bytes.NewReader(b), maxFrame, nil), body: io.NopCloser(nil), builder: labels.NewScratchBuilder(4)}
}

func TestSeriesInSeveralFramesIsOne(t *testing.T) {
	s := streamOf(framesOf(t, one("a", floats(t, 1, 2)), one("a", floats(t, 3)), one("b", floats(t, 1))))
	c := &comparison{ctx: t.Context(), fingerprint: newFingerprint()}
	require.NoError(t, c.streams(s, &list{one("a", floats(t, 1, 2, 3)), one("b", floats(t, 1))}))
	require.Equal(t, 2, c.series)
}

func TestAnswerThatIsCutOrCorruptIsAnError(t *testing.T) {
	whole := framesOf(t, one("a", floats(t, 1, 2)))
	for n := 1; n < len(whole); n++ {
		_, err := streamOf(whole[:n]).next()
		require.Error(t, err, n)
	}
	broken := bytes.Clone(whole)
	broken[len(broken)-1] ^= 1
	_, err := streamOf(broken).next()
	require.ErrorContains(t, err, "checksum mismatch")
	_, err = streamOf(binary.AppendUvarint(nil, maxFrame+1)).next()
	require.ErrorContains(t, err, "size exceeded the limit")
	_, err = streamOf(frame([]byte("nonsense"))).next()
	require.ErrorContains(t, err, "a frame of the remote read's answer")
	_, err = streamOf(frame(nil)).next()
	require.ErrorContains(t, err, "has 0 series, not 1")
}

// FuzzStream reads answers that no server gives.
func FuzzStream(f *testing.F) {
	f.Add(framesOf(f, one("a", floats(f, 1, 2)), one("a", floats(f, 3)), one("b", histograms(f, []int64{1, 2}, 3))))
	f.Add(framesOf(f, one("a", floats(f, 1, 5), floats(f, 2))))
	f.Add(frame(nil))
	f.Fuzz(func(_ *testing.T, b []byte) {
		s := streamOf(b)
		for {
			next, err := s.next()
			if err != nil {
				return
			}
			it, err := next.samples()
			if err != nil {
				continue
			}
			for n := 0; n < 1<<12 && it.Next() != chunkenc.ValNone; n++ {
			}
		}
	})
}

func TestAnswersOfTheAPIAreReadToTheirData(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{`{"status":"success","data":["a","b"]}`, ""},
		{`{"status":"success","warnings":["w",{"x":[1]}],"data":["a","b"],"infos":[]}`, ""},
		{`{"status":"success"}`, "the answer has no data"},
		{`[]`, "this is not an answer of the API"},
		{`{"status":"success","data":["a"`, "EOF"},
	} {
		var got []string
		err := envelope(json.NewDecoder(strings.NewReader(tc.text)), func(dec *json.Decoder) error { return dec.Decode(&got) })
		if tc.want != "" {
			require.ErrorContains(t, err, tc.want)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, []string{"a", "b"}, got)
	}
}

func TestSecondsKeepTheMilliseconds(t *testing.T) {
	require.Equal(t, "1767225600.123", seconds(1_767_225_600_123))
	require.Equal(t, "-0.001", seconds(-1))
}
