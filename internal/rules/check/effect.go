// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"slices"
)

// effect is what a rule does to the result of an expression, on any data. The
// zero effect is none: the result is the same.
type effect struct {
	// undecided is set to the reason if it cannot be said what happens.
	undecided string
	// empty says that nothing is left, whatever was there.
	empty bool
	// lose, gain and move say that there may be series too few, series too many,
	// and series with other values.
	lose, gain, move bool
	// thin is set if rows of certain le are missing and all others are there,
	// with their values.
	thin *thin
	// near is set if all rows are there with values that are close.
	near *near
	// why says how the effect comes about, as a clause, and via names the
	// recording rules that it comes through.
	why string
	via []string
	// example is a series that the rule drops and a selector reads.
	example string
}

// thin says which buckets are missing.
type thin struct {
	rule *rule
	// histograms are the names of those in question, without _bucket.
	histograms []string
	// partial says that the rows may be no longer the cumulative counts at all
	// bounds that stay, so that nothing bounds a quantile of them.
	partial bool
	// filtered says that where rows are left, +Inf need not be among them, so
	// that a group of rows may be gone altogether. It implies partial.
	filtered bool
}

// near says how close values are.
type near struct {
	bound Bound
	// quantiles are those asked for, as p99, and widest is the merged bucket in which
	// they may move most, in the unit of the histogram.
	quantiles []string
	widest    interval
	// merged are the buckets in which the full and the thinned value may differ,
	// in the unit of the result; nil once the result is no plain quantile.
	merged []interval
	// plain says that the result is quantiles, or the largest or smallest of
	// them, so that a threshold outside of all merged buckets is decided alike.
	plain bool
	// signs says that values of either sign may stand beside each other, so that
	// the relative bound does not hold for their sum.
	signs bool
	// negated says that the values are those of quantiles times a negative number.
	negated bool
}

// beside notes that rows of any value stand beside those that are close.
func (e effect) beside() effect {
	if e.near != nil {
		n := *e.near
		n.signs = true
		e.near = &n
	}
	return e
}

// part notes that the rows are no longer cumulative counts at all bounds.
func (e effect) part() effect {
	if e.thin != nil {
		t := *e.thin
		t.partial = true
		e.thin = &t
	}
	return e
}

// filter notes that single rows may have been taken out, whatever their le.
func (e effect) filter() effect {
	if e.thin != nil {
		t := *e.thin
		t.partial, t.filtered = true, true
		e.thin = &t
	}
	return e
}

func (e effect) none() bool {
	return e.undecided == "" && !e.empty && !e.lose && !e.gain && !e.move && e.thin == nil && e.near == nil
}

// changes reports whether anything but thinning happens.
func (e effect) changes() bool {
	return e.undecided != "" || e.empty || e.lose || e.gain || e.move
}

// rough forgets the finer effects: rows that are missing or close are rows that
// are missing or have other values.
func (e effect) rough(why string) effect {
	if e.thin != nil || e.near != nil {
		e.move = true
		e.lose = e.lose || e.thin != nil
		e.thin, e.near = nil, nil
		e.why = cmp.Or(why, e.why)
	}
	return e
}

// roughRows is rough for missing rows only.
func (e effect) roughRows() effect {
	if e.thin != nil {
		return e.rough("")
	}
	return e
}

// moved is rough for what keeps its rows, as an aggregation does.
func (e effect) moved(why string) effect {
	if e.thin != nil || e.near != nil {
		e.move = true
		e.lose = e.lose || e.thin != nil && e.thin.filtered
		e.thin, e.near = nil, nil
		e.why = why
	}
	return e
}

// both returns the effect on what needs both of two operands row by row.
func both(a, b effect) effect {
	out := effect{
		undecided: cmp.Or(a.undecided, b.undecided),
		empty:     a.empty || b.empty,
		lose:      a.lose || b.lose,
		gain:      a.gain || b.gain,
		move:      a.move || b.move,
		why:       cmp.Or(a.why, b.why),
		example:   cmp.Or(a.example, b.example),
		via:       a.via,
	}
	if a.none() || !a.changes() && b.changes() {
		out.why, out.via = b.why, b.via
	}
	switch {
	case a.thin != nil && b.thin != nil:
		out.thin = &thin{
			rule: a.thin.rule, histograms: sortedUnion(a.thin.histograms, b.thin.histograms),
			partial: a.thin.partial || b.thin.partial, filtered: a.thin.filtered || b.thin.filtered,
		}
	case a.thin != nil:
		out.thin = a.thin
	case b.thin != nil:
		out.thin = b.thin
	}
	switch {
	case a.near != nil && b.near != nil:
		// Two that are close: how far their combination is off is not said.
		out.move = true
	case a.near != nil:
		out.near = a.near
	case b.near != nil:
		out.near = b.near
	}
	if out.near != nil && out.thin != nil {
		return out.rough("")
	}
	return out
}

// either returns the effect on what has the rows of both of two sources.
func either(a, b effect) effect {
	if a.none() && b.none() {
		return effect{}
	}
	if a.empty != b.empty {
		// One of the sources is left.
		a.empty, b.empty = false, false
		out := both(a, b).rough("")
		out.lose = true
		return out
	}
	if (a.thin == nil) != (b.thin == nil) || (a.near == nil) != (b.near == nil) {
		return both(a, b).rough("")
	}
	if a.near != nil && b.near != nil {
		out := a
		out.near = &near{
			bound:     a.near.bound.union(b.near.bound),
			quantiles: sortedUnion(a.near.quantiles, b.near.quantiles),
			widest:    widest([]interval{a.near.widest, b.near.widest}),
			merged:    slices.Concat(a.near.merged, b.near.merged),
			plain:     a.near.plain && b.near.plain,
			// Quantiles are of one sign unless said otherwise.
			signs:   a.near.signs || b.near.signs || a.near.negated != b.near.negated,
			negated: a.near.negated || b.near.negated,
		}
		return out
	}
	return both(a, b)
}

func sortedUnion(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}
