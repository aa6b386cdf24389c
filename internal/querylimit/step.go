// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// StepRounding says which steps of range queries are worth evaluating. It names a
// better one, and never sets it: the answer would have other times than those
// that were asked for.
type StepRounding struct {
	Mode Mode
	// Interval is the scrape interval; 0 means that it is not known.
	Interval time.Duration
	// Points is how many points a panel can show; 0 means any number.
	Points int
}

// Validate returns an error that says what is wrong with s.
func (s *StepRounding) Validate() error {
	if s.Interval < 0 || s.Points < 0 {
		return fmt.Errorf("%s: interval is %s and points %d: use 0 for none, or a positive value", LimitStepRounding, s.Interval, s.Points)
	}
	return nil
}

// alignedBelow is up to how many scrape intervals it matters that a step is a
// multiple of them: of fewer, some steps have a sample more than others.
const alignedBelow = 10

// stepAdvice is what a range query should ask for instead.
type stepAdvice struct {
	reasons []string
	step    time.Duration
	// ranges is set if the ranges of selectors should be at least step.
	ranges bool
}

// advise returns advice without reasons if there is nothing to say. Window is the
// shortest range of a selector, or 0.
func (s *StepRounding) advise(e Evaluation, window time.Duration) stepAdvice {
	a := stepAdvice{step: e.Step}
	because := func(reason string) { a.reasons = append(a.reasons, reason) }
	length := e.End.Sub(e.Start)
	switch {
	case s.Interval == 0:
	case e.Step < s.Interval:
		because("is below the scrape interval of " + text(s.Interval) + ", so that steps repeat samples")
		a.step = s.Interval
	case e.Step < alignedBelow*s.Interval && e.Step%s.Interval != 0:
		because("is no multiple of the scrape interval of " + text(s.Interval) + ", so that steps have more or fewer samples by turns")
	}
	if s.Points > 0 && e.steps() > s.Points {
		because("makes " + strconv.Itoa(e.steps()) + " points, of which a panel shows about " + strconv.Itoa(s.Points))
		a.step = max(a.step, length/time.Duration(s.Points)+1)
	}
	if len(a.reasons) > 0 {
		a.step = roundUp(a.step, max(s.Interval, time.Second))
	}
	if window > 0 && e.Step > window {
		because("is longer than the range [" + text(window) + "] of the query, so that samples between two steps are not read")
		a.ranges = true
	}
	a.ranges = a.ranges || len(a.reasons) > 0 && window > 0 && a.step > window
	return a
}

func roundUp(d, unit time.Duration) time.Duration {
	if rest := d % unit; rest > 0 {
		return add(d, unit-rest)
	}
	return d
}

// stepRounding is the limit of that name.
type stepRounding struct{}

func (stepRounding) name() string { return LimitStepRounding }

func (stepRounding) advise(p *Policy, a *asked) (advice stepAdvice, ok bool) {
	run := a.run()
	if run == nil || run.at.Step <= 0 {
		return advice, false
	}
	return p.opts.StepRounding.advise(run.at, run.window), true
}

func (l stepRounding) check(p *Policy, asked *asked) *Refusal {
	mode := p.opts.StepRounding.Mode
	if mode == ModeOff {
		return nil
	}
	a, ok := l.advise(p, asked)
	if !ok || len(a.reasons) == 0 {
		return nil
	}
	step := asked.at.Step
	var do []string
	if a.step != step {
		do = append(do, "a step of "+text(a.step)+" (the minimum interval of the panel or data source)")
	}
	if a.ranges {
		do = append(do, "ranges of at least "+text(a.step)+" ($__rate_interval)")
	}
	return p.refuse(LimitStepRounding, mode, "Use "+strings.Join(do, " and ")+".",
		"a range query with a step of "+text(step), strings.Join(a.reasons, ", and "), "change limits.step_rounding")
}

func (l stepRounding) explain(p *Policy, asked *asked) (Finding, bool) {
	a, ok := l.advise(p, asked)
	return Finding{LimitStepRounding, p.opts.StepRounding.Mode, text(asked.at.Step), text(a.step), len(a.reasons) > 0}, ok
}

// measure has no number: the step is that of min_step.
func (stepRounding) measure(*asked) (float64, bool) { return 0, false }
