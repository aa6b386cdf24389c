// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"net/http"
	"strings"
	"time"

	"github.com/promguard/promguard/internal/querylimit"
	"github.com/promguard/promguard/internal/screen"
)

// topQueries is how many queries are kept of each minute and of ten minutes: one above a
// hundredth of what all cost is never missed.
const topQueries = 100

// countCost adds a request that was let through to what its query cost.
func (p *Proxy) countCost(x *exchange, rw *responseWriter, start time.Time, took time.Duration) {
	if !x.passed {
		return
	}
	cost := screen.TopCost{Requests: 1, Bytes: rw.bytes}
	if sent := x.trip.sent.Load(); sent != nil { // Others have waited for somebody else's answer.
		cost.Seconds = (took - sent.Sub(start)).Seconds()
		cost.Longest = cost.Seconds
	}
	if rw.code/100 != 2 || x.aborted != "" {
		cost.Failed = 1
	}
	text := ""
	if queries := x.verdict.Queries; len(queries) > 0 && !p.policy.Load().Redact {
		text = queries[0].Text
	}
	key := screen.TopKey{
		Endpoint: x.endpoint.Name, Fingerprint: joinedFingerprint(x.verdict.Queries),
		Tenant: x.who.Tenant, Dashboard: x.who.Dashboard, Panel: x.who.Panel,
		Alert: x.who.Alert, AlertRule: x.who.AlertRule,
	}
	if key.Dashboard == "" && !key.Alert {
		key.User = x.who.User
	}
	p.top.Add(start.Add(took), key, text, cost)
}

// joinedFingerprint is that of a request; of many selectors, the first will do.
func joinedFingerprint(queries []*querylimit.Query) string {
	const most = 8
	switch len(queries) {
	case 0:
		return ""
	case 1:
		return queries[0].Fingerprint
	}
	return strings.Join(querylimit.Fingerprints(queries[:min(most, len(queries))]), ",")
}

// HandleTop answers which queries cost most: window=5m or 1h, by=time or bytes,
// limit=20.
func (p *Proxy) HandleTop(w http.ResponseWriter, r *http.Request) {
	report, err := p.top.Asked(time.Now(), r.FormValue)
	if err != nil {
		writeError(w, &apiError{code: http.StatusBadRequest, typ: typeBadData, err: err})
		return
	}
	if p.policy.Load().Redact {
		for i := range report.Queries {
			report.Queries[i].Text = "" // Of before a reload.
		}
	}
	writeData(w, report)
}
