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
		&counts[countExprDepth], &counts[countSeries], &counts[countSamples],
		&durations[durationRange], &durations[durationOldest],
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

// asked is what a request asks for, as the limits look at it. Not safe for concurrent
// use: it remembers what takes time to work out.
type asked struct {
	endpoint   string // its name
	label      string // whose values are asked for
	reads      Reads
	queries    []*Query
	at         Evaluation // of ReadsInstant and ReadsSteps
	windows    []Window   // of ReadsWindow and ReadsWindows
	start, end time.Time  // of ReadsMetadata; zero for none
	now        time.Time
	limit      int   // of what is answered; 0 or less for none
	head       *Head // nil if nobody knows

	evaluated *evaluated
	read      readTimes
	estimated *Estimate
}

// readTimes are of the samples that a request reads.
type readTimes struct {
	known bool
	first int64         // in milliseconds since 1970
	span  time.Duration // of the longest window, if there are several
	ok    bool          // it reads some
}

// asked returns what r asks for, with the queries that were parsed of it.
func (r *Request) asked(queries []*Query, now time.Time) asked {
	a := asked{endpoint: r.Endpoint.Name, label: r.Label, reads: r.Endpoint.Reads, queries: queries, now: now, limit: r.Limit, head: r.Head}
	switch a.reads {
	case ReadsInstant, ReadsSteps:
		a.at = r.Evaluation(now)
	case ReadsWindow:
		start, end := r.window(now)
		a.windows = []Window{{start, end}}
	case ReadsWindows:
		a.windows = r.Windows
	case ReadsMetadata:
		a.start, a.end = r.Start, r.End
	}
	return a
}

// run returns the query that is evaluated, or nil.
func (a *asked) run() *evaluated {
	if a.evaluated == nil && len(a.queries) > 0 && (a.reads == ReadsInstant || a.reads == ReadsSteps) {
		a.evaluated = a.queries[0].in(a.at)
	}
	return a.evaluated
}

// times returns of when the samples are.
func (a *asked) times() readTimes {
	if a.read.known {
		return a.read
	}
	t := readTimes{known: true}
	if run := a.run(); run != nil {
		var last int64
		e, _ := a.estimate()
		t.first, last, t.ok = run.times(&e)
		t.span = between(t.first, last)
	}
	for i, w := range a.windows {
		start := w.Start.UnixMilli()
		t.span = max(t.span, between(start, w.End.UnixMilli()))
		if i == 0 || start < t.first {
			t.first = start
		}
		t.ok = true
	}
	a.read = t
	return t
}

// age returns how old a moment is, in milliseconds since 1970.
func (a *asked) age(ms int64) time.Duration { return between(ms, timestamp.FromTime(a.now)) }
