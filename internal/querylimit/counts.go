// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"fmt"
	"strconv"
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
	hard           bool
	what, unit, do string
}

// Indexes of counts.
const (
	countQueryBytes = iota
	countQueryOperators
	countRegexSize
)

var counts = [...]Count{
	countQueryBytes: {
		Name: LimitQueryBytes, Min: 1, Ceiling: MaxQueryBytes, Of: func(o *Options) *Bound { return &o.QueryBytes },
		hard: true, what: "a PromQL text of ", unit: "bytes",
		do: "Replace long lists of values by a regular expression or by a label that groups them, or split the query.",
	},
	countQueryOperators: {
		Name: LimitQueryOperators, Min: 1, Ceiling: MaxQueryOperators, Of: func(o *Options) *Bound { return &o.QueryOperators },
		hard: true, what: "PromQL with ", unit: "operators, calls and brackets",
		do: "Split the query, move a part of it into a recording rule, or replace chains of or by one regular expression.",
	},
	countRegexSize: {
		Name: LimitRegexSize, Min: 1, Ceiling: MaxRegexSize, Of: func(o *Options) *Bound { return &o.RegexSize },
		hard: true, what: "regular expressions that compile into about ", unit: "instructions",
		do: "Avoid counted repetition such as x{1000}; use * or + or list the values.",
	},
}

// Counts returns every limit on a number that has a mode.
func Counts() []Count { return counts[:] }

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
	limit, mode := b.Max, b.Mode
	if c.hard && seen > c.Ceiling {
		limit, mode = min(limit, c.Ceiling), ModeEnforce
	}
	if mode == ModeOff || seen <= limit {
		return rs
	}
	return append(rs, p.refuse(c.Name, mode, c.what+strconv.Itoa(seen)+" "+c.unit,
		"exceeds the "+strconv.Itoa(limit)+" allowed", c.do))
}
