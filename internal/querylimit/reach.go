// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"time"

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
func (q *evaluated) times(e *Estimate) (first, last int64, ok bool) {
	if len(q.selectors) == 0 {
		return 0, 0, false
	}
	if q.dynamic {
		expr, err := q.resolve()
		if err != nil {
			return 0, 0, false // The server does not evaluate it either.
		}
		first, last = promql.FindMinMaxTime(&parser.EvalStmt{Expr: expr, Start: q.at.Start, End: q.at.End, Interval: q.at.Step, LookbackDelta: q.at.lookback()})
		return first, last, true
	}
	return moment(e.first), moment(e.last), true
}

func moment(ms float64) int64 { return int64(max(min(ms, latestWindow), -latestWindow)) }

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
