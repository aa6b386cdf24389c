// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/promguard/promguard/internal/promqltext"
)

// Count is a limit on a number of things in a request.
type Count struct {
	// Name is one of the Limit constants.
	Name string
	// Min and Ceiling are what may be configured.
	Min, Ceiling int
	// IsTime is set of a limit on a time, which is a number of nanoseconds; 0 is no bound.
	IsTime bool
	// Of returns where an Options holds the bound.
	Of func(*Options) *Bound

	// hard refuses what is over the ceiling in every mode.
	hard bool
	// auto, if not nil, is what a Max of 0 stands for.
	auto func(*asked) int
	// seen returns how many there are; ok is false if the request is of another kind.
	seen           func(*asked) (n int, ok bool)
	what, unit, do string
	// offer, if not nil, returns what passes in place of the request, to be said in place
	// of do; or "".
	offer func(a *asked, limit int) string
}

// Indexes of counts.
const (
	countQueryBytes = iota
	countQueryOperators
	countRegexSize
	countSeries
	countSamples
	countRange
	countOldest
)

// maxAuto is the most that limits may be set to which follow from the server otherwise.
const maxAuto = 1 << 50

var counts = [...]Count{
	countQueryBytes:     textCount(LimitQueryBytes, &promqltext.Bytes, func(o *Options) *Bound { return &o.QueryBytes }, func(c *promqltext.Cost) int { return c.Bytes }),
	countQueryOperators: textCount(LimitQueryOperators, &promqltext.Operators, func(o *Options) *Bound { return &o.QueryOperators }, func(c *promqltext.Cost) int { return c.Operators }),
	countRegexSize:      textCount(LimitRegexSize, &promqltext.RegexSize, func(o *Options) *Bound { return &o.RegexSize }, func(c *promqltext.Cost) int { return c.RegexSize }),
	countSeries: {
		Name: LimitSeries, Ceiling: maxAuto, Of: func(o *Options) *Bound { return &o.Series },
		seen: func(a *asked) (int, bool) {
			e, ok := a.estimate()
			return whole(e.Series), ok && a.Head != nil
		},
		auto: func(a *asked) int { return int(a.Head.share() / bytesPerSeries) },
		what: "a request that reads ", unit: "series",
		do: "Match on labels that fewer series have, or read a recording rule.",
	},
	countSamples: {
		Name: LimitSamples, Ceiling: maxAuto, Of: func(o *Options) *Bound { return &o.Samples },
		seen: func(a *asked) (int, bool) {
			e, ok := a.estimate()
			return whole(e.samples()), ok
		},
		auto: func(a *asked) int {
			if a.Head == nil {
				return samplesOfSeries
			}
			e, _ := a.estimate() // Its series take their part.
			return int(max(a.Head.share()-bytesPerSeries*e.Series, 0) / bytesPerSample)
		},
		what: "a request that holds ", unit: "samples at once",
		do:    "Ask for a larger step, a shorter range or fewer series.",
		offer: (*asked).offer,
	},
	countRange: {
		Name: LimitRange, Ceiling: math.MaxInt, IsTime: true, Of: func(o *Options) *Bound { return &o.Range },
		seen: func(a *asked) (int, bool) { _, span, ok := a.times(); return int(span), ok },
		what: "a query that reads ", unit: "of samples, with ranges, subqueries, offsets and lookback,",
		do: "Ask for a shorter time range, or for a recording rule that holds the result.",
	},
	countOldest: {
		Name: LimitOldest, Ceiling: math.MaxInt, IsTime: true, Of: func(o *Options) *Bound { return &o.Oldest },
		seen: func(a *asked) (int, bool) { first, _, ok := a.times(); return int(a.age(first)), ok },
		what: "a query that reads samples of ", unit: "ago",
		do: "Ask for a later start, a smaller offset or a shorter range.",
	},
}

// whole rounds up what may be more than an int holds.
func whole(n float64) int { return int(math.Ceil(min(n, maxAuto))) }

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

// Counts returns every limit on a number that has a mode.
func Counts() []Count { return counts[:] }

// Auto reports whether the limit follows from the server if its Max is 0.
func (c *Count) Auto() bool { return c.auto != nil }

// Validate returns an error that says what is allowed, if n is not.
func (c *Count) Validate(n int) error {
	if n < c.Min || n > c.Ceiling {
		return fmt.Errorf("%s is %s: use %s to %s", c.Name, c.text(n), c.text(c.Min), c.text(c.Ceiling))
	}
	return nil
}

func (c *Count) text(n int) string {
	if c.IsTime {
		return text(time.Duration(n))
	}
	return strconv.Itoa(n)
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
	limit := c.allowed(p, a)
	r := c.refuse(p, n, limit)
	if r != nil && c.offer != nil {
		if do := c.offer(a, limit); do != "" {
			r.Remedy = do
		}
	}
	return r
}

// allowed is how many a request may have.
func (c *Count) allowed(p *Policy, a *asked) int {
	most := c.Of(&p.opts).Max
	switch {
	case most == 0 && c.auto != nil:
		return c.auto(a)
	case most == 0 && c.IsTime:
		return math.MaxInt
	}
	return most
}

// refuse returns the refusal of n, if that is more than allowed.
func (c *Count) refuse(p *Policy, n, limit int) *Refusal {
	mode, operator := c.Of(&p.opts).Mode, ""
	if c.hard && n > c.Ceiling {
		limit, mode = min(limit, c.Ceiling), ModeEnforce
	} else if n > limit {
		operator = raise(c.Name)
	}
	if mode == ModeOff || n <= limit {
		return nil
	}
	return p.refuse(c.Name, mode, c.do, c.what+c.text(n)+" "+c.unit, "exceeds the "+c.text(limit)+" allowed", operator)
}

func (c *Count) explain(p *Policy, a *asked) (Finding, bool) {
	n, ok := c.seen(a)
	if !ok {
		return Finding{}, false
	}
	most := c.allowed(p, a)
	return Finding{c.Name, c.Of(&p.opts).Mode, c.text(n), c.text(most), n > most}, true
}

func (c *Count) measure(a *asked) (float64, bool) {
	if c.auto != nil {
		return 0, false // Without the server, nobody knows.
	}
	n, ok := c.seen(a)
	return float64(n), ok && n > 0
}

// checkCount adds a refusal to rs if there are more than allowed.
func (p *Policy) checkCount(rs Refusals, c *Count, n int) Refusals {
	if r := c.refuse(p, n, c.Of(&p.opts).Max); r != nil {
		return append(rs, r)
	}
	return rs
}
