// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"io"
	"time"

	"github.com/promguard/promguard/internal/policy/dryrun"
	"github.com/promguard/promguard/internal/proxy/querylog"
	"github.com/promguard/promguard/internal/querylimit"
)

// Evidence is what a log says about the requests that were answered.
type Evidence struct {
	Log querylog.Stats `json:"log"`
	// Requests were answered; LeftOut were not, or cannot be judged: without a time
	// or the whole text of their queries, malformed, or of an endpoint that is not
	// open.
	Requests int       `json:"requests"`
	LeftOut  int       `json:"left_out"`
	First    time.Time `json:"first"`
	Last     time.Time `json:"last"`

	all     seen
	tenants map[string]*seen
	hours   map[int64]struct{} // in which there are requests
	partial bool               // at least one entry says that fast ones are left out
}

// seen has the values of requests by the name of a target, and how many requests
// for metadata do not say from when.
type seen struct {
	requests, noStart int
	values            map[string]*sketch
}

func (s *seen) add(name string, v float64) {
	if v <= 0 {
		return
	}
	if s.values[name] == nil {
		s.values[name] = &sketch{buckets: map[int]int{}}
	}
	s.values[name].add(v)
}

// period returns how long all hours together are in which there are requests. Of
// a few that a clock which was wrong puts into other years, it is no longer.
func (e *Evidence) period() time.Duration { return time.Duration(len(e.hours)) * time.Hour }

// Gather reads a log.
func Gather(log io.Reader) (*Evidence, error) {
	open, err := wideOpen()
	if err != nil {
		return nil, err
	}
	e := &Evidence{all: seen{values: map[string]*sketch{}}, tenants: map[string]*seen{}, hours: map[int64]struct{}{}}
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
	o.MetadataRange.Mode = querylimit.ModeOff
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
	e.hours[entry.Time.Unix()/3600] = struct{}{}
	e.partial = e.partial || entry.SlowerThan != nil && *entry.SlowerThan > 0 && entry.Sample < 1
	if e.First.IsZero() || entry.Time.Before(e.First) {
		e.First = entry.Time
	}
	if entry.Time.After(e.Last) {
		e.Last = entry.Time
	}
	who := []*seen{&e.all}
	if entry.Tenant != "" {
		if e.tenants[entry.Tenant] == nil {
			e.tenants[entry.Tenant] = &seen{values: map[string]*sketch{}}
		}
		who = append(who, e.tenants[entry.Tenant])
	}
	for _, s := range who {
		s.requests++
		measure(s, entry, req, v.Queries)
	}
}

func measure(s *seen, entry *querylog.Entry, req *querylimit.Request, queries []*querylimit.Query) {
	querylimit.Measure(req, queries, entry.Time, s.add)
	class := req.Endpoint.Class.String()
	s.add(querylimit.LimitDeadline+"."+class, entry.Took*float64(time.Second))
	s.add(querylimit.LimitResponseBytes+"."+class, float64(entry.Bytes))
	if req.Endpoint.Reads == querylimit.ReadsMetadata && req.Start.IsZero() {
		s.noStart++
	}
}
