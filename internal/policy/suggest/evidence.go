// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/prometheus/common/model"

	"github.com/promguard/promguard/internal/policy/dryrun"
	"github.com/promguard/promguard/internal/proxy/querylog"
	"github.com/promguard/promguard/internal/querylimit"
)

// Evidence is what a log says about the requests that were answered.
type Evidence struct {
	Log querylog.Stats
	// Requests were answered; LeftOut were not, or cannot be judged: without a time
	// or the whole text of their queries, malformed, or of an endpoint that is not
	// open.
	Requests, LeftOut int
	First, Last       time.Time

	all     seen
	tenants map[string]*seen
	minutes map[int64]int // requests by the minute, for period

	leavesOut bool // at least one entry says so
	untold    int  // entries that do not say
	fastest   float64
}

// seen has the values of requests by the name of a target, and how many had none
// of what may have a default.
type seen struct {
	requests int
	values   map[string]*sketch
	without  map[string]int
}

// of returns the values of a target. If requests without one get as much as the
// bound allows, they count as asking for all.
func (s *seen) of(t *target, noDefault bool) *sketch {
	v := s.values[t.name]
	if n := s.without[t.name]; v != nil && noDefault && n > 0 {
		return v.withInfinite(n)
	}
	return v
}

func (s *seen) add(name string, v float64) {
	if s.values == nil {
		s.values = map[string]*sketch{}
	}
	if s.values[name] == nil {
		s.values[name] = &sketch{}
	}
	s.values[name].add(v)
}

func (s *seen) lacks(name string) {
	if s.without == nil {
		s.without = map[string]int{}
	}
	s.without[name]++
}

// Gather reads a log.
func Gather(log io.Reader) (*Evidence, error) {
	open, err := wideOpen()
	if err != nil {
		return nil, err
	}
	e := &Evidence{tenants: map[string]*seen{}, minutes: map[int64]int{}, fastest: math.Inf(1)}
	analyzer := querylimit.NewAnalyzer(32 << 20)
	e.Log, err = querylog.Read(log, func(entry *querylog.Entry) { e.take(open, analyzer, entry) })
	return e, err
}

// wideOpen looks at nothing, so that what it parses depends on no policy.
func wideOpen() (*querylimit.Ruleset, error) {
	o := querylimit.DefaultOptions()
	o.Selectivity = querylimit.ModeOff
	for _, c := range querylimit.Counts() {
		*c.Of(&o) = querylimit.Bound{Mode: querylimit.ModeOff, Max: c.Ceiling}
	}
	for _, d := range querylimit.Durations() {
		d.Of(&o).Mode = querylimit.ModeOff
	}
	o.MetadataRange.Mode, o.Results.Mode, o.Responses.Mode = querylimit.ModeOff, querylimit.ModeOff, querylimit.ModeOff
	return querylimit.NewRuleset(querylimit.RulesetOptions{Global: o})
}

func (e *Evidence) take(open *querylimit.Ruleset, analyzer *querylimit.Analyzer, entry *querylog.Entry) {
	req := dryrun.Request(entry)
	if req == nil || entry.Time.IsZero() || !dryrun.Answered(entry) {
		e.LeftOut++
		return
	}
	v, err := open.Judge(analyzer, req, entry.Time)
	if err != nil || v.Refusals.Err() != nil {
		e.LeftOut++
		return
	}
	e.Requests++
	e.minutes[entry.Time.Unix()/60]++
	switch {
	case entry.SlowerThan == nil:
		e.untold++
		if len(entry.Limits) == 0 {
			e.fastest = min(e.fastest, entry.Took)
		}
	case *entry.SlowerThan > 0 && entry.Sample < 1:
		e.leavesOut = true
	}
	if e.First.IsZero() || entry.Time.Before(e.First) {
		e.First = entry.Time
	}
	if entry.Time.After(e.Last) {
		e.Last = entry.Time
	}
	who := []*seen{&e.all}
	if entry.Tenant != "" {
		if e.tenants[entry.Tenant] == nil {
			e.tenants[entry.Tenant] = &seen{}
		}
		who = append(who, e.tenants[entry.Tenant])
	}
	for _, s := range who {
		s.requests++
		measure(s, entry, req, v.Queries)
	}
}

func measure(s *seen, entry *querylog.Entry, req *querylimit.Request, queries []*querylimit.Query) {
	querylimit.Measure(req, queries, entry.Time, func(limit string, v float64) {
		if v > 0 {
			s.add(limit, v)
		}
	})
	class := req.Endpoint.Class.String()
	if entry.Took > 0 {
		s.add(querylimit.LimitDeadline+"."+class, entry.Took*float64(time.Second))
	}
	if entry.Bytes > 0 {
		s.add(querylimit.LimitResponseBytes+"."+class, float64(entry.Bytes))
	}
	if req.Endpoint.Reads == querylimit.ReadsMetadata && req.Start.IsZero() {
		s.lacks(querylimit.LimitMetadataRange)
	}
	if set := req.Endpoint.Results; set != nil && req.Limit < 0 {
		s.lacks(querylimit.LimitResults + "." + set.String())
	} else if set != nil {
		asked := float64(req.Limit)
		if req.Limit == 0 {
			asked = math.Inf(1)
		}
		s.add(querylimit.LimitResults+"."+set.String(), asked)
	}
}

// usualSlow is what query_log.slower_than is by default, in seconds.
const usualSlow = 1

// partial reports whether the log leaves out fast requests. Of one that does not
// say, it is told by none being there.
func (e *Evidence) partial() bool {
	return e.leavesOut || e.untold > 0 && e.fastest >= usualSlow
}

// period returns the time that the requests span. A few that lie far from the
// others, by a clock that was wrong, do not count.
func (e *Evidence) period() time.Duration {
	minutes := slices.Sorted(maps.Keys(e.minutes))
	few := e.Requests / 100
	edge := func(minutes iter.Seq2[int, int64]) (at int64) {
		left := few
		for _, at = range minutes {
			if left -= e.minutes[at]; left < 0 {
				break
			}
		}
		return at
	}
	first, last := edge(slices.All(minutes)), edge(slices.Backward(minutes))
	whole := e.Last.Sub(e.First)
	if middle := last - first; middle < int64(whole/time.Minute)/2 {
		return time.Duration(max(middle, 0)) * time.Minute
	}
	return whole
}

// enough returns an error if there is too little to draw limits from.
func (e *Evidence) enough(o Options) error {
	if period := e.period(); e.Requests < o.MinRequests || period < o.MinPeriod {
		return fmt.Errorf("too little evidence: %d requests that were answered, over %s; limits are drawn from at least %d over %s. Let the log grow (with query_log.slower_than: 0s it holds all requests), or lower --min-requests or --min-period",
			e.Requests, durationText(period), o.MinRequests, model.Duration(o.MinPeriod))
	}
	return nil
}
