// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package floor

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
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
	w, err := wlog.NewSize(nil, nil, dir, 32*pageSize, c)
	require.NoError(tb, err)
	random := rand.New(rand.NewPCG(seed, 1))
	for range 40 {
		rec := make([]byte, random.IntN(2*pageSize))
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

// upstream reads the records of a segment as a replay does.
func upstream(tb testing.TB, path string) (records [][]byte, err error) {
	tb.Helper()
	s, err := wlog.OpenReadSegment(path)
	require.NoError(tb, err)
	in := wlog.NewSegmentBufReader(s)
	defer in.Close()
	r := wlog.NewReader(in)
	for r.Next() {
		records = append(records, bytes.Clone(r.Record()))
	}
	return records, r.Err()
}

// framed reads them with the framer.
func framed(b io.Reader) (records [][]byte, err error) {
	f := newFramer()
	f.reset(b)
	buf := compression.NewSyncDecodeBuffer()
	for f.next() {
		rec, err := compression.Decode(f.compression, f.data, buf)
		if err != nil {
			return records, err
		}
		records = append(records, bytes.Clone(rec))
	}
	return records, f.err
}

// requireAgreement compares the framer with upstream's reader.
func requireAgreement(tb testing.TB, path string, b []byte) {
	tb.Helper()
	require.NoError(tb, os.WriteFile(path, b, 0o666))
	want, wantErr := upstream(tb, path)
	got, gotErr := framed(bytes.NewReader(b))
	require.Len(tb, got, len(want), "%v; %v", wantErr, gotErr)
	for i := range want {
		require.True(tb, bytes.Equal(want[i], got[i]), i)
	}
	require.Equal(tb, wantErr == nil, gotErr == nil, "%v; %v", wantErr, gotErr)
}

func TestFramerReadsWhatUpstreamsReaderReads(t *testing.T) {
	for _, c := range compression.Types() {
		path := segment(t, 7, c)
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Greater(t, len(b), 3*pageSize)
		records, err := upstream(t, path)
		require.NoError(t, err)
		require.Greater(t, len(records), 5)
		requireAgreement(t, path, b)
		random := rand.New(rand.NewPCG(1, 2))
		for range 25 { // Torn, and with a flipped bit.
			requireAgreement(t, path, b[:random.IntN(len(b))])
			broken := slices.Clone(b)
			broken[random.IntN(len(b))] ^= 1 << random.IntN(8)
			requireAgreement(t, path, broken)
		}
	}
}

// FuzzFramer gives segments to the framer and to upstream's reader.
func FuzzFramer(f *testing.F) {
	for _, c := range compression.Types() {
		b, err := os.ReadFile(segment(f, 3, c))
		require.NoError(f, err)
		f.Add(b[:min(len(b), 3*pageSize)])
		f.Add(b[:pageSize+100])
	}
	f.Add([]byte{})
	f.Add([]byte{full})
	f.Add([]byte{first, 0, 0, 0, 0, 0, 0})
	f.Add(append(make([]byte, pageSize-1), first))
	f.Fuzz(func(t *testing.T, b []byte) {
		requireAgreement(t, filepath.Join(t.TempDir(), "00000000"), b)
	})
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
		require.Equal(t, map[Stage]int{Frame: 102, Decompress: 102, Decode: 102}[s], r.Records)
		require.Equal(t, map[Stage]int{Decode: 100_000}[s], r.Samples)
		require.Equal(t, s >= Decompress, r.Decompressed > 0)
	}
}

func TestCorruptSegmentIsNamed(t *testing.T) {
	path := segment(t, 1, compression.None)
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	b[100] ^= 1
	require.NoError(t, os.WriteFile(path, b, 0o666))
	_, err = Measure(t.Context(), []string{path}, Frame, nil)
	require.ErrorContains(t, err, path+": offset 0: unexpected checksum")
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
