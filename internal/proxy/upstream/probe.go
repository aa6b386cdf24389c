// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/promguard/promguard/internal/querylimit"
)

// factsEvery is how often to ask again what a server is. After questions without an
// answer it is asked sooner, at first at the next look.
const factsEvery = time.Minute

// ProbeMode says what to do about a server that is not what promguard takes it
// for.
type ProbeMode string

// The modes. ProbeRequire ends promguard, ProbeWarn tells, and ProbeOff does not
// ask.
const (
	ProbeOff     ProbeMode = "off"
	ProbeWarn    ProbeMode = "warn"
	ProbeRequire ProbeMode = "require"
)

// ProbeModes returns the names of the modes.
func ProbeModes() []string {
	return []string{string(ProbeRequire), string(ProbeWarn), string(ProbeOff)}
}

// ParseProbeMode returns the mode of that name.
func ParseProbeMode(s string) (ProbeMode, error) {
	if !slices.Contains(ProbeModes(), s) {
		return "", fmt.Errorf("unknown mode %q: use one of %s", s, strings.Join(ProbeModes(), ", "))
	}
	return ProbeMode(s), nil
}

// Assumptions are what the limits need to know of the servers.
type Assumptions struct {
	// Lookback is how old a sample may be to count, and SubqueryStep the step of
	// a subquery without one, of a request that does not say. Of several servers
	// they are those that make a query read most. What a server does not tell is as
	// in Prometheus.
	Lookback, SubqueryStep time.Duration
	// StepOfRequest is set if a subquery without a step has that of the request,
	// where that has one.
	StepOfRequest bool
	// UnknownPromQL names what one of the servers has in its PromQL, and the parser
	// of promguard does not know.
	UnknownPromQL []string
}

// Assumed returns what is known, and Prometheus's defaults until then.
func (p *Pool) Assumed() Assumptions { return *p.assumed.Load() }

func (p *Pool) assume() {
	a := Assumptions{StepOfRequest: p.kind == KindVictoriaMetrics}
	for i, s := range p.servers {
		var f Facts
		if s.facts != nil {
			f = *s.facts
		}
		step := cmp.Or(f.SubqueryStep, querylimit.DefaultSubqueryStep)
		if i == 0 || step < a.SubqueryStep {
			a.SubqueryStep = step
		}
		a.Lookback = max(a.Lookback, cmp.Or(f.Lookback, querylimit.DefaultLookback))
		a.UnknownPromQL = append(a.UnknownPromQL, f.unknownPromQL()...)
	}
	p.assumed.Store(&a)
	p.metrics.lookback.Set(a.Lookback.Seconds())
	p.metrics.subqueryStep.Set(a.SubqueryStep.Seconds())
}

// MismatchError is that of a server that must not be served.
type MismatchError struct {
	Server     string
	Mismatches []Mismatch
}

func (e *MismatchError) Error() string {
	texts := make([]string, len(e.Mismatches))
	for i, m := range e.Mismatches {
		texts[i] = m.Text
	}
	return e.Server + ": " + strings.Join(texts, "; ")
}

// study asks a server that is ready what it is, if that is due. The error is that of
// one that must not be served.
func (p *Pool) study(ctx context.Context, s *Server) error {
	p.mu.Lock()
	lives, before := s.lives, Facts{}
	due := s.state == Ready && p.mode != ProbeOff && !time.Now().Before(s.factsDue)
	if s.facts != nil {
		before = *s.facts
	}
	p.mu.Unlock()
	if !due {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	f, err := askFacts(ctx, p.asks(s), before)

	p.mu.Lock()
	defer p.mu.Unlock()
	if s.lives != lives {
		return nil // It ceased to be ready, and may be another since.
	}
	now := time.Now()
	if s.factsWait = min(max(2*s.factsWait, lookEvery), factsEvery); err == nil {
		s.factsWait = factsEvery
	}
	s.factsDue = now.Add(s.factsWait)
	err = p.use(s, f)
	p.choose(now)
	return err
}

// use notes what a server is. The error is that of one that must not be served,
// which only the first answer to a question is about: what changes behind a proxy
// that serves is told, and is no reason to serve nobody.
func (p *Pool) use(s *Server, f *Facts) error {
	var before question
	if s.facts != nil {
		before = s.facts.answered
	}
	s.facts = f
	if s.reading == nil || s.start.IsZero() { // A reading tells sooner.
		s.start = f.Started
	}
	p.assume()
	mismatches := f.Mismatches(p.kind)
	p.metrics.learned(s, f, mismatches)
	var fatal []Mismatch
	for _, m := range mismatches {
		if m.Fatal && before&m.shownBy() == 0 {
			fatal = append(fatal, m)
		}
	}
	if len(fatal) > 0 && p.mode == ProbeRequire {
		return &MismatchError{s.name, fatal}
	}
	if !slices.Equal(mismatches, s.told) {
		s.told = mismatches
		for _, m := range mismatches {
			p.logger.Warn("Upstream server is not what promguard takes it for", "server", s.name, "mismatch", m.Name, "text", m.Text)
		}
	}
	return nil
}

func (p *Pool) asks(s *Server) asker {
	return func(ctx context.Context, path, query string) (answer, error) { return p.get(ctx, s, path, query) }
}
