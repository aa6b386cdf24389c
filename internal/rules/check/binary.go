// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/promguard/promguard/internal/rules/source"
)

func (w *walker) binary(e *parser.BinaryExpr) effect {
	l, r := w.expr(e.LHS), w.expr(e.RHS)
	if l.none() && r.none() {
		return effect{}
	}
	if u := cmp.Or(l.undecided, r.undecided); u != "" {
		return effect{undecided: u}
	}
	if m := e.VectorMatching; m != nil && slices.ContainsFunc(slices.Concat(m.MatchingLabels, m.Include), source.HasMarker) {
		// A variable says which labels are matched; le may be one.
		l, r = l.roughRows(), r.roughRows()
	}
	byLE := matchesByLE(e.VectorMatching)
	switch e.Op {
	case parser.LAND:
		return and(l, r, byLE)
	case parser.LUNLESS:
		return unless(l, r, byLE)
	case parser.LOR:
		return or(l, r)
	}
	vectors := e.LHS.Type() == parser.ValueTypeVector && e.RHS.Type() == parser.ValueTypeVector
	if vectors && (e.VectorMatching.FillValues.LHS != nil || e.VectorMatching.FillValues.RHS != nil) {
		return filled(e, both(l, r))
	}
	if l.near != nil || r.near != nil {
		return closeTo(e, l, r, vectors)
	}
	switch {
	case vectors && slices.Contains(e.VectorMatching.Include, model.BucketLabel):
		l, r = l.rough(""), r.rough("")
	case vectors && !byLE:
		l, r = joinedWithoutLE(e.VectorMatching, l, r)
	case vectors:
		l, r = joinedByLE(l, r)
	}
	out := both(l, r)
	switch {
	case e.Op.IsComparisonOperator() && e.ReturnBool:
		return compared(e, out).part()
	case e.Op.IsComparisonOperator():
		return compared(e, out).filter()
	case keepsCounts(e, l, r):
		return out
	}
	return out.part()
}

// joinedByLE treats rows that are left only where the other side has their le. It
// need not have all bounds, and if it is no histogram, not even +Inf.
func joinedByLE(l, r effect) (left, right effect) {
	switch {
	case l.thin == nil || r.thin == nil:
		return l.filter(), r.filter()
	case !slices.Equal(l.thin.histograms, r.thin.histograms):
		return l.part(), r.part()
	}
	return l, r
}

// keepsCounts reports whether arithmetic leaves counts that grow with the bound as
// such.
func keepsCounts(e *parser.BinaryExpr, l, r effect) bool {
	if e.Op == parser.ADD {
		return true
	}
	if l.thin == nil || r.thin != nil {
		c, ok := constant(e.LHS)
		return e.Op == parser.MUL && ok && c > 0
	}
	switch e.Op {
	case parser.SUB:
		return true
	case parser.MUL, parser.DIV:
		c, ok := constant(e.RHS)
		return ok && c > 0
	}
	return false
}

// compared is a comparison of values that may have moved.
func compared(e *parser.BinaryExpr, in effect) effect {
	if in.move && !e.ReturnBool {
		in.lose, in.gain = true, true
	}
	return in
}

// filled is the result of a join that puts a value where a row is missing: there the
// row of the other side stands, by itself and with its own labels.
func filled(e *parser.BinaryExpr, in effect) effect {
	in = in.rough("").some()
	if in.lose || in.gain || in.move && e.Op.IsComparisonOperator() {
		in.lose, in.gain, in.move = true, true, true
	}
	return in
}

// matchesByLE reports whether rows of two vectors meet only if their le is the
// same.
func matchesByLE(m *parser.VectorMatching) bool {
	if m == nil {
		return true
	}
	return slices.Contains(m.MatchingLabels, model.BucketLabel) == m.On
}

// joinedWithoutLE treats what is missing on the side that has one row for many.
func joinedWithoutLE(m *parser.VectorMatching, l, r effect) (left, right effect) {
	switch m.Card {
	case parser.CardManyToOne:
		return l, r.rough("")
	case parser.CardOneToMany:
		return l.rough(""), r
	}
	return l.rough(""), r.rough("")
}

// closeTo is arithmetic with, or a comparison of, quantiles that are close.
func closeTo(e *parser.BinaryExpr, l, r effect, vectors bool) effect {
	in := both(l, r)
	if in.near == nil {
		return compared(e, in)
	}
	if c, ok := constant(e.RHS); ok && l.near != nil {
		switch {
		case e.Op.IsComparisonOperator():
			return threshold(e, e.Op, in, c)
		case e.Op == parser.MUL:
			return scaled(in, c)
		case e.Op == parser.DIV && c != 0:
			return scaled(in, 1/c)
		}
	}
	if c, ok := constant(e.LHS); ok && r.near != nil {
		switch {
		case e.Op.IsComparisonOperator():
			return threshold(e, mirrored(e.Op), in, c)
		case e.Op == parser.MUL:
			return scaled(in, c)
		}
	}
	// A factor that is exact leaves the relative bound as it is.
	other := r
	if r.near != nil {
		other = l
	}
	if vectors && other.none() && in.near.bound.Low == 0 && (e.Op == parser.MUL || e.Op == parser.DIV) {
		return in.mixed().beside()
	}
	out := in.moved(in.why + ", and how far the result is off is not known")
	if e.Op.IsComparisonOperator() {
		out.why = in.why + ", so that the comparison may come out otherwise"
	}
	return compared(e, out)
}

