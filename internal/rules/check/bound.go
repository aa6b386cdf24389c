// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"math"
	"slices"
)

// Bound says how far a quantile of a thinned histogram may be from that of the
// full one. The counts at the bounds that stay are exact, so both lie in the same
// merged bucket.
type Bound struct {
	// Relative is the largest upper/lower-1 of a merged bucket whose lower bound
	// is above 0: 1.5 means that a value is at most 150 % off.
	Relative float64 `json:"relative"`
	// Low is the upper bound of the merged bucket that begins at 0, where no
	// relative bound holds: values below it are at most Low off. It is 0 if the
	// lowest bucket stays. It is in the unit of the result.
	Low float64 `json:"low,omitempty"`
}

// text says how far values move, with the bucket in which they move most.
func (b Bound) text(most interval) string {
	factor := fmt.Sprintf("at most x%.3g (bucket %.6g to %.6g)", 1+b.Relative, most.low, most.high)
	low := fmt.Sprintf("at most %.3g below %.3g", b.Low, b.Low)
	switch {
	case b.Low == 0:
		return factor
	case b.Relative == 0:
		return low + ", and not at all above"
	}
	return low + ", and by " + factor + " above"
}

// Holds reports whether the two values are as far apart as the bound allows.
func (b Bound) Holds(full, thinned float64) bool {
	if full == thinned || math.IsNaN(full) && math.IsNaN(thinned) {
		return true
	}
	if math.IsNaN(full) || math.IsNaN(thinned) || math.IsInf(full, 0) || math.IsInf(thinned, 0) {
		return false
	}
	// What rounding may add.
	const slack = 1 + 1e-9
	low, high := math.Abs(full), math.Abs(thinned)
	if low > high {
		low, high = high, low
	}
	if full*thinned >= 0 && high <= low*(1+b.Relative)*slack {
		return true
	}
	return high <= b.Low*slack
}

func (b Bound) union(o Bound) Bound {
	return Bound{Relative: max(b.Relative, o.Relative), Low: max(b.Low, o.Low)}
}

// And returns the bound for what is off by one and then by the other: two rules may
// move one result.
func (b Bound) And(o Bound) Bound {
	return Bound{Relative: (1+b.Relative)*(1+o.Relative) - 1, Low: max(b.Low*(1+o.Relative), o.Low*(1+b.Relative))}
}

// interval is a merged bucket, low excluded and high included.
type interval struct{ low, high float64 }

// merge returns the buckets that are merged if the bounds for which dropped is
// true go. ok is false if the largest of the bounds, which ascend, goes.
func merge(bounds []float64, dropped func(float64) bool) (merged []interval, ok bool) {
	// Where the bounds begin above 0, a quantile in the lowest bucket lies
	// between 0 and its bound.
	low, open := 0.0, false
	if len(bounds) > 0 && bounds[0] <= 0 {
		low = math.Inf(-1)
	}
	for _, b := range bounds {
		if dropped(b) {
			open = true
			continue
		}
		if open {
			merged = append(merged, interval{low, b})
		}
		low, open = b, false
	}
	return merged, !open
}

func boundOf(merged []interval) Bound {
	var b Bound
	for _, m := range merged {
		if m.low > 0 {
			b.Relative = max(b.Relative, m.high/m.low-1)
		} else {
			b.Low = max(b.Low, m.high)
		}
	}
	return b
}

// widest is the merged bucket in which a value may move by the largest factor.
func widest(merged []interval) interval {
	var out interval
	for _, m := range merged {
		if m.low > 0 && (out.low == 0 || m.high/m.low > out.high/out.low) {
			out = m
		}
	}
	return out
}

// inside returns the merged bucket that the value divides, if there is one: then
// the full histogram may be on another side of it than the thinned one. A quantile
// may be the upper end of its bucket, and where counts do not grow, only one of the
// two is, so that the ends count unless a comparison tells no difference there.
func inside(merged []interval, value float64, open bool) (interval, bool) {
	i := slices.IndexFunc(merged, func(m interval) bool {
		if open {
			return m.low < value && value < m.high
		}
		return m.low <= value && value <= m.high
	})
	if i < 0 {
		return interval{}, false
	}
	return merged[i], true
}
