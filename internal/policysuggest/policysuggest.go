// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package policysuggest draws limits from a query log: for each that the log can
// tell something about, the 99th percentile of what was seen with a margin.
//
// A limit that only counts or warns so far is drawn at the percentile; one that
// refuses requests at once, be it those of one tenant or rule only, is drawn above
// all that was seen, so that putting a suggestion into force refuses nothing that
// was answered before. A log that leaves out fast requests does not tell all that
// was seen, except of how long requests take. No suggestion is looser than the
// policy, unless that is asked for.
package policysuggest

import (
	"fmt"
	"io"
	"iter"
	"maps"
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
	req := policytest.Request(entry)
	if req == nil || entry.Time.IsZero() || !policytest.Answered(entry) {
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
	// Proof is what the policy as it was and Text do with the log.
	Proof *policytest.Comparison

	partial bool // the log leaves out fast requests
}

// draft writes limits into the text of a policy file. Those that are withdrawn, it
// leaves as they are, everybody's and those of tenants, and says why.
func draft(text []byte, e *Evidence, o Options, withdrawn map[string]string) (*Suggestion, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if err := e.enough(o); err != nil {
		return nil, err
	}
	before, err := config.Parse(text)
	if err != nil {
		return nil, err
	}
	w := writer{Suggestion: &Suggestion{Text: text, Enforced: text, partial: e.partial()}, opts: o, withdrawn: withdrawn}
	if w.tenants, w.rules, err = readOverrides(text); err != nil {
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

	opts           Options
	withdrawn      map[string]string // limits, and why
	tenants, rules overrides
}

func (w *writer) everybody(before *config.Config, e *Evidence) error {
	now := before.Rules.Tenant("").Options()
	var all []change
	for _, t := range targets(&now) {
		s := e.all.of(&t, t.defaultOf != nil && (t.defaultOf(&now) == 0 || w.tenants.haveNoDefault(&t) || w.rules.haveNoDefault(&t)))
		if s == nil {
			continue
		}
		_, mode := t.get(&now)
		line, value := w.draw(&t, &now, s, mode == querylimit.ModeEnforce || w.tenants.enforce(&t) || w.rules.enforce(&t))
		w.Lines = append(w.Lines, line)
		if line.Then != "" {
			all = append(all, change{target: t, mode: mode, value: value, line: len(w.Lines) - 1})
		}
	}
	return w.makeWhatFits(all)
}

// makeWhatFits leaves out what contradicts the rest of the policy, such as a bound
// below the default of a tenant.
func (w *writer) makeWhatFits(changes []change) error {
	was := *w.Suggestion
	if err := w.make(changes); err != nil {
		return err
	}
	_, err := config.Parse(w.Text)
	if err == nil {
		return nil
	}
	w.Text, w.Enforced = was.Text, was.Enforced
	if len(changes) == 1 {
		line := &w.Lines[changes[0].line]
		line.Then, line.Why = "", "the rest of the policy would contradict: "+err.Error()
		return nil
	}
	for i := range changes {
		if err := w.makeWhatFits(changes[i : i+1]); err != nil {
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
	var all []change
	for _, name := range names {
		was, is := before.Rules.Tenant(name).Options(), after.Rules.Tenant(name).Options()
		for _, t := range targets(&was) {
			if c, ok := w.ofTenant(name, &t, &was, &is, e.tenants[name]); ok {
				all = append(all, c)
			}
		}
	}
	return w.make(all)
}

// ofTenant says which value of its own a tenant needs, if any. Was and is are its
// limits before and after everybody's were drawn.
func (w *writer) ofTenant(name string, t *target, was, is *querylimit.Options, values *seen) (change, bool) {
	s := values.of(t, t.defaultOf != nil && (t.defaultOf(was) == 0 || w.rules.haveNoDefault(t)))
	if s == nil || s.count < w.opts.MinRequests {
		return change{}, false
	}
	_, before := t.get(was)
	line, value := w.draw(t, was, s, before == querylimit.ModeEnforce || w.rules.enforce(t))
	line.Tenant = name
	own, mode := t.get(is)
	if line.Then == "" {
		// As it was for the tenant: everybody's may be tighter now.
		if value, _ = t.get(was); before == querylimit.ModeOff && mode != querylimit.ModeOff {
			line.Why += "; leave it out before you enforce " + t.path[0]
			w.Lines = append(w.Lines, line)
			return change{}, false
		}
	}
	if value == 0 || !differs(t, own, value) {
		return change{}, false
	}
	c := change{owner: []string{"tenants", name}, target: *t, mode: mode, value: value, line: len(w.Lines)}
	if mode == querylimit.ModeOff {
		mode = w.opts.Mode
	}
	line.Then, line.Why = t.with(value, mode), ""
	w.Lines = append(w.Lines, line)
	return c, true
}

// differs reports whether a tenant needs a value in place of the one it has.
func differs(t *target, has, needs float64) bool {
	if t.lower {
		has, needs = needs, has
	}
	return has > 0 && (has < needs || has >= 2*needs)
}

// draw says which value a limit should have; line.Then is empty if it is to stay.
// Refuses is set if it refuses requests at once, or some of them.
func (w *writer) draw(t *target, now *querylimit.Options, s *sketch, refuses bool) (line Line, value float64) {
	present, mode := t.get(now)
	p99, most := s.high(percentile), s.most()
	if t.lower {
		p99, most = s.low(percentile), s.min
	}
	line = Line{Limit: t.name, Requests: s.count, P99: t.text(p99), Most: t.text(most), Now: t.with(present, mode)}
	base := p99
	if refuses {
		base = most
	}
	switch {
	case w.withdrawn[t.path[0]] != "":
		line.Why = w.withdrawn[t.path[0]]
		return line, 0
	case s.count < w.opts.MinRequests:
		line.Why = "too few"
		return line, 0
	case math.IsInf(base, 1):
		line.Why = "too many without any bound"
		return line, 0
	case base > t.most && !t.lower:
		line.Why = "more than can be bounded"
		return line, 0
	}
	value = t.bound(base, w.opts.Margin)
	tighter, fits := value < present, base <= present
	if t.lower {
		tighter, fits = value > present, base >= present
	}
	tighter = tighter || mode == querylimit.ModeOff || present == 0
	switch {
	case value <= 0: // Of a lower bound that would be below its unit.
		line.Why = "no bound would be left"
		return line, 0
	case !tighter && !(w.opts.Looser && value != present):
		line.Why = "tight enough"
		if !fits {
			line.Why = "already exceeded"
		}
	case tighter && refuses && w.partial && t.mode != nil: // A deadline follows from the slow ones.
		line.Why = "the log leaves out fast requests"
	default:
		if mode == querylimit.ModeOff {
			mode = w.opts.Mode
		}
		line.Then = t.with(value, mode)
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

// change is a value that is to be written. Mode is that which is in force.
type change struct {
	owner  []string
	target target
	mode   querylimit.Mode
	value  float64
	line   int // that says so
}

// edits returns what to write: the mode too if the limit has none that looks, or
// if it is to be enforced.
func (w *writer) edits(c *change, enforce bool) []yamledit.Edit {
	t := &c.target
	edit := func(path []string, value string) yamledit.Edit {
		return yamledit.Edit{Path: slices.Concat(c.owner, []string{"limits"}, path), Block: len(c.owner) + 1, Value: value}
	}
	edits := []yamledit.Edit{edit(t.path, t.text(c.value))}
	switch {
	case t.mode == nil:
	case enforce:
		edits = slices.Insert(edits, 0, edit(t.mode, querylimit.ModeEnforce.String()))
	case c.mode == querylimit.ModeOff:
		edits = slices.Insert(edits, 0, edit(t.mode, w.opts.Mode.String()))
	}
	return edits
}

// make writes changes into both texts.
func (w *writer) make(changes []change) error {
	var suggested, enforced []yamledit.Edit
	for i := range changes {
		suggested = append(suggested, w.edits(&changes[i], false)...)
		enforced = append(enforced, w.edits(&changes[i], true)...)
	}
	text, err := yamledit.Apply(w.Text, suggested)
	if err != nil {
		return err
	}
	most, err := yamledit.Apply(w.Enforced, enforced)
	if err != nil {
		return err
	}
	w.Text, w.Enforced = text, most
	return nil
}
