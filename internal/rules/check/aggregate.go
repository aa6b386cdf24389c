// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/promguard/promguard/internal/rules/source"
)

// quantile turns missing buckets into quantiles that are close.
func (w *walker) quantile(in effect, quantiles parser.Expressions) effect {
	if in.thin == nil || in.changes() {
		return in.counted().moved("an input of histogram_quantile is off: " + in.why)
	}
	for _, q := range quantiles {
		// The quantile 0 is 0 if there is anything in the lowest bucket, and else
		// NaN.
		switch v, ok := number(q); {
		case !ok:
			return effect{undecided: "it is not known which quantile is asked for; 0 may become another value", why: in.why, example: in.example, via: in.via}
		case v == 0:
			return in.moved(in.why + "; the quantile 0 depends on whether there is anything below the lowest bound")
		}
	}
	var merged []interval
	if in.thin.partial {
		return in.moved(in.why + "; what is left need not be the counts at all other bounds, so how far quantiles move is not known")
	}
	signs := false
	if len(in.thin.histograms) == 0 {
		return in.moved(in.why + "; which histograms that are is not known, nor how far quantiles move")
	}
	for _, h := range in.thin.histograms {
		layouts := w.layouts[h]
		if len(layouts) == 0 {
			return in.moved(fmt.Sprintf("%s; no rule states the bounds of %s, so how far quantiles move is not known", in.why, h))
		}
		for _, bounds := range layouts {
			m, ok := merge(bounds, func(b float64) bool { return w.dropsBound(h, b) })
			if !ok {
				return in.moved(fmt.Sprintf("%s, among them the largest finite one, %g, which is what quantiles above it return", in.why, bounds[len(bounds)-1]))
			}
			merged = append(merged, m...)
			signs = signs || bounds[0] < 0
		}
	}
	if slices.ContainsFunc(merged, func(m interval) bool { return m.low < 0 }) {
		return in.moved(in.why + ", among them such below 0, where no bound holds")
	}
	in.thin = nil
	in.near = &near{
		bound: boundOf(merged), quantiles: percentiles(quantiles), widest: widest(merged),
		merged: merged, plain: true, signs: signs,
	}
	return in
}

// percentiles writes quantiles that are numbers as people do, 0.99 as p99.
func percentiles(quantiles parser.Expressions) []string {
	var out []string
	for _, q := range quantiles {
		v, _ := number(q)
		out = append(out, "p"+strconv.FormatFloat(100*v, 'g', 6, 64))
	}
	return sortedUnion(out, nil)
}

// number returns the value of what is reckoned from numbers that are written down.
func number(e parser.Expr) (float64, bool) {
	if b, binary := source.Bare(e).(*parser.BinaryExpr); binary {
		l, okL := number(b.LHS)
		r, okR := number(b.RHS)
		ok := okL && okR
		switch b.Op {
		case parser.ADD:
			return l + r, ok
		case parser.SUB:
			return l - r, ok
		case parser.MUL:
			return l * r, ok
		case parser.DIV:
			return l / r, ok
		}
		return 0, false
	}
	return constant(e)
}

func (w *walker) aggregate(e *parser.AggregateExpr) effect {
	in := w.expr(e.Expr)
	if e.Param != nil {
		in = withParameter(in, w.expr(e.Param))
	}
	if in.none() {
		return in
	}
	if in.undecided == "" && in.thin != nil {
		in = thinned(e, in)
	}
	if in.near != nil {
		in = closeBy(e, in)
	}
	switch e.Op {
	case parser.COUNT, parser.GROUP:
		// How many there are does not depend on their values.
		in.move = false
		if in.none() {
			return effect{}
		}
	case parser.TOPK, parser.BOTTOMK, parser.LIMITK, parser.LIMIT_RATIO, parser.COUNT_VALUES:
		if in.lose || in.move || in.gain {
			in.lose, in.gain = true, true
		}
	}
	if e.Op != parser.GROUP {
		in = in.counted()
	}
	return in
}

// counted is the effect on what is reckoned from several rows at once.
func (e effect) counted() effect {
	e.move = e.move || (e.lose || e.gain) && !e.empty
	return e
}

func withParameter(in, param effect) effect {
	if param.none() {
		return in
	}
	in = both(in, param).rough("")
	in.move = true
	return in
}

// thinned is an aggregation of rows some of whose buckets are missing.
func thinned(e *parser.AggregateExpr, in effect) effect {
	keepsLE := slices.Contains(e.Grouping, model.BucketLabel)
	if e.Without {
		keepsLE = !keepsLE && !slices.ContainsFunc(e.Grouping, source.HasMarker)
	}
	switch e.Op {
	case parser.COUNT_VALUES, parser.LIMITK, parser.LIMIT_RATIO:
	case parser.GROUP:
		if !keepsLE && in.thin.filtered {
			break
		}
		if !keepsLE {
			in.thin = nil
			if in.none() {
				return effect{}
			}
			return in
		}
		return in
	case parser.TOPK, parser.BOTTOMK:
		if keepsLE {
			return in.filter()
		}
	case parser.STDDEV, parser.STDVAR:
		if keepsLE {
			return in.part()
		}
	default:
		if keepsLE {
			return in
		}
	}
	out := in.moved(fmt.Sprintf("%s, and %s does not keep le apart", in.why, e.Op))
	// For count, rows that are missing are more than rows with other values.
	out.lose = true
	return out
}

// closeBy is an aggregation of quantiles that are close.
func closeBy(e *parser.AggregateExpr, in effect) effect {
	switch e.Op {
	case parser.MAX, parser.MIN:
		return in
	case parser.AVG, parser.QUANTILE, parser.SUM:
		return in.mixed()
	case parser.COUNT, parser.GROUP:
		in.near = nil
		if in.none() {
			return effect{}
		}
		return in
	case parser.TOPK, parser.BOTTOMK:
		out := in.moved(in.why + ", so that others may be among the first")
		out.lose, out.gain = true, true
		return out
	}
	return in.moved(fmt.Sprintf("%s, and how far %s is off is not known", in.why, e.Op))
}
