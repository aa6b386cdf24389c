// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package floor

import (
	"context"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/tsdb/wlog"
	"github.com/prometheus/prometheus/util/compression"
	"github.com/stretchr/testify/require"
)

// segment writes random records, some of them longer than a page, and returns
// the segment.
func segment(tb testing.TB, seed uint64, c compression.Type) string {
	tb.Helper()
	dir := tb.TempDir()
	w, err := wlog.NewSize(nil, nil, dir, 1<<20, c)
	require.NoError(tb, err)
	random := rand.New(rand.NewPCG(seed, 1))
	for range 40 {
		rec := make([]byte, 1+random.IntN(64<<10))
		rec[0] = byte(random.IntN(256)) // Half of it random, to be compressible.
		for i := len(rec) / 2; i < len(rec); i++ {
			rec[i] = byte(random.Uint32())
		}
		require.NoError(tb, w.Log(rec))
		if random.IntN(5) == 0 {
			require.NoError(tb, w.Log(rec[:1+len(rec)/1000]))
		}
	}
	require.NoError(tb, w.Close())
	first, last, err := wlog.Segments(dir)
	require.NoError(tb, err)
	require.Equal(tb, first, min(first, last))
	return wlog.SegmentName(dir, first)
}

func TestStagesCountWhatTheyGetTo(t *testing.T) {
	dir := t.TempDir()
	w, err := wlog.New(nil, nil, dir, compression.Snappy)
	require.NoError(t, err)
	var enc record.Encoder
	samples := make([]record.RefSample, 1000)
	for range 50 {
		require.NoError(t, w.Log(enc.Samples(samples, nil)))
	}
	require.NoError(t, w.Log([]byte{200})) // A type of the future.
	require.NoError(t, w.Close())
	path := wlog.SegmentName(dir, 0)
	info, err := os.Stat(path)
	require.NoError(t, err)
	for _, s := range Stages() {
		r, err := Measure(t.Context(), []string{path, path}, s, nil)
		require.NoError(t, err)
		require.Equal(t, 2*info.Size(), r.Bytes)
		require.Equal(t, map[Stage]int{Decode: 102}[s], r.Records)
		require.Equal(t, map[Stage]int{Decode: 100_000}[s], r.Samples)
	}
}

func TestCorruptSegmentIsNamed(t *testing.T) {
	path := segment(t, 1, compression.None)
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	b[100] ^= 1
	require.NoError(t, os.WriteFile(path, b, 0o666))
	_, err = Measure(t.Context(), []string{path}, Decode, nil)
	require.ErrorContains(t, err, path+": ")
}

func TestInterruptEndsTheMeasurement(t *testing.T) {
	path := segment(t, 1, compression.None)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, s := range Stages() {
		_, err := Measure(ctx, []string{path}, s, nil)
		require.ErrorIs(t, err, context.Canceled)
	}
}
