// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package slots counts what should happen at a fixed interval and did not.
package slots

import (
	"math"
	"slices"
	"time"
)

// early is how much of the interval a timer may fire before its time and still
// count for it.
const early = 0.1

// Count is how often something was due, and how often it did not happen.
type Count struct {
	Expected, Missed int
}

// Add adds another count.
func (c *Count) Add(o Count) { c.Expected += o.Expected; c.Missed += o.Missed }

// Check compares the times at which something happened with those at which it
// was due: at first, which must be its first occurrence, and every interval from
// there. What was due counts if that was at start or later, and if a whole
// interval was left for it until end. It is missed if nothing happened before
// it was due again.
func Check(first time.Time, interval time.Duration, times []time.Time, start, end time.Time) Count {
	at := func(t time.Time) int {
		return int(math.Floor(float64(t.Sub(first))/float64(interval) + early))
	}
	from := int(math.Ceil(float64(start.Sub(first)) / float64(interval)))
	until := int(math.Floor(float64(end.Sub(first))/float64(interval))) - 1
	if until < from {
		return Count{}
	}
	happened := make([]int, 0, len(times))
	for _, t := range times {
		if slot := at(t); slot >= from && slot <= until {
			happened = append(happened, slot)
		}
	}
	slices.Sort(happened)
	expected := until - from + 1
	return Count{Expected: expected, Missed: expected - len(slices.Compact(happened))}
}
