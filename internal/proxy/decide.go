// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"net/http"
	"time"

	"github.com/promguard/promguard/internal/proxy/canonical"
	"github.com/promguard/promguard/internal/proxy/identity"
	"github.com/promguard/promguard/internal/proxy/intake"
	"github.com/promguard/promguard/internal/proxy/upstream"
	"github.com/promguard/promguard/internal/querylimit"
)

// decision is what was decided about a request before anything of it is sent.
type decision struct {
	endpoint *canonical.Endpoint // nil if it is for none that is open
	who      querylimit.Subject
	request  *canonical.Request // nil if it was malformed
	verdict  querylimit.Verdict
	passed   bool // it may go on; what follows is of such requests
	deadline time.Duration
	warnings []string // that the answer is to carry
	identity *identity.Source
	collapse bool
}

// decide reads a request and says whether it may go on. With an error, the decision is
// as far as it came.
func (p *Proxy) decide(rw *responseWriter, r *http.Request, e *canonical.Endpoint, label string) (d decision, err error) {
	set := p.policy.Load()
	if err := p.checkRoute(rw, r, e, set.Open); err != nil {
		return d, err
	}
	d.endpoint, d.who = e, set.Identity.Subject(r)
	if d.request, err = p.read(rw, r, e, label, set.Rules.Tenant(d.who.Tenant)); err != nil {
		return d, err
	}
	if err := p.judge(&d, set.Rules); err != nil {
		return d, err
	}
	d.passed = true
	limits := d.verdict.Policy
	d.deadline = limits.Deadline(e.Class, d.request.Timeout)
	d.request.Cap(d.deadline, limits.Deadline(e.Class, 0))
	d.identity, d.collapse = set.Identity, set.Collapse
	if e.Class != querylimit.ClassBulk { // That is no JSON, which alone carries warnings.
		d.warnings = d.verdict.Refusals.Warnings()
	}
	return d, nil
}

// checkRoute returns an error for what is not open.
func (p *Proxy) checkRoute(rw *responseWriter, r *http.Request, e *canonical.Endpoint, open []string) error {
	if err := p.loop(r); err != nil {
		return err
	}
	switch {
	case e == nil:
		return notFound(canonical.Advise("Use one of %s", "%q is not open here", p.router.Open(), canonical.Shorten(r.URL.Path)))
	case !e.Allows(r.Method):
		rw.Header().Set("Allow", e.Allow())
		return &apiError{
			code: http.StatusMethodNotAllowed, typ: typeBadData, reason: "method_not_allowed",
			err: canonical.Advise("Use one of %s", "method %s is not open for %s", e.Allow(), canonical.Shorten(r.Method), e.Path),
		}
	case !e.Opens(open):
		return notFound(canonical.Advise("Ask an operator to open it with open: [%s] in promguard.yml", "%s is not open here", e.Name, e.Path))
	}
	return nil
}

// read reads a request and its body.
func (p *Proxy) read(rw *responseWriter, r *http.Request, e *canonical.Endpoint, label string, policy *querylimit.Policy) (*canonical.Request, error) {
	if r.ContentLength != 0 {
		rw.setReadDeadline(time.Now().Add(p.readTimeout))
	}
	q, err := canonical.Read(r, e, label, policy)
	switch {
	case err == nil:
	case as[*querylimit.Refusal](err) != nil:
		return nil, err
	case errors.Is(err, intake.ErrFull):
		return nil, &apiError{code: http.StatusServiceUnavailable, typ: typeUnavailable, reason: reasonSaturated, err: err, shed: true}
	case errors.Is(err, canonical.ErrMedia):
		return nil, &apiError{code: http.StatusUnsupportedMediaType, typ: typeBadData, reason: "unsupported_media_type", err: err}
	default:
		return nil, badData(err)
	}
	if r.ContentLength != 0 {
		// The server goes on reading to notice that the client leaves, and
		// takes a passed deadline for just that.
		rw.setReadDeadline(time.Time{})
	}
	return q, nil
}

// judge asks the rules about a request, counts what they say once, and sets what
// they set.
func (p *Proxy) judge(d *decision, rules *querylimit.Ruleset) error {
	q := d.request
	if q.Method == http.MethodOptions {
		d.verdict.Policy = rules.Tenant(d.who.Tenant)
		return nil
	}
	asked := d.asked(p.pool.Assumed())
	asked.Head = p.pool.Head()
	v, err := rules.Judge(p.analyzer, &asked, time.Now())
	d.verdict = v
	for _, r := range v.Refusals {
		p.metrics.exceeded.WithLabelValues(r.Limit, r.Mode.String()).Inc()
	}
	if err != nil {
		return badData(q.Malformed(err))
	}
	if err := v.Refusals.Err(); err != nil {
		return err
	}
	if v.SetStart != nil {
		q.SetStart(*v.SetStart)
		p.metrics.adjusted.WithLabelValues(querylimit.LimitMetadataRange).Inc()
	}
	return nil
}

// asked returns the request as the rules look at it.
func (d *decision) asked(assumed upstream.Assumptions) querylimit.Request {
	q := d.request
	lookback, subqueryStep := assumed.Lookback, assumed.SubqueryStep
	if q.When.Lookback > 0 {
		lookback = q.When.Lookback
	}
	if assumed.StepOfRequest && q.When.Step > 0 {
		subqueryStep = q.When.Step
	}
	return querylimit.Request{
		Endpoint: d.endpoint.Endpoint, Who: d.who, Texts: q.PromQL(), Label: q.Label(),
		Start: q.When.Start, End: q.When.End, Given: q.When.Given, Step: q.When.Step, Lookback: lookback, SubqueryStep: subqueryStep,
		UnknownPromQL: assumed.UnknownPromQL,
		Limit:         q.Limit, Windows: q.Windows(),
	}
}
