// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package policysuggest draws limits from a query log: for each that the log can
// tell something about, the 99th percentile of what was seen with a margin.
//
// A limit that only counts or warns so far is drawn at the percentile; one that
// refuses requests at once is drawn above all that was seen, so that putting a
// suggestion into force refuses nothing that was answered before. No suggestion
// is looser than the policy, unless that is asked for.
package policysuggest

import (
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/prometheus/common/model"

	"github.com/promguard/promguard/internal/config"
	"github.com/promguard/promguard/internal/policytest"
	"github.com/promguard/promguard/internal/querylimit"
	"github.com/promguard/promguard/internal/querylog"
	"github.com/promguard/promguard/internal/yamledit"
)

// percentile is that at which limits are drawn.
const percentile = 0.99

// Options says how to draw limits.
type Options struct {
	// Margin is what the seen is multiplied by; at least 1.
	Margin float64
	// MinRequests is on how many requests a limit, and MinPeriod on what time the
	// whole must rest.
	MinRequests int
	MinPeriod   time.Duration
	// Mode is that of limits that were off: ModeObserve or ModeWarn.
	Mode querylimit.Mode
	// Looser allows limits that let more pass than the policy does.
	Looser bool
}

// Validate returns an error that says what is wrong with o.
func (o *Options) Validate() error {
	switch {
	case !(o.Margin >= 1) || math.IsInf(o.Margin, 1):
		return fmt.Errorf("the margin is %v: use a number of at least 1, such as 1.5", o.Margin)
	case o.MinRequests < 100:
		return fmt.Errorf("the least number of requests is %d: use at least 100, below which there is no 99th percentile", o.MinRequests)
	case o.Mode != querylimit.ModeObserve && o.Mode != querylimit.ModeWarn:
		return fmt.Errorf("mode %s: use observe or warn; go on to enforce when you have looked at promguard_limit_exceeded_total", o.Mode)
	}
	return nil
}

// Evidence is what a log says about the requests that were answered.
type Evidence struct {
	Log querylog.Stats
	// Requests were answered; LeftOut were not, or cannot be judged: without the
	// whole text of their queries, malformed, or of an endpoint that is not open.
	Requests, LeftOut int
	First, Last       time.Time

	all     seen
	tenants map[string]*seen
}

