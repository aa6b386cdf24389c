// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"math"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
)

func TestAHeadChunkOfFloatsIsOneObject(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(xorHeadChunk{}), uintptr(112), "the next size of an allocation is 128")
	allocs := testing.AllocsPerRun(100, func() { newHeadChunk(1, chunkenc.EncXOR) })
	require.LessOrEqual(t, allocs, 2., "it and its bytes")
}

func TestHeadChunksAreOfTheEncodingAskedFor(t *testing.T) {
	for e := range chunkenc.Encoding(math.MaxUint8) {
		want := e
		if !chunkenc.IsValidEncoding(e) {
			want = chunkenc.EncXOR
		}
		c := newHeadChunk(7, e)
		require.Equal(t, want, c.chunk.Encoding())
		require.Equal(t, int64(7), c.minTime)
		require.Equal(t, int64(math.MinInt64), c.maxTime)
	}
}

func TestASeriesHasTheAppenderOfItsHeadChunk(t *testing.T) {
	s := newMemSeries(labels.EmptyLabels(), 1, 0, true, false)
	require.Nil(t, s.appender())
	o := chunkOpts{chunkRange: 1000, samplesPerChunk: 100}
	t0 := int64(0)
	float := func() { s.append(0, t0, float64(t0), 0, o) }
	hist := func() { s.appendHistogram(0, t0, tsdbutil.GenerateTestHistogram(t0), 0, o) }
	floatHist := func() { s.appendFloatHistogram(0, t0, tsdbutil.GenerateTestFloatHistogram(t0), 0, o) }
	for _, one := range []func(){float, hist, floatHist, float, floatHist, hist, float} {
		for range 3 {
			one()
			t0++
			chunk, app := s.headChunks.chunk, s.appender()
			before := chunk.NumSamples()
			one()
			t0++
			require.Equal(t, before+1, chunk.NumSamples())
			require.Same(t, app, s.appender())
		}
		require.Equal(t, s.headChunks.chunk.Encoding() == chunkenc.EncXOR, s.app == nil, "a chunk of floats has its own")
	}
	require.Equal(t, 7, s.headChunks.len())
	s.setHeadChunks(nil, 0)
	s.setAppender(nil)
	require.Nil(t, s.appender())
}

func TestRareFieldsGoWithTheAppenderOfALoadedChunk(t *testing.T) {
	s := newMemSeries(labels.EmptyLabels(), 1, 0, true, false)
	loaded := chunkenc.NewXORChunk()
	s.setHeadChunks(&memChunk{chunk: loaded, minTime: 1, maxTime: 1}, 1)
	app, err := loaded.Appender()
	require.NoError(t, err)
	s.setAppender(app)
	require.Same(t, app, s.appender())
	s.cutNewHeadChunk(2, chunkenc.EncXOR, 1000)
	require.NotSame(t, app, s.appender())
	require.Same(t, &noRareFields, s.rareFields)
}
