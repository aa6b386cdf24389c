// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package compression

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBufferOfALargeRecordIsNotKept(t *testing.T) {
	large := make([]byte, 2*maxKept)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range large {
		large[i] = byte(rng.Uint32())
	}
	for _, typ := range []Type{Snappy, Zstd} {
		t.Run(typ, func(t *testing.T) {
			enc, dec := NewSyncEncodeBuffer(), NewSyncDecodeBuffer()
			for _, record := range [][]byte{large[:1000], large, large[:1000]} {
				compressed, err := Encode(typ, record, enc)
				require.NoError(t, err)
				again, err := Decode(typ, compressed, dec)
				require.NoError(t, err)
				require.Equal(t, record, again)
				require.LessOrEqual(t, cap(enc.get()), maxKept)
				require.LessOrEqual(t, cap(dec.get()), maxKept)
			}
			require.NotZero(t, cap(enc.get()), "that of a small one is")
			require.NotZero(t, cap(dec.get()))
		})
	}
}

// BenchmarkEncodeRecords compresses records of one size, which fit into a buffer that is
// kept, or do not.
func BenchmarkEncodeRecords(b *testing.B) {
	for name, size := range map[string]int{"512KiB": 1 << 19, "4MiB": 1 << 22} {
		b.Run(name, func(b *testing.B) {
			record := make([]byte, size)
			for i := range record {
				record[i] = byte(i * i >> 12)
			}
			buf := NewSyncEncodeBuffer()
			b.SetBytes(int64(size))
			for b.Loop() {
				_, _ = Encode(Snappy, record, buf)
			}
		})
	}
}
