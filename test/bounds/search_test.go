// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package bounds searches the bounds that thinned histograms keep: the fewest with
// which no quantile that a published panel or alert draws moves by more than it may,
// on real scrapes and on any data. Its tests hold package relabel and
// docs/drop-rules.md to what it finds.
//
// It knows, in testdata, which quantiles are drawn of which histograms, and the counts
// of the histograms that they are drawn of, in one scrape of every component of two
// clusters. go test -update reads both anew from expositions beside the repository.
package bounds

import (
	"math"
	"slices"
	"sort"

	"github.com/promguard/promguard/internal/relabel"
)

const (
	// measuredLimit is how far a quantile may move on the scrapes, as a factor.
	measuredLimit = 2
	// recommendedLimit is how far it may move on any data with recommended.
	recommendedLimit = 4
)

// none is the limit where there is none.
var none = math.Inf(1)

// histogram is what one thinning rule is about.
type histogram struct {
	rule relabel.Rule
	// bounds are the finite upper bounds, ascending.
	bounds []float64
	// must are bounds that stay because something reads them.
	must []float64
	rows []row
}

// row is a histogram of which panels or alerts draw quantiles.
type row struct {
	// cluster is the version of the one that it is of.
	cluster   string
	quantiles []float64
	// counts are cumulative, by the histogram's bounds and +Inf.
	counts []float64
	// times is how many drawn rows are just this one.
	times int
}

// scaled is the row with every duration multiplied, as far as the buckets tell it.
func (r row) scaled(bounds []float64, by float64) row {
	out := r
	out.counts = make([]float64, len(r.counts))
	for i, b := range bounds {
		out.counts[i] = countAt(bounds, r.counts, b/by)
	}
	out.counts[len(bounds)] = r.counts[len(bounds)]
	return out
}

// countAt returns how many values are up to v, if they are spread evenly in a bucket.
func countAt(bounds, counts []float64, v float64) float64 {
	i := sort.SearchFloat64s(bounds, v)
	if i == len(bounds) {
		return counts[len(bounds)-1]
	}
	low, below := 0.0, 0.0
	if i > 0 {
		low, below = bounds[i-1], counts[i-1]
	}
	if bounds[i] <= low {
		return counts[i]
	}
	return below + (counts[i]-below)*(v-low)/(bounds[i]-low)
}

// bucket returns the index of the bucket that the quantile lies in.
func (r row) bucket(q float64) int {
	rank := q * r.counts[len(r.counts)-1]
	return min(sort.Search(len(r.counts), func(i int) bool { return r.counts[i] >= rank }), len(r.counts)-1)
}

// value returns the quantile as histogram_quantile does if the bucket that it lies in
// reaches from the bound before first to that of last.
func (r row) value(bounds []float64, q float64, first, last int) float64 {
	low, below := 0.0, 0.0
	if first > 0 {
		low, below = bounds[first-1], r.counts[first-1]
	} else if bounds[last] <= 0 {
		return bounds[last]
	}
	rank := q*r.counts[len(r.counts)-1] - below
	return low + (bounds[last]-low)*rank/(r.counts[last]-below)
}

// moves returns by which factors quantiles move if the buckets from first to last are
// one, a factor for each of those that lie in it.
func (h *histogram) moves(rows []row, first, last int) []float64 {
	var out []float64
	for _, r := range rows {
		for _, q := range r.quantiles {
			b := r.bucket(q)
			if b < first || b > last {
				continue
			}
			full, merged := r.value(h.bounds, q, b, b), r.value(h.bounds, q, first, last)
			factor := 1.0
			if full != merged {
				factor = max(full, merged) / min(full, merged)
			}
			out = append(out, slices.Repeat([]float64{factor}, r.times)...)
		}
	}
	return out
}

// may reports whether the buckets from first to last may be one. On any data a value
// moves by the ratio of the bucket's ends at most. That says nothing of the lowest
// bucket, which begins at 0: bounds below everything that was measured may go.
func (h *histogram) may(first, last int, measured, anyData float64) (factors []float64, ok bool) {
	for _, b := range h.bounds[first:last] {
		if b <= 0 || slices.Contains(h.must, b) {
			return nil, false
		}
	}
	factors = h.moves(h.rows, first, last)
	if first == last {
		return factors, true
	}
	const rounding = 1 + 1e-9
	switch {
	case len(factors) > 0 && slices.Max(factors) > measured*rounding:
		return nil, false
	case first == 0:
		return factors, len(h.rows) > 0 && (anyData == none || len(h.moves(h.rows, 0, last-1)) == 0)
	}
	return factors, h.bounds[first-1] > 0 && h.bounds[last]/h.bounds[first-1] <= anyData*rounding
}

// search returns the fewest bounds with which quantiles keep within the limits. Counts
// at bounds that stay are exact, so what happens between two of them depends on no
// other, and the best way to a bound goes on from the best way to an earlier one.
// Among as few, those are best with which quantiles move least, and then those whose
// buckets are of the most equal width.
func (h *histogram) search(measured, anyData float64) []float64 {
	type way struct {
		before   int // the last bound that stays before this one
		stay     int
		distance float64
	}
	best := make([]way, len(h.bounds))
	for last := range h.bounds {
		best[last] = way{stay: math.MaxInt}
		for first := range last + 1 {
			factors, ok := h.may(first, last, measured, anyData)
			if !ok {
				continue
			}
			w := way{before: first - 1, stay: 1}
			if first > 0 {
				w.stay += best[first-1].stay
				w.distance = best[first-1].distance
				if low := h.bounds[first-1]; low > 0 {
					w.distance += 1e-6 * math.Pow(math.Log(h.bounds[last]/low), 2)
				}
			}
			for _, f := range factors {
				w.distance += math.Log(f)
			}
			if w.stay < best[last].stay || w.stay == best[last].stay && w.distance < best[last].distance {
				best[last] = w
			}
		}
	}
	var stay []float64
	for i := len(h.bounds) - 1; i >= 0; i = best[i].before {
		stay = append(stay, h.bounds[i])
	}
	slices.Reverse(stay)
	return stay
}

// factors returns by which factors the quantiles of the rows move with the bounds that
// stay, in ascending order. Those beyond the largest finite bound do not.
func (h *histogram) factors(rows []row, stay []float64) []float64 {
	var out []float64
	first := 0
	for i, b := range h.bounds {
		if slices.Contains(stay, b) {
			out = append(out, h.moves(rows, first, i)...)
			first = i + 1
		}
	}
	slices.Sort(out)
	return out
}
