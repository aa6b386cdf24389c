// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"math"
	"time"

	"github.com/prometheus/prometheus/model/timestamp"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

// Evaluation is when a query is evaluated, as the server will understand it.
type Evaluation struct {
	Start, End time.Time
	// Step is the time between two steps; 0 for an instant.
	Step time.Duration
	// Lookback is how old a sample may be to count; 0 means DefaultLookback.
	Lookback time.Duration
	// SubqueryStep is the step of a subquery without one; 0 means
	// DefaultSubqueryStep.
	SubqueryStep time.Duration
}

// Defaults of Prometheus, which the upstream server may have changed: of
// --query.lookback-delta, and of the step of a subquery without one, which is
// global.evaluation_interval.
const (
	DefaultLookback     = 5 * time.Minute
	DefaultSubqueryStep = time.Minute
)

// length is the time from the first step to the last, in milliseconds. A Duration ends
// after 292 years, and what the server does not.
func (e *Evaluation) length() float64 {
	seconds := float64(e.End.Unix()) - float64(e.Start.Unix())
	return 1000*seconds + float64(e.End.Nanosecond()-e.Start.Nanosecond())/float64(time.Millisecond)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// steps is how many there are of a range query.
func (e *Evaluation) steps() int {
	return int(min(e.length()/milliseconds(e.Step), math.MaxInt32)) + 1
}

func (e *Evaluation) subqueryStep() time.Duration {
	if e.SubqueryStep > 0 {
		return e.SubqueryStep
	}
	return DefaultSubqueryStep
}

func (e *Evaluation) lookback() time.Duration {
	if e.Lookback > 0 {
		return e.Lookback
	}
	return DefaultLookback
}

// subqueryContext adds up the subqueries around a node. An @ modifier makes what
// is around it irrelevant.
type subqueryContext struct {
	anchor anchor
	at     int64
	offset time.Duration
	ranges int64 // in milliseconds, which no depth makes overflow
}

func (c *subqueryContext) enter(n *parser.SubqueryExpr) {
	a, at := anchorOf(n.Timestamp, n.StartOrEnd)
	if a != anchorEvaluation {
		*c = subqueryContext{anchor: a, at: at}
	}
	c.offset = add(c.offset, n.OriginalOffset)
	c.ranges += n.Range.Milliseconds()
}

// add is a + b that stops at the largest duration.
func add(a, b time.Duration) time.Duration {
	switch s := a + b; {
	case a > 0 && b > 0 && s < 0:
		return math.MaxInt64
	case a < 0 && b < 0 && s >= 0:
		return math.MinInt64
	default:
		return s
	}
}

func anchorOf(at *int64, startOrEnd parser.ItemType) (anchor, int64) {
	switch {
	case startOrEnd == parser.START:
		return anchorStart, 0
	case startOrEnd == parser.END:
		return anchorEnd, 0
	case at != nil:
		return anchorFixed, *at
	}
	return anchorEvaluation, 0
}

// reachOf mirrors getTimeRangesForSelector of Prometheus's engine.
func reachOf(n *parser.VectorSelector, around subqueryContext, evalRange time.Duration) reach {
	var r reach
	if r.anchor, r.at = anchorOf(n.Timestamp, n.StartOrEnd); r.anchor == anchorEvaluation {
		r.anchor, r.at = around.anchor, around.at
		r.back += around.offset.Milliseconds() + around.ranges
		r.ahead -= around.offset.Milliseconds()
	}
	r.lookbackBack = evalRange == 0 || n.Anchored || n.Smoothed
	r.lookbackAhead = n.Smoothed
	offset := n.OriginalOffset.Milliseconds()
	r.back += evalRange.Milliseconds() - 1 + offset // Ranges are open to the left.
	r.ahead -= offset
	return r
}

func (r *reach) times(start, end, lookback int64) (first, last int64) {
	switch r.anchor {
	case anchorFixed:
		start, end = r.at, r.at
	case anchorStart:
		end = start
	case anchorEnd:
		start = end
	}
	first, last = start-r.back, end+r.ahead
	if r.lookbackBack {
		first -= lookback
	}
	if r.lookbackAhead {
		last += lookback
	}
	return first, last
}

// evaluated is a query and when it is evaluated. A query whose times depend on
// that in more than a sum is parsed for it, once. Not safe for concurrent use.
type evaluated struct {
	*Query

	at   Evaluation
	expr parser.Expr // if dynamic and parsed, with numbers for duration expressions
	err  error
}

func (q *Query) in(e Evaluation) *evaluated { return &evaluated{Query: q, at: e} }

// times returns the first and the last moment of which samples are read, in
// milliseconds since 1970; ok is false if there are none.
func (q *evaluated) times() (first, last int64, ok bool) {
	e := q.at
	if q.dynamic {
		expr, err := q.resolve()
		if err != nil {
			return 0, 0, false // The server gives the same error.
		}
		first, last = promql.FindMinMaxTime(&parser.EvalStmt{Expr: expr, Start: e.Start, End: e.End, Interval: e.Step, LookbackDelta: e.lookback()})
		return first, last, first != 0 || last != 0
	}
	start, end, lookback := timestamp.FromTime(e.Start), timestamp.FromTime(e.End), e.lookback().Milliseconds()
	first, last = math.MaxInt64, math.MinInt64
	for i := range q.selectors {
		f, l := q.selectors[i].reach.times(start, end, lookback)
		first, last = min(first, f), max(last, l)
	}
	return first, last, len(q.selectors) > 0
}

// resolve parses a query again and puts numbers where duration expressions stand.
// That changes the expression, which therefore is not that of the Query.
func (q *evaluated) resolve() (parser.Expr, error) {
	if q.expr == nil && q.err == nil {
		if q.expr, q.err = q.parse(q.Text); q.err == nil {
			q.expr, q.err = promql.PreprocessExpr(q.expr, q.at.Start, q.at.End, q.at.Step)
		}
	}
	return q.expr, q.err
}

// subqueryPoints returns for how many moments the subqueries are evaluated, in
// all.
func (q *evaluated) subqueryPoints() int {
	list := q.subqueries
	if q.dynamic && len(list) > 0 {
		expr, err := q.resolve()
		if err != nil {
			return 0
		}
		list = Analyze(q.Text, expr).subqueries
	}
	sum := 0.0
	for _, s := range list {
		step := s.step
		if step <= 0 {
			step = q.at.subqueryStep()
		}
		span := float64(s.ranges)
		if !s.pinned {
			span += q.at.length()
		}
		sum += math.Floor(span / milliseconds(step))
	}
	return int(min(sum, math.MaxInt32))
}
