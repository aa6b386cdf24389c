// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/promguard/promguard/internal/promqltext"
)

// Count is a limit on a number of things in a request.
type Count struct {
	// Name is one of the Limit constants.
	Name string
	// Min and Ceiling are what may be configured.
	Min, Ceiling int
	// Of returns where an Options holds the bound.
	Of func(*Options) *Bound

	// hard refuses what is over the ceiling in every mode.
	hard bool
	// seen returns how many there are; ok is false if the request is of another kind.
	seen           func(*asked) (n int, ok bool)
	what, unit, do string
}

// Indexes of counts.
const (
	countQueryBytes = iota
	countQueryOperators
	countRegexSize
	countPoints
	countSubqueryPoints
	countFederateSelectors
	countReadQueries
)

var counts = [...]Count{
	countQueryBytes:     textCount(LimitQueryBytes, &promqltext.Bytes, func(o *Options) *Bound { return &o.QueryBytes }, func(c *promqltext.Cost) int { return c.Bytes }),
	countQueryOperators: textCount(LimitQueryOperators, &promqltext.Operators, func(o *Options) *Bound { return &o.QueryOperators }, func(c *promqltext.Cost) int { return c.Operators }),
	countRegexSize:      textCount(LimitRegexSize, &promqltext.RegexSize, func(o *Options) *Bound { return &o.RegexSize }, func(c *promqltext.Cost) int { return c.RegexSize }),
	countPoints: {
		Name: LimitPoints, Min: 1, Ceiling: 1 << 30, Of: func(o *Options) *Bound { return &o.Points },
		seen: func(a *asked) (int, bool) { return a.at.steps(), a.at.Step > 0 },
		what: "a range query of ", unit: "steps",
		do: "Ask for a larger step or a shorter range.",
	},
	countSubqueryPoints: {
		Name: LimitSubqueryPoints, Min: 1, Ceiling: 1 << 30, Of: func(o *Options) *Bound { return &o.SubqueryPoints },
		seen: (*asked).subqueryPoints,
		what: "subqueries of ", unit: "steps together",
		do: "Give the subquery a larger step, as in [1d:5m], or a shorter range, or record what is inside by a rule.",
	},
	countFederateSelectors: {
		Name: LimitFederateSelectors, Min: 1, Ceiling: MaxParameters, Of: func(o *Options) *Bound { return &o.FederateSelectors },
		seen: queriesOf(EndpointFederate),
		what: "a federation with ", unit: "match[]",
		do: "Federate the results of recording rules, whose names can share a prefix, as in {__name__=~\"job:.+\"}.",
	},
	countReadQueries: {
		Name: LimitReadQueries, Min: 1, Ceiling: MaxReadQueries, Of: func(o *Options) *Bound { return &o.ReadQueries },
		seen: queriesOf(EndpointRead),
		what: "a remote read with ", unit: "queries",
		do: "Send fewer queries in a request.",
	},
}

// textCount is a limit on text before it is parsed.
func textCount(name string, l *promqltext.Limit, of func(*Options) *Bound, seen func(*promqltext.Cost) int) Count {
	return Count{
		Name: name, Min: 1, Ceiling: l.Ceiling, Of: of, hard: true, what: l.What, unit: l.Unit, do: l.Remedy,
		seen: func(a *asked) (int, bool) {
			var sum promqltext.Cost
			for _, q := range a.queries {
				sum = sum.Plus(q.cost)
			}
			return seen(&sum), len(a.queries) > 0
		},
	}
}