// mirrored returns the operator that compares the other way round.
func mirrored(op parser.ItemType) parser.ItemType {
	switch op {
	case parser.GTR:
		return parser.LSS
	case parser.LSS:
		return parser.GTR
	case parser.GTE:
		return parser.LTE
	case parser.LTE:
		return parser.GTE
	}
	return op
}

// threshold is a comparison with a constant, which stands after the operator.
func threshold(e *parser.BinaryExpr, op parser.ItemType, in effect, value float64) effect {
	// Quantiles are above the lower end of their bucket and up to the upper.
	open := (op == parser.GTR || op == parser.LTE) && !in.near.negated
	m, divided := inside(in.near.merged, value, open)
	if in.near.plain && !divided {
		if e.ReturnBool {
			in.near = nil
			if in.none() {
				return effect{}
			}
		}
		return in
	}
	why := fmt.Sprintf("%s, so that the comparison with %g may come out otherwise", in.why, value)
	if divided {
		why = fmt.Sprintf("%s, and the threshold %g lies in the merged bucket from %g to %g: the comparison may come out otherwise",
			in.why, value, m.low, m.high)
	}
	return compared(e, in.moved(why))
}

func scaled(in effect, factor float64) effect {
	n := *in.near
	size := math.Abs(factor)
	n.bound.Low *= size
	n.merged = slices.Clone(n.merged)
	for i := range n.merged {
		a, b := n.merged[i].low*factor, n.merged[i].high*factor
		n.merged[i] = interval{min(a, b), max(a, b)}
	}
	n.plain = n.plain && size > 0 && !math.IsInf(size, 0)
	n.negated = n.negated != (factor < 0)
	in.near = &n
	return in
}

// constant returns the value of a number that is written down.
func constant(e parser.Expr) (float64, bool) {
	switch e := source.Bare(e).(type) {
	case *parser.NumberLiteral:
		return e.Val, e.Val != source.UnknownNumber
	case *parser.UnaryExpr:
		v, ok := constant(e.Expr)
		if e.Op == parser.SUB {
			v = -v
		}
		return v, ok
	}
	return 0, false
}

// and keeps the rows of l that meet a row of r, whatever its value.
func and(l, r effect, byLE bool) effect {
	r = exists(r, byLE)
	if l.empty || r.empty {
		out := both(l, r)
		out.thin, out.near = nil, nil
		return out
	}
	if r.thin != nil && l.thin == nil {
		r = r.rough("")
	}
	if byLE {
		l, r = joinedByLE(l, r)
	}
	r.move = false
	if r.none() {
		return l
	}
	return both(l, r)
}

// unless keeps the rows of l that meet none of r.
func unless(l, r effect, byLE bool) effect {
	r = exists(r, byLE)
	if l.empty {
		return l
	}
	if r.thin != nil {
		if l.thin == nil {
			r = r.rough("")
		} else {
			r.thin = nil
		}
	}
	if byLE {
		l = l.filter()
	}
	out := l
	if r.empty || r.lose {
		out.gain = true
		why := r.why + ", so that unless no longer takes away what it should"
		if !l.changes() {
			out.why, out.via = why, r.via
		}
		out.example = cmp.Or(r.example, l.example)
	}
	if r.gain {
		out.lose = true
		out.why = cmp.Or(r.why, out.why)
	}
	return out
}

// or has the rows of l, and of r those that meet none of l.
func or(l, r effect) effect {
	if l.empty && r.empty {
		return l
	}
	if (l.thin == nil) != (r.thin == nil) {
		// Rows of the bounds that are missing may be left, and be added to others.
		l, r = l.rough(""), r.rough("")
	}
	if l.empty || l.lose || l.gain || l.thin != nil && l.thin.filtered {
		out := both(l, r).rough("")
		out.empty = false
		// Without the metric's name, one row may be another with the same labels.
		out.lose, out.gain, out.move = true, true, true
		out.why, out.via = l.why+", so that what stands after or takes its place", l.via
		return out
	}
	r = r.some()
	if l.none() || r.none() {
		return both(l, r).part().beside()
	}
	return either(l, r).part()
}

// exists is the effect on which rows there are, leaving their values aside.
func exists(e effect, byLE bool) effect {
	e.near = nil
	e.move = false
	switch {
	case byLE || e.thin == nil:
	case e.thin.filtered:
		e = e.rough("")
		e.move = false
	default:
		// +Inf stands for all bounds.
		e.thin = nil
	}
	if e.none() {
		return effect{}
	}
	return e
}
