// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"net/http"

	"github.com/promguard/promguard/internal/proxy/canonical"
	"github.com/promguard/promguard/internal/running"
)

// Running implements running.Request.
func (x *exchange) Running() running.Query {
	q := running.Query{
		Sent: x.trip.sent.Load() != nil, Endpoint: x.endpoint.Name, Fingerprint: joinedFingerprint(x.verdict.Queries),
		Tenant: x.who.Tenant, User: x.who.User, Dashboard: x.who.Dashboard, Panel: x.who.Panel, Alert: x.who.AlertRule,
		Bytes: x.trip.need.Bytes,
	}
	if len(x.verdict.Queries) > 0 {
		q.Text = x.verdict.Queries[0].Text
	}
	return q
}

// End implements running.Request.
func (x *exchange) End() {
	x.ended.Store(true)
	x.end()
}

// HandleQueries answers which requests run, those that are as running.Filters say; DELETE
// ends them.
func (p *Proxy) HandleQueries(w http.ResponseWriter, r *http.Request) {
	found, err := p.running.Find(r.FormValue, r.Method == http.MethodDelete)
	if err != nil {
		writeError(w, asAPIError(badData(err)))
		return
	}
	for i := range found {
		q := &found[i]
		if r.Method == http.MethodDelete {
			p.logger.Info("Stopping a query", "id", q.ID, "fingerprint", q.Fingerprint, "tenant", q.Tenant, "dashboard", q.Dashboard)
		}
		if p.policy.Load().Redact {
			q.Text = ""
		}
	}
	writeData(w, found)
}

// errStopped is what the client of a request is told that an operator ended. It is not to
// ask again at once.
var errStopped = &apiError{
	code: http.StatusServiceUnavailable, typ: typeCanceled, reason: reasonStopped,
	err: canonical.Advise("Ask the operator why before you ask again", "%w", errors.New("an operator stopped this query")),
}
