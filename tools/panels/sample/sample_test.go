// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
)

// digest is a hash over all samples in the order in which they come, and their number.
func digest(t *testing.T) (hash uint64, samples int) {
	t.Helper()
	sum := uint64(0)
	require.NoError(t, Write(Small, func(series labels.Labels, times []int64, values []float64) error {
		h := fnv.New64a()
		h.Write([]byte(series.String()))
		for i := range times {
			_ = binary.Write(h, binary.LittleEndian, times[i])
			_ = binary.Write(h, binary.LittleEndian, math.Float64bits(values[i]))
		}
		sum += h.Sum64() // Maps are written in any order.
		samples += len(times)
		return nil
	}))
	return sum, samples
}

func TestTheSameSizeGivesTheSameSamples(t *testing.T) {
	a, n := digest(t)
	b, m := digest(t)
	require.Equal(t, a, b)
	require.Equal(t, n, m)
	require.NotZero(t, n)
}

func TestSeriesAreDistinctInOrderAndEndWithTheTimeShown(t *testing.T) {
	seen := map[string]bool{}
	latest := int64(0)
	require.NoError(t, Write(Small, func(series labels.Labels, times []int64, values []float64) error {
		require.False(t, seen[series.String()], series)
		seen[series.String()] = true
		for i := range times {
			require.True(t, i == 0 || times[i] > times[i-1], series)
			require.False(t, math.IsInf(values[i], 0), series)
		}
		latest = max(latest, times[len(times)-1])
		return nil
	}))
	require.Equal(t, End.UnixMilli(), latest)
}
