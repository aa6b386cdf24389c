// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package walgen

import (
	"math"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/value"
)

// nativeHistogram is a series' native histogram when it has counted that much:
// a bell of 8 to 23 buckets in two spans, whose counts never fall while count
// does not.
func nativeHistogram(series uint64, count float64) *histogram.Histogram {
	h := mix(series)
	buckets := 8 + int(h%16)
	left := buckets/2 - 1
	out := &histogram.Histogram{
		Schema:        3,
		ZeroThreshold: 1e-128,
		PositiveSpans: []histogram.Span{
			{Offset: int32(h>>8%40) - 40, Length: uint32(left)},
			{Offset: 1 + int32(h>>16%3), Length: uint32(buckets - left)},
		},
		PositiveBuckets: make([]int64, buckets),
	}
	before := int64(0)
	for i := range buckets {
		x := (float64(i) + 0.5 - float64(buckets)/2) / (float64(buckets) / 4)
		n := int64(max(0, count) * math.Exp(-x*x/2) / float64(buckets))
		out.PositiveBuckets[i] = n - before
		before = n
		out.Count += uint64(n)
	}
	out.ZeroCount = uint64(max(0, count) / 64)
	out.Count += out.ZeroCount
	out.Sum = float64(out.Count) * (0.01 + unit(h))
	return out
}

// staleHistogram is the stale marker of a series of native histograms.
func staleHistogram() *histogram.Histogram {
	return &histogram.Histogram{Sum: math.Float64frombits(value.StaleNaN)}
}

// mix hashes numbers (splitmix64).
func mix(xs ...uint64) uint64 {
	h := uint64(0)
	for _, x := range xs {
		h += x + 0x9e3779b97f4a7c15
		h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
		h = (h ^ h>>27) * 0x94d049bb133111eb
		h ^= h >> 31
	}
	return h
}

// unit maps a hash to 0 <= x < 1.
func unit(h uint64) float64 { return float64(h>>11) / (1 << 53) }
