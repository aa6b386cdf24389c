// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package chunkenc

import (
	"math"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestXORRunWritesTheBytesThatTheAppenderWrites(t *testing.T) {
	for seed := range int64(300) {
		rnd := rand.New(rand.NewSource(seed))
		want := NewXORChunk()
		wantApp, err := want.Appender()
		require.NoError(t, err)
		got := new(OpenXORChunk)
		got.Open()
		gotApp := got.OpenAppender()
		ts, v := int64(rnd.Uint32()), 0.0
		next := func() (int64, float64) {
			ts += [...]int64{15_000, 15_000, 15_000, 15_001, 14_000, 90_000, 600_000, 1 << 40}[rnd.Intn(1+rnd.Intn(8))]
			switch rnd.Intn(6) {
			case 0:
				v++
			case 1:
				v = rnd.NormFloat64()
			case 2:
				v = math.Float64frombits(rnd.Uint64())
			case 3:
				v = -v
			}
			return ts, v
		}
		for range 40 {
			// A few by the appender, so that a run starts anywhere in a byte.
			for range rnd.Intn(4) {
				ts, v := next()
				wantApp.Append(0, ts, v)
				gotApp.Append(0, ts, v)
			}
			var run XORRun
			require.True(t, run.Begin(gotApp))
			for range rnd.Intn(20) {
				ts, v := next()
				wantApp.Append(0, ts, v)
				run.Append(ts, math.Float64bits(v))
				require.Equal(t, want.NumSamples(), run.NumSamples())
				require.Equal(t, len(want.Bytes()), run.NumBytes())
			}
			run.End()
			require.Equal(t, want.Bytes(), got.Bytes(), "seed %d", seed)
			wantState, gotState := *wantApp.(*xorAppender), *gotApp.(*xorAppender)
			require.Equal(t, math.Float64bits(wantState.v), math.Float64bits(gotState.v))
			wantState.b, wantState.v, gotState.b, gotState.v = nil, 0, nil, 0
			require.Equal(t, wantState, gotState)
		}
	}
}

func TestXORRunLeavesOtherAppendersAlone(t *testing.T) {
	app, err := NewXOR2Chunk().Appender()
	require.NoError(t, err)
	require.False(t, new(XORRun).Begin(app))
}
