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
	buckets  map[int]int // the index is the logarithm, rounded up
	count    int
	infinite int
	max      float64 // of those that are finite
}

var logBase = math.Log(1.01)

// add takes a value that is positive, or +Inf.
func (s *sketch) add(v float64) {
	s.count++
	if math.IsInf(v, 1) {
		s.infinite++
		return
	}
	if s.buckets == nil {
		s.buckets = map[int]int{}
	}
	s.max = max(s.max, v)
	s.buckets[int(math.Ceil(math.Log(v)/logBase))]++
}

// withInfinite returns a sketch with n times +Inf more. It shares the buckets.
func (s *sketch) withInfinite(n int) *sketch {
	more := *s
	more.count += n
	more.infinite += n
	return &more
}

// most returns the largest value.
func (s *sketch) most() float64 {
	if s.infinite > 0 {
		return math.Inf(1)
	}
	return s.max
}

// high returns a value that at least the share q of all does not exceed.
func (s *sketch) high(q float64) float64 {
	left := int(math.Ceil(q * float64(s.count)))
	for _, i := range slices.Sorted(maps.Keys(s.buckets)) {
		if left -= s.buckets[i]; left <= 0 {
			return min(math.Pow(1.01, float64(i)), s.max)
		}
	}
	return math.Inf(1)
}
