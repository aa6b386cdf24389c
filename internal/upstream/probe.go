// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/promguard/promguard/internal/querylimit"
)

// ProbeMode says what to do about a server that is not what the guard takes it
// for.
type ProbeMode string

// The modes. ProbeRequire ends the guard, ProbeWarn tells, and ProbeOff does not
// ask.
const (
	ProbeOff     ProbeMode = "off"
	ProbeWarn    ProbeMode = "warn"
	ProbeRequire ProbeMode = "require"
)

// ParseProbeMode returns the mode of that name.
func ParseProbeMode(s string) (ProbeMode, error) {
	modes := []ProbeMode{ProbeRequire, ProbeWarn, ProbeOff}
	if !slices.Contains(modes, ProbeMode(s)) {
		return "", fmt.Errorf("unknown mode %q: use one of %s, %s, %s", s, modes[0], modes[1], modes[2])
	}
	return ProbeMode(s), nil
}

// Assumptions are what the limits need to know of the servers.
type Assumptions struct {
	// Lookback is how old a sample may be to count, and SubqueryStep the step of
	// a subquery without one, of a request that does not say. Of several servers
	// they are those that make a query read most.
	Lookback, SubqueryStep time.Duration
}

// Assumed returns what is known, and Prometheus's defaults until then.
func (p *Pool) Assumed() Assumptions { return *p.assumed.Load() }

func (p *Pool) assume() {
	var a Assumptions
	for _, s := range p.servers {
		if s.facts == nil {
			continue
		}
		a.Lookback = max(a.Lookback, s.facts.Lookback)
		if step := s.facts.SubqueryStep; step > 0 && (a.SubqueryStep == 0 || step < a.SubqueryStep) {
			a.SubqueryStep = step
		}
	}
	if a.Lookback == 0 {
		a.Lookback = querylimit.DefaultLookback
	}
	if a.SubqueryStep == 0 {
		a.SubqueryStep = querylimit.DefaultSubqueryStep
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

// learn asks a server what it is, or returns nil if it does not answer.
func (p *Pool) learn(ctx context.Context, s *Server) *Facts {
	ctx, cancel := context.WithTimeout(ctx, 2*lookTimeout)
	defer cancel()
	f, err := askFacts(ctx, func(ctx context.Context, path, query string) (answer, error) { return p.get(ctx, s, path, query) })
	if err != nil {
		return nil
	}
	return f
}

// use notes what a server is. The error is that of one that must not be served,
// which only the first facts are about: what changes behind a guard that serves is
// told, and is no reason to serve nobody.
func (p *Pool) use(s *Server, f *Facts, now time.Time) error {
	first := s.facts == nil
	s.facts, s.factsAt = f, now
	p.assume()
	mismatches := f.Mismatches(p.kind)
	p.metrics.learned(s, f, mismatches)
	var fatal []Mismatch
	for _, m := range mismatches {
		if m.Fatal {
			fatal = append(fatal, m)
		}
	}
	if len(fatal) > 0 && first && p.mode == ProbeRequire {
		return &MismatchError{s.name, fatal}
	}
	if !slices.Equal(mismatches, s.told) {
		s.told = mismatches
		for _, m := range mismatches {
			p.logger.Warn("Upstream server is not what the guard takes it for", "server", s.name, "mismatch", m.Name, "text", m.Text)
		}
	}
	return nil
}

// Inspect asks the server at a URL what it is.
func Inspect(ctx context.Context, u *url.URL, transport http.RoundTripper) (*Facts, error) {
	p, s := &Pool{transport: transport}, newServer(u)
	return askFacts(ctx, func(ctx context.Context, path, query string) (answer, error) { return p.get(ctx, s, path, query) })
}
