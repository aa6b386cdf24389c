// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"fmt"
	"math"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/timestamp"
)

// Duration is a limit on a time.
type Duration struct {
	// Name is one of the Limit constants.
	Name string
	// Key is the key of the value in the configuration: max or min.
	Key string
	// Of returns where an Options holds the bound.
	Of func(*Options) *DurationBound
}

// Indexes of durations.
const (
	durationRange = iota
	durationOldest
	durationMinStep
)

var durations = [...]Duration{
	durationRange:   {LimitRange, "max", func(o *Options) *DurationBound { return &o.Range }},
	durationOldest:  {LimitOldest, "max", func(o *Options) *DurationBound { return &o.Oldest }},
	durationMinStep: {LimitMinStep, "min", func(o *Options) *DurationBound { return &o.MinStep }},
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

// Validate returns an error that says what is wrong with r.
func (r *MetadataRange) Validate() error {
	switch {
	case r.Default < 0 || r.Max < 0:
		return fmt.Errorf("%s is negative: use 0 for none, or a positive duration", LimitMetadataRange)
	case r.Max > 0 && r.Default > r.Max:
		return fmt.Errorf("%s: default %s is more than max %s", LimitMetadataRange, model.Duration(r.Default), model.Duration(r.Max))
	}
	return nil
}

// CheckEvaluation looks at when a query is evaluated.
func (p *Policy) CheckEvaluation(q *Query, e Evaluation, now time.Time) Refusals {
	var rs Refusals
	run := q.in(e)
	if e.Step > 0 {
		rs = p.checkCount(rs, &counts[countPoints], e.steps())
		rs = p.checkMinStep(rs, e.Step)
		rs = p.checkStepRounding(rs, q, e)
	}
	if b := p.opts.SubqueryPoints; b.Mode != ModeOff && len(q.subqueries) > 0 {
		rs = p.checkCount(rs, &counts[countSubqueryPoints], run.subqueryPoints())
	}
	if p.opts.Range.Mode == ModeOff && p.opts.Oldest.Mode == ModeOff {
		return rs
	}
	if first, last, ok := run.times(); ok {
		rs = p.checkReach(rs, first, last, now)
	}
	return rs
}

// CheckWindow looks at the time range of a request that reads it as it stands.
func (p *Policy) CheckWindow(start, end, now time.Time) Refusals {
	return p.checkReach(nil, timestamp.FromTime(start), timestamp.FromTime(end), now)
}

func (p *Policy) checkMinStep(rs Refusals, step time.Duration) Refusals {
	b := p.opts.MinStep
	if b.Mode == ModeOff || step >= b.Value {
		return rs
	}
	return append(rs, p.refuse(LimitMinStep, b.Mode, "Set the minimum step of the panel or of the data source to "+text(b.Value)+".",
		"a range query with a step of "+text(step), "is below the "+text(b.Value)+" allowed", "lower limits.min_step.min"))
}

func (p *Policy) checkReach(rs Refusals, first, last int64, now time.Time) Refusals {
	return p.checkSpan(rs, between(first, last), first, now)
}

func (p *Policy) checkSpan(rs Refusals, span time.Duration, first int64, now time.Time) Refusals {
	if b := p.opts.Range; b.Mode != ModeOff && b.Value > 0 {
		if span > b.Value {
			rs = append(rs, p.refuse(LimitRange, b.Mode, "Ask for a shorter time range, or for a recording rule that holds the result.",
				"a query that reads "+text(span)+" of samples", "exceeds the "+text(b.Value)+" allowed, with ranges, subqueries, offsets and lookback", raise(LimitRange)))
		}
	}
	if b := p.opts.Oldest; b.Mode != ModeOff && b.Value > 0 {
		if age := between(first, timestamp.FromTime(now)); age > b.Value {
			rs = append(rs, p.refuse(LimitOldest, b.Mode, "Ask for a later start, a smaller offset or a shorter range.",
				"a query that reads samples of "+text(age)+" ago", "goes further back than the "+text(b.Value)+" allowed", raise(LimitOldest)))
		}
	}
	return rs
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

// CheckMetadataRange looks at the time range of a metadata request. A zero start
// or end is one that the request leaves out. If set is true, the server is to
// read from the start that is returned.
func (p *Policy) CheckMetadataRange(start, end, now time.Time) (from time.Time, set bool, rs Refusals) {
	b := p.opts.MetadataRange
	if b.Mode == ModeOff {
		return start, false, nil
	}
	if end.IsZero() || end.After(now) {
		end = now
	}
	if start.IsZero() {
		length := b.Default
		if b.Max > 0 && (length == 0 || length > b.Max) {
			length = b.Max
		}
		switch {
		case length == 0:
			return start, false, nil
		case b.Mode == ModeEnforce:
			return end.Add(-length), true, nil
		}
		return start, false, Refusals{p.refuse(LimitMetadataRange, b.Mode, "Give the request a start.",
			"a request without start", "reads all time, and only the last "+text(length)+" once the limit is enforced", "")}
	}
	if span := between(timestamp.FromTime(start), timestamp.FromTime(end)); b.Max > 0 && span > b.Max {
		rs = Refusals{p.refuse(LimitMetadataRange, b.Mode, "Ask for a later start.",
			"a request that reads "+text(span), "exceeds the "+text(b.Max)+" allowed", raise(LimitMetadataRange))}
	}
	return start, false, rs
}
