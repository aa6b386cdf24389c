// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/prometheus/common/model"
)

// Duration is a limit on a time.
type Duration struct {
	// Name is one of the Limit constants.
	Name string
	// Of returns where an Options holds the bound.
	Of func(*Options) *DurationBound

	// seen returns the time; ok is false if the request has none.
	seen func(*asked) (d time.Duration, ok bool)
	// What is said of it: %s is the time in value, and the bound in cause.
	value, cause, do string
}

// Indexes of durations.
const (
	durationRange = iota
	durationOldest
)

var durations = [...]Duration{
	durationRange: {
		Name: LimitRange, Of: func(o *Options) *DurationBound { return &o.Range },
		seen:  func(a *asked) (time.Duration, bool) { t := a.times(); return t.span, t.ok },
		value: "a query that reads %s of samples", cause: "exceeds the %s allowed, with ranges, subqueries, offsets and lookback",
		do: "Ask for a shorter time range, or for a recording rule that holds the result.",
	},
	durationOldest: {
		Name: LimitOldest, Of: func(o *Options) *DurationBound { return &o.Oldest },
		seen:  func(a *asked) (time.Duration, bool) { t := a.times(); return a.age(t.first), t.ok },
		value: "a query that reads samples of %s ago", cause: "goes further back than the %s allowed",
		do: "Ask for a later start, a smaller offset or a shorter range.",
	},
}

// Durations returns every limit on a time that is one value with a mode.
func Durations() []Duration { return durations[:] }

// Validate returns an error if the limit cannot have this value.
func (d *Duration) Validate(value time.Duration) error {
	if value < 0 {
		return fmt.Errorf("%s is %s: use 0 for none, or a positive duration", d.Name, value)
	}
	return nil
}

func (d *Duration) name() string { return d.Name }

// exceeds reports whether a time is over the bound.
func exceeds(seen, bound time.Duration) bool { return bound > 0 && seen > bound }

func (d *Duration) check(p *Policy, a *asked) *Refusal {
	b := d.Of(&p.opts)
	if b.Mode == ModeOff {
		return nil
	}
	seen, ok := d.seen(a)
	if !ok || !exceeds(seen, b.Value) {
		return nil
	}
	say := func(words string, t time.Duration) string { return strings.Replace(words, "%s", text(t), 1) }
	return p.refuse(d.Name, b.Mode, d.do, say(d.value, seen), say(d.cause, b.Value), raise(d.Name))
}

func (d *Duration) explain(p *Policy, a *asked) (Finding, bool) {
	seen, ok := d.seen(a)
	b := d.Of(&p.opts)
	allowed := ""
	if b.Value > 0 {
		allowed = text(b.Value)
	}
	return Finding{d.Name, b.Mode, text(seen), allowed, exceeds(seen, b.Value)}, ok
}

func (d *Duration) measure(a *asked) (float64, bool) {
	seen, ok := d.seen(a)
	return float64(seen), ok
}

// between returns the time from one moment to another, both in milliseconds, as
// far as a Duration goes.
func between(from, to int64) time.Duration {
	ms := float64(to) - float64(from)
	if ms >= math.MaxInt64/float64(time.Millisecond) {
		return math.MaxInt64
	}
	return time.Duration(max(ms, 0)) * time.Millisecond
}

// text writes a duration as Prometheus does; of more than a day, minutes are
// enough.
func text(d time.Duration) string {
	switch {
	case d == math.MaxInt64:
		return "all time"
	case d > 24*time.Hour:
		d = d.Round(time.Minute)
	case d > time.Minute:
		d = d.Round(time.Second)
	}
	return model.Duration(d).String()
}
