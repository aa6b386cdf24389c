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
	// of returns how much of it a parsed query has; nil if that takes more.
	of             func(*Query) int
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
	countQueryBytes:     textCount(LimitQueryBytes, &promqltext.Bytes, func(o *Options) *Bound { return &o.QueryBytes }),
	countQueryOperators: textCount(LimitQueryOperators, &promqltext.Operators, func(o *Options) *Bound { return &o.QueryOperators }),
	countRegexSize:      textCount(LimitRegexSize, &promqltext.RegexSize, func(o *Options) *Bound { return &o.RegexSize }),
	countPoints: {
		Name: LimitPoints, Min: 1, Ceiling: 1 << 30, Of: func(o *Options) *Bound { return &o.Points },
		what: "a range query of ", unit: "steps",
		do: "Ask for a larger step or a shorter range.",
	},
	countSubqueryPoints: {
		Name: LimitSubqueryPoints, Min: 1, Ceiling: 1 << 30, Of: func(o *Options) *Bound { return &o.SubqueryPoints },
		what: "subqueries of ", unit: "steps together",
		do: "Give the subquery a larger step, as in [1d:5m], or a shorter range, or record what is inside by a rule.",
	},
	countFederateSelectors: {
		Name: LimitFederateSelectors, Min: 1, Ceiling: MaxParameters, Of: func(o *Options) *Bound { return &o.FederateSelectors },
		what: "a federation with ", unit: "match[]",
		do: "Federate the results of recording rules, whose names can share a prefix, as in {__name__=~\"job:.+\"}.",
	},
	countReadQueries: {
		Name: LimitReadQueries, Min: 1, Ceiling: MaxReadQueries, Of: func(o *Options) *Bound { return &o.ReadQueries },
		what: "a remote read with ", unit: "queries",
		do: "Send fewer queries in a request.",
	},
}

// textCount is a limit on text before it is parsed.
func textCount(name string, l *promqltext.Limit, of func(*Options) *Bound) Count {
	return Count{Name: name, Min: 1, Ceiling: l.Ceiling, Of: of, hard: true, what: l.What, unit: l.Unit, do: l.Remedy}
}

// structural are the limits on what a parsed query has.
var structural = [...]Count{
	{
		Name: LimitRegexCost, Ceiling: promqltext.MaxRegexSize, Of: func(o *Options) *Bound { return &o.RegexCost },
		of: func(q *Query) int { return q.regexCost }, what: "PromQL whose regular expressions take ", unit: "instructions for each value of their labels",
		do: "List whole values, as in a|b, or begin with literal text, or match on a label with few values.",
	},
	{
		Name: LimitExprDepth, Min: 1, Ceiling: promqltext.MaxOperators, Of: func(o *Options) *Bound { return &o.ExprDepth },
		of: func(q *Query) int { return q.depth }, what: "PromQL that nests ", unit: "levels deep",
		do: "Move inner parts into recording rules.",
	},
	{
		Name: LimitSelectors, Min: 1, Ceiling: promqltext.MaxOperators, Of: func(o *Options) *Bound { return &o.Selectors },
		of: func(q *Query) int { return len(q.selectors) }, what: "PromQL with ", unit: "selectors",
		do: "Replace chains of or by one regular expression, or split the query.",
	},
	{
		Name: LimitVectorMatching, Ceiling: promqltext.MaxOperators, Of: func(o *Options) *Bound { return &o.VectorMatching },
		of: func(q *Query) int { return q.joins }, what: "PromQL with ", unit: "operators that match many series with one (group_left, group_right) or without labels (on())",
		do: "Aggregate before joining, or record the joined series by a rule.",
	},
	{
		Name: LimitCountValues, Ceiling: promqltext.MaxOperators, Of: func(o *Options) *Bound { return &o.CountValues },
		of: func(q *Query) int { return q.countValues }, what: "PromQL with ", unit: "count_values, each of which makes a series of every value",
		do: "Count series of a label, as in count by (version) (build_info), or round values first.",
	},
	{
		Name: LimitTopK, Min: 1, Ceiling: 1 << 30, Of: func(o *Options) *Bound { return &o.TopK },
		of: func(q *Query) int { return q.topK }, what: "topk, bottomk or limitk with k of ", unit: "",
		do: "Ask for fewer series, with k as a number.",
	},
	{
		Name: LimitSubqueries, Ceiling: promqltext.MaxOperators, Of: func(o *Options) *Bound { return &o.Subqueries },
		of: func(q *Query) int { return len(q.subqueries) }, what: "PromQL with ", unit: "subqueries",
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

// checkCount adds a refusal to rs if there are more than allowed.
func (p *Policy) checkCount(rs Refusals, c *Count, seen int) Refusals {
	b := c.Of(&p.opts)
	limit, mode, operator := b.Max, b.Mode, raise(c.Name)
	if c.hard && seen > c.Ceiling {
		limit, mode, operator = min(limit, c.Ceiling), ModeEnforce, ""
	}
	if mode == ModeOff || seen <= limit {
		return rs
	}
	value := c.what + strconv.Itoa(seen)
	if seen == math.MaxInt {
		value = c.what + "no fixed number"
	}
	if c.unit != "" {
		value += " " + c.unit
	}
	return append(rs, p.refuse(c.Name, mode, c.do, value, "exceeds the "+strconv.Itoa(limit)+" allowed", operator))
}
