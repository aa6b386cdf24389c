// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"maps"
	"math"
	"slices"
)

// sketch remembers how values are distributed, each with an error of 1 %, in
// memory that does not grow with their number. The largest is exact.
type sketch struct {
	buckets map[int]int // the index is the logarithm, rounded up
	count   int
	max     float64 // of those that are finite
}

// infinite is the bucket of +Inf.
const infinite = math.MaxInt

var logBase = math.Log(1.01)

// add takes a value that is positive, or +Inf.
func (s *sketch) add(v float64) {
	bucket := infinite
	if !math.IsInf(v, 1) {
		bucket = int(math.Ceil(math.Log(v) / logBase))
		s.max = max(s.max, v)
	}
	s.buckets[bucket]++
	s.count++
}

// withInfinite returns a sketch with n times +Inf more.
func (s *sketch) withInfinite(n int) *sketch {
	more := sketch{maps.Clone(s.buckets), s.count + n, s.max}
	more.buckets[infinite] += n
	return &more
}

// high returns a value that at least the share q of all does not exceed.
func (s *sketch) high(q float64) float64 {
	left := int(math.Ceil(q * float64(s.count)))
	for _, i := range slices.Sorted(maps.Keys(s.buckets)) {
		if left -= s.buckets[i]; left <= 0 && i < infinite {
			return min(math.Pow(1.01, float64(i)), s.max)
		}
	}
	return math.Inf(1)
}
