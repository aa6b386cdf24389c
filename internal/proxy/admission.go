// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/promguard/promguard/internal/proxy/admission"
	"github.com/promguard/promguard/internal/proxy/canonical"
	"github.com/promguard/promguard/internal/querylimit"
)

// admissionDoc is where people read about what keeps a request out.
const admissionDoc = "https://github.com/promguard/promguard/blob/main/docs/proxy-admission.md"

// admissionClass orders a request by who waits for it.
func (x *exchange) admissionClass() admission.Class {
	switch class := x.endpoint.Class; {
	case class == querylimit.ClassBulk: // Whoever asks.
		return admission.Bulk
	case x.who.Alert:
		return admission.Alerts
	case class == querylimit.ClassQuery:
		return admission.Query
	case class == querylimit.ClassMetadata:
		return admission.Metadata
	default:
		return admission.Status
	}
}

// admitted sends a request once it has a permit, and holds the permit until the
// end of the answer.
func (p *Proxy) admitted(req *http.Request, t *trip) (*http.Response, error) {
	start := time.Now()
	span := t.trace.admission(t.class.String())
	release, err := p.admission.Acquire(req.Context(), t.tenant, t.class, t.need, t.waitsSince)
	span.end(err)
	sent := time.Now()
	p.metrics.waited[t.class].Observe(sent.Sub(start).Seconds())
	if err != nil {
		return nil, err
	}
	t.sent.Store(&sent)
	span = t.trace.upstream(req)
	res, err := p.send(req, t)
	if err != nil {
		span.end(err)
		release()
		return nil, err
	}
	res.Body = &heldBody{res.Body, span.endWith(res, release)}
	return res, nil
}

// heldBody gives a permit back when the answer has been read or left.
type heldBody struct {
	io.ReadCloser

	release func()
}

// Close implements io.Closer.
func (b *heldBody) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}

// shed answers a request for which there was no permit. Grafana hides the text of
// a 429.
func (p *Proxy) shed(w *responseWriter, userAgent string, why *admission.Shed) {
	ae := &apiError{code: http.StatusServiceUnavailable, typ: typeUnavailable, reason: reasonSaturated, shed: true}
	do := "raise admission.max"
	switch {
	case why.Class != nil:
		do = "raise admission.classes." + why.Class.String() + ".max"
	case why.Room:
		do = "give the server more memory"
	}
	if why.Tenant {
		ae.reason, do = reasonTenantSaturated, "raise admission.tenant_max"
		if !strings.HasPrefix(userAgent, "Grafana/") {
			ae.code = http.StatusTooManyRequests
		}
	}
	ae.err = canonical.Advise("Try again in some seconds, or ask for less at a time", "%w; an operator can %s. See %s", why, do, admissionDoc)
	p.reject(w, ae)
}
