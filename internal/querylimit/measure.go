// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"math"
	"time"

	"github.com/prometheus/prometheus/model/timestamp"

	"github.com/promguard/promguard/internal/promqltext"
)

// Measure tells see how much a request has of what limits bound: numbers as they
// are, times in nanoseconds, and +Inf for what has no fixed number. It does not
// name what the request has nothing of, such as subqueries. Queries are those
// that Judge parsed of the request.
//
// The windows of a remote read are not measured: no log holds them.
func Measure(r *Request, queries []*Query, now time.Time, see func(limit string, value float64)) {
	measureTexts(queries, see)
	for i := range structural {
		most := 0
		for _, q := range queries {
			most = max(most, structural[i].of(q))
		}
		measureCount(structural[i].Name, most, see)
	}
	switch r.Endpoint.Reads {
	case ReadsInstant, ReadsSteps:
		if len(queries) > 0 {
			measureEvaluation(queries[0], r.Evaluation(now), now, see)
		}
	case ReadsWindow:
		start, end := r.window(now)
		measureReach(timestamp.FromTime(start), timestamp.FromTime(end), now, see)
	case ReadsMetadata:
		end := r.End
		if end.IsZero() || end.After(now) {
			end = now
		}
		if !r.Start.IsZero() { // Without one, the policy sets it.
			see(LimitMetadataRange, float64(max(end.Sub(r.Start), 0)))
		}
	}
}

// measureTexts adds up what the limits on the text of a request add up.
func measureTexts(queries []*Query, see func(string, float64)) {
	var sum promqltext.Cost
	for _, q := range queries {
		sum = sum.Plus(q.cost)
	}
	measureCount(LimitQueryBytes, sum.Bytes, see)
	measureCount(LimitQueryOperators, sum.Operators, see)
	measureCount(LimitRegexSize, sum.RegexSize, see)
}

func measureEvaluation(q *Query, e Evaluation, now time.Time, see func(string, float64)) {
	if e.Step > 0 {
		measureCount(LimitPoints, e.steps(), see)
		see(LimitMinStep, float64(e.Step))
	}
	run := q.in(e)
	measureCount(LimitSubqueryPoints, run.subqueryPoints(), see)
	if first, last, ok := run.times(); ok {
		measureReach(first, last, now, see)
	}
}

func measureReach(first, last int64, now time.Time, see func(string, float64)) {
	see(LimitRange, float64(between(first, last)))
	see(LimitOldest, float64(between(first, timestamp.FromTime(now))))
}

func measureCount(limit string, n int, see func(string, float64)) {
	switch {
	case n == math.MaxInt:
		see(limit, math.Inf(1))
	case n > 0:
		see(limit, float64(n))
	}
}

// Options returns what the policy is made of.
func (p *Policy) Options() Options {
	o := p.opts
	o.EqualityLabels = append([]string(nil), o.EqualityLabels...)
	return o
}
