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

// resolve returns the expression as it is evaluated: one whose times depend on that in
// more than a sum is parsed again, as putting numbers into it changes it.
func (q *Query) resolve(e *Evaluation) (parser.Expr, error) {
	if !q.dynamic {
		return q.expr, nil
	}
	expr, err := q.parse(q.Text)
	if err != nil {
		return nil, err
	}
	return promql.PreprocessExpr(expr, e.Start, e.End, e.Step)
}