// structural are the limits on what a parsed query has.
var structural = [...]Count{
	{
		Name: LimitRegexCost, Ceiling: promqltext.MaxRegexSize, Of: func(o *Options) *Bound { return &o.RegexCost },
		seen: mostOf(func(q *Query) int { return q.regexCost }), what: "PromQL whose regular expressions take ", unit: "instructions for each value of their labels",
		do: "List whole values, as in a|b, or begin with literal text, or match on a label with few values.",
	},
	{
		Name: LimitExprDepth, Min: 1, Ceiling: promqltext.MaxOperators, Of: func(o *Options) *Bound { return &o.ExprDepth },
		seen: mostOf(func(q *Query) int { return q.depth }), what: "PromQL that nests ", unit: "levels deep",
		do: "Move inner parts into recording rules.",
	},
	{
		Name: LimitSelectors, Min: 1, Ceiling: promqltext.MaxOperators, Of: func(o *Options) *Bound { return &o.Selectors },
		seen: mostOf(func(q *Query) int { return len(q.selectors) }), what: "PromQL with ", unit: "selectors",
		do: "Replace chains of or by one regular expression, or split the query.",
	},
	{
		Name: LimitVectorMatching, Ceiling: promqltext.MaxOperators, Of: func(o *Options) *Bound { return &o.VectorMatching },
		seen: mostOf(func(q *Query) int { return q.joins }), what: "PromQL with ", unit: "operators that match many series with one (group_left, group_right) or without labels (on())",
		do: "Aggregate before joining, or record the joined series by a rule.",
	},
	{
		Name: LimitCountValues, Ceiling: promqltext.MaxOperators, Of: func(o *Options) *Bound { return &o.CountValues },
		seen: mostOf(func(q *Query) int { return q.countValues }), what: "PromQL with ", unit: "count_values, each of which makes a series of every value",
		do: "Count series of a label, as in count by (version) (build_info), or round values first.",
	},
	{
		Name: LimitTopK, Min: 1, Ceiling: 1 << 30, Of: func(o *Options) *Bound { return &o.TopK },
		seen: mostOf(func(q *Query) int { return q.topK }), what: "topk, bottomk or limitk with k of ", unit: "",
		do: "Ask for fewer series, with k as a number.",
	},
	{
		Name: LimitSubqueries, Ceiling: promqltext.MaxOperators, Of: func(o *Options) *Bound { return &o.Subqueries },
		seen: mostOf(func(q *Query) int { return len(q.subqueries) }), what: "PromQL with ", unit: "subqueries",
		do: "Record inner parts by rules.",
	},
}

// Counts returns every limit on a number that has a mode.
func Counts() []Count { return slices.Concat(counts[:], structural[:]) }

// Validate returns an error that says what is allowed, if n is not.
func (c *Count) Validate(n int) error {
	if n < c.Min || n > c.Ceiling {
		return fmt.Errorf("%s is %d: use %d to %d", c.Name, n, c.Min, c.Ceiling)
	}
	return nil
}

// mostOf sees the query that has most.
func mostOf(of func(*Query) int) func(*asked) (int, bool) {
	return func(a *asked) (int, bool) {
		most := 0
		for _, q := range a.queries {
			most = max(most, of(q))
		}
		return most, len(a.queries) > 0
	}
}

// queriesOf counts the queries or selectors of one endpoint.
func queriesOf(endpoint string) func(*asked) (int, bool) {
	return func(a *asked) (int, bool) { return len(a.queries), a.endpoint == endpoint }
}

func (a *asked) subqueryPoints() (int, bool) {
	if run := a.run(); run != nil {
		return run.subqueryPoints(), true
	}
	return 0, false
}

func (c *Count) name() string { return c.Name }

func (c *Count) check(p *Policy, a *asked) *Refusal {
	if c.Of(&p.opts).Mode == ModeOff && !c.hard {
		return nil
	}
	n, ok := c.seen(a)
	if !ok {
		return nil
	}
	return c.refuse(p, n)
}

// refuse returns the refusal of n, if that is more than allowed.
func (c *Count) refuse(p *Policy, n int) *Refusal {
	b := c.Of(&p.opts)
	limit, mode, operator := b.Max, b.Mode, raise(c.Name)
	if c.hard && n > c.Ceiling {
		limit, mode, operator = min(limit, c.Ceiling), ModeEnforce, ""
	}
	if mode == ModeOff || n <= limit {
		return nil
	}
	value := c.what + strconv.Itoa(n)
	if n == math.MaxInt {
		value = c.what + "no fixed number"
	}
	if c.unit != "" {
		value += " " + c.unit
	}
	return p.refuse(c.Name, mode, c.do, value, "exceeds the "+strconv.Itoa(limit)+" allowed", operator)
}

func (c *Count) explain(p *Policy, a *asked) (Finding, bool) {
	n, ok := c.seen(a)
	b := c.Of(&p.opts)
	seen := strconv.Itoa(n)
	if n == math.MaxInt {
		seen = "computed"
	}
	return Finding{c.Name, b.Mode, seen, strconv.Itoa(b.Max), n > b.Max}, ok
}

func (c *Count) measure(a *asked) (float64, bool) {
	n, ok := c.seen(a)
	if n == math.MaxInt {
		return math.Inf(1), ok
	}
	return float64(n), ok && n > 0
}

// checkCount adds a refusal to rs if there are more than allowed.
func (p *Policy) checkCount(rs Refusals, c *Count, n int) Refusals {
	if r := c.refuse(p, n); r != nil {
		return append(rs, r)
	}
	return rs
}
