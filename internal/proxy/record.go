// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/promguard/promguard/internal/proxy/querylog"
	"github.com/promguard/promguard/internal/querylimit"
)

// record is what is remembered of a request for the query log, as far as it came.
type record struct {
	endpoint *endpoint // nil if there is nothing to log
	who      querylimit.Subject
	request  *request // nil if it was malformed
	verdict  querylimit.Verdict
	trace    *requestTrace
	trip     *trip
	passed   bool   // the rules let it through
	aborted  string // by whom its answer ended before its end, as in querylog.Entry; "" if it did not
}

// trip is what is known of a request on its way to the server. It may go on when the
// one for whom it was sent has left.
type trip struct {
	sent    atomic.Pointer[time.Time] // nil if it was not
	samples atomic.Int64              // that the server went through, if it says so
}

// failed reports whether the client did not get a whole answer, or an error.
func (s *record) failed(rw *responseWriter) bool {
	return s.aborted != "" || rw.code >= http.StatusBadRequest
}

// limits returns the limits that the request exceeds, each with its mode.
func (s *record) limits() []string {
	if len(s.verdict.Refusals) == 0 {
		return nil
	}
	limits := make([]string, len(s.verdict.Refusals))
	for i, refusal := range s.verdict.Refusals {
		limits[i] = refusal.Limit + ":" + refusal.Mode.String()
	}
	return limits
}

// CountLostLog counts a request that could not be written to the query log.
func (p *Proxy) CountLostLog() { p.metrics.logLost.Inc() }

// write logs the request if the log wants it. Text of a client is copied, not
// interpreted.
func (s *record) write(log *querylog.Log, start time.Time, took time.Duration, rw *responseWriter, r *http.Request) {
	if s.endpoint == nil || !log.Wants(took, s.failed(rw) || len(s.verdict.Refusals) > 0) {
		return
	}
	e := &querylog.Entry{
		Time: start, Endpoint: s.endpoint.Name, Class: s.endpoint.Class.String(),
		Tenant: s.who.Tenant, Dashboard: s.who.Dashboard, Panel: s.who.Panel, User: s.who.User,
		Alert: s.who.Alert, AlertRule: s.who.AlertRule, UserAgent: s.who.UserAgent,
		Fingerprints: querylimit.Fingerprints(s.verdict.Queries), Limits: s.limits(), Rules: s.verdict.Rules,
		Code: rw.code, Aborted: s.aborted, Took: took.Seconds(), Bytes: rw.bytes,
	}
	e.Client, _, _ = net.SplitHostPort(r.RemoteAddr)
	if q := s.request; q != nil {
		_, e.Queries = q.promQL()
		e.Label = shorten(q.listed())
		e.Start, e.End = optional(q.when.start), optional(q.when.end)
		e.Step, e.Lookback = q.when.step.Seconds(), q.when.lookback.Seconds()
		if q.limit >= 0 && q.endpoint.Results != nil {
			e.Limit = &q.limit
		}
	}
	log.Write(e)
}

// optional returns nil for a time that was not given. JSON holds years up to 9999.
func optional(t time.Time) *time.Time {
	if t.IsZero() || t.Year() < 0 || t.Year() > 9999 {
		return nil
	}
	return &t
}
