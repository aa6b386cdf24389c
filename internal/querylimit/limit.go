// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/timestamp"
)

// limit is one thing in which requests are limited. What it sees of a request it works
// out in one place, from which it is checked, explained and measured.
type limit interface {
	name() string
	// check returns the refusal of a request that is over the limit, in whatever mode;
	// nil if it is not, or if the limit is off.
	check(p *Policy, a *asked) *Refusal
	// explain returns what the limit sees, in mode off, too; ok is false if the
	// request has nothing that it looks at.
	explain(p *Policy, a *asked) (f Finding, ok bool)
	// measure returns how much there is of it; ok is false if that is nothing, or
	// no number.
	measure(a *asked) (value float64, ok bool)
}

// Finding is what one limit sees of a query.
type Finding struct {
	Limit string `json:"limit"`
	Mode  Mode   `json:"mode"`
	// Seen and Allowed are for people; Allowed is empty where there is no bound.
	Seen     string `json:"seen"`
	Allowed  string `json:"allowed"`
	Exceeded bool   `json:"exceeded"`
}

// The limits of a request, in the order in which they refuse. Those of text have been
// asked before there was a query; see Policy.scan.
var (
	ofText = []limit{&counts[countQueryBytes], &counts[countQueryOperators], &counts[countRegexSize]}
	parsed = []limit{
		selectivity{},
		&counts[countSeries], &counts[countSamples], &counts[countRange], &counts[countOldest],
		metadataRange{},
	}
	all = slices.Concat(ofText, parsed)
)

// check asks every limit on what was parsed.
func (p *Policy) check(a *asked) Refusals {
	var rs Refusals
	for _, l := range parsed {
		if r := l.check(p, a); r != nil {
			rs = append(rs, r)
		}
	}
	return rs
}

// Explain returns what every limit that looks at queries sees of a request with these
// queries, in whatever mode it is.
func (p *Policy) Explain(r *Request, queries []*Query, now time.Time) []Finding {
	a := r.asked(queries, now)
	var list []Finding
	for _, l := range all {
		if f, ok := l.explain(p, &a); ok {
			list = append(list, f)
		}
	}
	return list
}

// Measure tells see how much a request has of what limits bound: numbers as they
// are, times in nanoseconds, and +Inf for what has no fixed number. It does not
// name what the request has nothing of, such as subqueries. Queries are those
// that Judge parsed of the request.
func Measure(r *Request, queries []*Query, now time.Time, see func(limit string, value float64)) {
	a := r.asked(queries, now)
	for _, l := range all {
		if value, ok := l.measure(&a); ok {
			see(l.name(), value)
		}
	}
}

// asked is a request as the limits look at it. Not safe for concurrent use: it remembers
// what takes time to work out.
type asked struct {
	*Request

	queries []*Query // that were parsed of it
	now     time.Time
	at      Evaluation // of what is evaluated

	estimated Estimate
	known     bool // that is worked out
}

// asked returns what r asks for, with the queries that were parsed of it.
func (r *Request) asked(queries []*Query, now time.Time) asked {
	return asked{Request: r, queries: queries, now: now, at: r.Evaluation(now)}
}

// evaluates reports whether the request has a query that is evaluated.
func (a *asked) evaluates() bool {
	return len(a.queries) > 0 && (a.Endpoint.Reads == ReadsInstant || a.Endpoint.Reads == ReadsSteps)
}

// windows returns what is read as it stands.
func (a *asked) windows() []Window {
	if a.Endpoint.Reads == ReadsWindow {
		start, end := a.window(a.now)
		return []Window{{start, end}}
	}
	return a.Windows
}

// times returns the first moment of which samples are read, in milliseconds since 1970,
// and how long all of them take; of several windows, the longest. It is not ok if none are.
func (a *asked) times() (first int64, span time.Duration, ok bool) {
	if e, known := a.estimate(); known && e.first < e.last {
		first, ok = moment(e.first)+1, true
		span = between(first, moment(e.last))
	}
	for i, w := range a.windows() {
		start := w.Start.UnixMilli()
		span = max(span, between(start, w.End.UnixMilli()))
		if i == 0 || start < first {
			first = start
		}
		ok = true
	}
	return first, span, ok
}

// age returns how old a moment is, in milliseconds since 1970.
func (a *asked) age(ms int64) time.Duration { return between(ms, timestamp.FromTime(a.now)) }
