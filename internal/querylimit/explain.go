// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"math"
	"strconv"
	"time"

	"github.com/prometheus/prometheus/model/timestamp"
)

// Finding is what one limit sees of a query.
type Finding struct {
	Limit string
	Mode  Mode
	// Seen and Allowed are for people; Allowed is empty where there is no bound.
	Seen, Allowed string
	Exceeded      bool
}

// Explain returns what every limit that looks at queries sees of q, in whatever
// mode it is.
func (p *Policy) Explain(q *Query, e Evaluation, now time.Time) []Finding {
	strict := *p
	strict.opts.Selectivity = ModeEnforce // In mode off it would not look.
	list := []Finding{{
		LimitSelectivity, p.opts.Selectivity, strconv.Itoa(len(q.selectors)) + " selectors", p.selectivityAllowed(),
		strict.checkSelectivity(q) != nil,
	}}
	run := q.in(e)
	count := func(c *Count, seen int) {
		b := c.Of(&p.opts)
		text := strconv.Itoa(seen)
		if seen == math.MaxInt {
			text = "computed"
		}
		list = append(list, Finding{c.Name, b.Mode, text, strconv.Itoa(b.Max), seen > b.Max})
	}
	count(&counts[countQueryBytes], len(q.Text))
	count(&counts[countQueryOperators], q.cost.Operators)
	count(&counts[countRegexSize], q.cost.RegexSize)
	for i := range structural {
		count(&structural[i], structural[i].of(q))
	}
	count(&counts[countSubqueryPoints], run.subqueryPoints())
	if e.Step > 0 {
		count(&counts[countPoints], e.steps())
		b := p.opts.MinStep
		list = append(list, Finding{LimitMinStep, b.Mode, text(e.Step), allowed(b.Value), e.Step < b.Value}, p.explainStep(q, e))
	}
	if first, last, ok := run.times(); ok {
		for _, f := range []struct {
			limit string
			bound DurationBound
			seen  time.Duration
		}{
			{LimitRange, p.opts.Range, between(first, last)},
			{LimitOldest, p.opts.Oldest, between(first, timestamp.FromTime(now))},
		} {
			list = append(list, Finding{f.limit, f.bound.Mode, text(f.seen), allowed(f.bound.Value), f.bound.Value > 0 && f.seen > f.bound.Value})
		}
	}
	return list
}

func (p *Policy) selectivityAllowed() string {
	if len(p.opts.EqualityLabels) == 0 {
		return "a metric or an equality in each"
	}
	return "a metric or an equality on one of the labels in each"
}

func allowed(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return text(d)
}