// seen has the values of requests by the name of a target.
type seen struct {
	requests int
	values   map[string]*sketch
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

// Gather reads a log.
func Gather(log io.Reader) (*Evidence, error) {
	open, err := wideOpen()
	if err != nil {
		return nil, err
	}
	e := &Evidence{tenants: map[string]*seen{}}
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
	req := policytest.Request(entry)
	if req == nil || entry.Code/100 != 2 || policytest.CutOff(entry) {
		e.LeftOut++
		return
	}
	v, err := open.Judge(analyzer, req, entry.Time)
	if err != nil || v.Refusals.Err() != nil {
		e.LeftOut++
		return
	}
	e.Requests++
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
	if set := req.Endpoint.Results; set != nil && req.Limit >= 0 {
		asked := float64(req.Limit)
		if req.Limit == 0 {
			asked = math.Inf(1)
		}
		s.add(querylimit.LimitResults+"."+set.String(), asked)
	}
}

// enough returns an error if there is too little to draw limits from.
func (e *Evidence) enough(o Options) error {
	if period := e.Last.Sub(e.First); e.Requests < o.MinRequests || period < o.MinPeriod {
		return fmt.Errorf("too little evidence: %d requests that were answered, over %s; limits are drawn from at least %d over %s. Let the log grow (with query_log.slower_than: 0s it holds all requests), or lower --min-requests or --min-period",
			e.Requests, durationText(period), o.MinRequests, model.Duration(o.MinPeriod))
	}
	return nil
}

// Line is what is said about one limit.
type Line struct {
	// Tenant is empty for everybody.
	Tenant, Limit string
	// Requests had any of it. P99 and Most are of those; of a bound from below, the
	// first percentile and the least.
	Requests  int
	P99, Most string
	// Now and Then are the value with its mode; Then is empty if it stays, and Why
	// says for what reason.
	Now, Then, Why string
}

// Suggestion is a policy with the limits in it.
type Suggestion struct {
	// Text is the policy file; Enforced is the same with every limit that was
	// suggested in mode enforce, to see where it leads.
	Text, Enforced []byte
	Lines          []Line
}

// Suggest writes limits into the text of a policy file.
func Suggest(text []byte, e *Evidence, o Options) (*Suggestion, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if err := e.enough(o); err != nil {
		return nil, err
	}
	w := writer{Suggestion: &Suggestion{Text: text, Enforced: text}, opts: o}
	before, err := config.Parse(text)
	if err != nil {
		return nil, err
	}
	if err := w.everybody(before, e); err != nil {
		return nil, err
	}
	after, err := config.Parse(w.Text)
	if err != nil {
		return nil, fmt.Errorf("the suggestion is no policy: %w", err)
	}
	if err := w.eachTenant(before, after, e); err != nil {
		return nil, err
	}
	for _, text := range [][]byte{w.Text, w.Enforced} {
		if _, err := config.Parse(text); err != nil {
			return nil, fmt.Errorf("the suggestion is no policy: %w", err)
		}
	}
	return w.Suggestion, nil
}

type writer struct {
	*Suggestion

	opts Options
}

func (w *writer) everybody(before *config.Config, e *Evidence) error {
	now := before.Rules.Tenant("").Options()
	for _, t := range targets(&now) {
		s := e.all.values[t.name]
		if s == nil {
			continue
		}
		line, value := w.draw(&t, &now, s)
		w.Lines = append(w.Lines, line)
		if line.Then == "" {
			continue
		}
		if err := w.set(nil, &t, &now, value); err != nil {
			return err
		}
	}
	return nil
}

// eachTenant gives a tenant limits of its own where everybody's are tighter than
// what it does, or at least twice as loose.
func (w *writer) eachTenant(before, after *config.Config, e *Evidence) error {
	names := make([]string, 0, len(e.tenants))
	for name, s := range e.tenants {
		if s.requests >= w.opts.MinRequests {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		was, is := before.Rules.Tenant(name).Options(), after.Rules.Tenant(name).Options()
		for _, t := range targets(&was) {
			s := e.tenants[name].values[t.name]
			if s == nil || s.count < w.opts.MinRequests {
				continue
			}
			line, value := w.draw(&t, &was, s)
			line.Tenant = name
			own, mode := t.get(&is)
			if line.Then == "" {
				var before querylimit.Mode
				// As it was for the tenant: everybody's may be tighter now.
				if value, before = t.get(&was); before == querylimit.ModeOff && mode != querylimit.ModeOff {
					line.Why += "; leave it out before you enforce " + t.path[0]
					w.Lines = append(w.Lines, line)
					continue
				}
			}
			if value == 0 || !differs(&t, own, value) {
				continue
			}
			if mode == querylimit.ModeOff {
				mode = w.opts.Mode
			}
			line.Then, line.Why = t.with(value, mode), ""
			w.Lines = append(w.Lines, line)
			if err := w.set([]string{"tenants", name}, &t, &is, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// differs reports whether a tenant needs a value in place of the one it has.
func differs(t *target, has, needs float64) bool {
	if t.lower {
		has, needs = needs, has
	}
	return has > 0 && (has < needs || has >= 2*needs)
}

// draw says which value a limit should have; line.Then is empty if it is to stay.
func (w *writer) draw(t *target, now *querylimit.Options, s *sketch) (line Line, value float64) {
	present, mode := t.get(now)
	p99, most := s.high(percentile), s.most()
	if t.lower {
		p99, most = s.low(percentile), s.min
	}
	line = Line{Limit: t.name, Requests: s.count, P99: t.text(p99), Most: t.text(most), Now: t.with(present, mode)}
	base := p99
	if mode == querylimit.ModeEnforce {
		base = most // It refuses at once.
	}
	inForce := mode != querylimit.ModeOff && present > 0
	switch {
	case s.count < w.opts.MinRequests:
		line.Why = "too few"
		return line, 0
	case math.IsInf(base, 1):
		line.Why = "too many without any bound"
		return line, 0
	}
	value = t.bound(base, w.opts.Margin)
	tighter, fits := value < present, base <= present
	if t.lower {
		tighter, fits = value > present, base >= present
	}
	switch {
	case value <= 0: // Of a lower bound that would be below its unit.
		line.Why = "no bound would be left"
		return line, 0
	case !inForce || tighter || w.opts.Looser && value != present:
		if mode == querylimit.ModeOff {
			mode = w.opts.Mode
		}
		line.Then = t.with(value, mode)
	case !fits:
		line.Why = "already exceeded"
	default:
		line.Why = "tight enough"
	}
	return line, value
}

// bound is what was seen with a margin, not beyond what costs nothing anyway.
func (t *target) bound(base, margin float64) float64 {
	if t.lower {
		return t.round(min(base/margin, t.floor))
	}
	return min(max(t.round(max(base*margin, t.floor)), t.least), t.most)
}

// with returns a value as text with its mode.
func (t *target) with(value float64, mode querylimit.Mode) string {
	text := t.text(value)
	if value == 0 && t.least == 0 && (t.duration || t.most == math.MaxInt32) {
		text = "none"
	}
	if t.mode == nil {
		return text
	}
	return mode.String() + " " + text
}

// set writes a value, and its mode if it has none that looks.
func (w *writer) set(owner []string, t *target, now *querylimit.Options, value float64) error {
	block := len(owner) + 1
	at := func(path []string) []string { return slices.Concat(owner, []string{"limits"}, path) }
	put := func(text []byte, path []string, value string) ([]byte, error) {
		return yamledit.Set(text, at(path), block, value)
	}
	var err error
	if w.Text, err = put(w.Text, t.path, t.text(value)); err != nil {
		return err
	}
	if w.Enforced, err = put(w.Enforced, t.path, t.text(value)); err != nil || t.mode == nil {
		return err
	}
	if _, mode := t.get(now); mode == querylimit.ModeOff {
		if w.Text, err = put(w.Text, t.mode, w.opts.Mode.String()); err != nil {
			return err
		}
	}
	w.Enforced, err = put(w.Enforced, t.mode, querylimit.ModeEnforce.String())
	return err
}
