// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"errors"
	"time"

	"github.com/promguard/promguard/internal/promqltext"
)

// Request is all that the rules look at.
type Request struct {
	Endpoint *Endpoint
	// Who has Endpoint and Class filled in by Judge.
	Who Subject
	// Texts are the PromQL of the request: a query, or selectors.
	Texts []string
	// Label is that whose values are asked for, if they are.
	Label string
	// UnknownPromQL names functions, aggregations and keywords that the server knows,
	// and the parser does not.
	UnknownPromQL []string
	// Start and End are zero where the request leaves them out. For an instant
	// both are its time, and Given says that it has one.
	Start, End time.Time
	Given      bool
	// Windows is what each query of a remote read reads.
	Windows []Window
	// Step and Lookback are 0 where the request has none. SubqueryStep is what the
	// server takes for a subquery without one; 0 means DefaultSubqueryStep.
	Step, Lookback, SubqueryStep time.Duration
	// Limit is the parameter of that name: 0 for all, negative for none given.
	Limit int
	// Head is what the server says of its series; nil if it does not.
	Head *Head
}

// Verdict is what the rules say about a request.
type Verdict struct {
	Policy   *Policy // the limits of this request
	Refusals Refusals
	Queries  []*Query
	Rules    []string // that match
	// Cost is what the request costs the server; zero if nobody knows.
	Cost Estimate
	// SetStart, if not nil, is what the server is to be given in place of the
	// client's.
	SetStart *time.Time
}

// ErrEmptySelector is Prometheus's answer to a match[] that matches everything.
var ErrEmptySelector = errors.New("match[] must contain at least one non-empty matcher")

// Judge parses the PromQL of a request once and asks the rules about it. The
// refusals are those of limits in every mode; the error is that of malformed
// PromQL, in Prometheus's words.
//
// Rules are asked twice where one of them wants to know the fingerprint of the
// query: before it is parsed, because they hold the limits of what is parsed at
// all, and after. A text that no rule could let pass does not get to them: their
// regular expressions take time for every byte.
func (s *Ruleset) Judge(a *Analyzer, r *Request, now time.Time) (Verdict, error) {
	r.Who.Endpoint, r.Who.Class = r.Endpoint.Name, r.Endpoint.Class
	if v, ok := s.tooLong(r); ok {
		return v, nil
	}
	d := s.Decide(&r.Who, r.Texts, nil)
	v := Verdict{Policy: d.Policy, Refusals: d.Refusals, Rules: d.Rules}
	if d.Refusals.Err() != nil && !s.NeedsFingerprints() {
		return v, nil
	}
	var rs Refusals
	if len(r.Texts) > 0 {
		var err error
		if v.Queries, rs, err = r.parse(a, d.Policy); err != nil || v.Queries == nil {
			v.Refusals = append(v.Refusals, rs...)
			if name := r.unknown(); err != nil && name != "" {
				err = nil
				v.Refusals = append(v.Refusals, v.Policy.refuseUnknown(name)...)
			}
			return v, err
		}
		if s.NeedsFingerprints() {
			d = s.Decide(&r.Who, r.Texts, Fingerprints(v.Queries))
			v.Policy, v.Refusals, v.Rules = d.Policy, d.Refusals, d.Rules
		}
	}
	asked := r.asked(v.Queries, now)
	v.Refusals = append(append(v.Refusals, rs...), v.Policy.check(&asked)...)
	if r.Head != nil {
		v.Cost, _ = asked.estimate()
	}
	if start, ok := (metadataRange{}).start(v.Policy, &asked); ok {
		v.SetStart = &start
	}
	return v, nil
}

// tooLong refuses texts that are longer than any rule allows.
func (s *Ruleset) tooLong(r *Request) (v Verdict, ok bool) {
	longest := 0
	for _, text := range r.Texts {
		longest = max(longest, len(text))
	}
	p, known := s.tenants[r.Who.Tenant]
	if !known {
		p = s.global
	}
	if longest <= min(p.opts.QueryBytes.Max, promqltext.MaxBytes) || s.setsQueryBytes && longest <= promqltext.MaxBytes {
		return v, false
	}
	v.Policy = s.Tenant(r.Who.Tenant)
	v.Refusals = v.Policy.checkCount(nil, &counts[countQueryBytes], longest)
	return v, v.Refusals.Err() != nil
}

// parse returns no queries if the limits of text refuse them.
func (r *Request) parse(a *Analyzer, p *Policy) ([]*Query, Refusals, error) {
	switch r.Endpoint.Takes {
	case TakesExpr, TakesBareExpr:
		q, rs, err := a.Expr(p, r.Texts[0])
		if err != nil || q == nil {
			return nil, rs, err
		}
		return []*Query{q}, rs, nil
	}
	queries, rs, err := a.Selectors(p, r.Texts)
	if err != nil {
		return nil, rs, err
	}
	for _, q := range queries {
		if r.Endpoint.Takes == TakesSelectors && q.OnlyEmpty() {
			return nil, rs, ErrEmptySelector
		}
	}
	return queries, rs, nil
}

// Evaluation returns when the request is evaluated.
func (r *Request) Evaluation(now time.Time) Evaluation {
	e := Evaluation{Start: r.Start, End: r.End, Step: r.Step, Lookback: r.Lookback, SubqueryStep: r.SubqueryStep}
	if !r.Given {
		e.Start, e.End = now, now
	}
	return e
}

// window returns what the request reads as it stands.
func (r *Request) window(now time.Time) (start, end time.Time) {
	start, end = r.Start, r.End
	if start.IsZero() {
		start = beginningOfTime
	}
	if end.IsZero() {
		end = now
	}
	return start, end
}

// beginningOfTime is about where Prometheus begins without a start.
var beginningOfTime = time.Unix(-1<<53, 0)
