// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/promguard/promguard/internal/proxy/admission"
	"github.com/promguard/promguard/internal/proxy/canonical"
	"github.com/promguard/promguard/internal/proxy/querylog"
	"github.com/promguard/promguard/internal/querylimit"
)

// exchange is one request and what becomes of it.
type exchange struct {
	decision

	client   context.Context // of the client's connection, without the deadline
	trace    *requestTrace
	trip     trip
	key      string              // of what was asked; see canonical.Request.Write
	exceeded querylimit.Refusals // of limits that it ran into on its way
	bounded  *sizeLimiter        // the answer; nil before it, or if it has no limit
	partial  bool                // the answer lacks what a server did not give
	aborted  string              // by whom its answer ended before its end, as in querylog.Entry; "" if it did not

	end   func()
	ended atomic.Bool // by an operator
}

// trip is a request on its way to the server. It may go on when the one for whom it
// was sent has left, and so nothing in it changes but what is atomic.
type trip struct {
	request *canonical.Request
	tenant  string
	class   admission.Class
	need    admission.Need
	trace   *requestTrace
	// waitsSince says since when it waits for a permit. Without it, it begins to wait when
	// it asks for one.
	waitsSince func() time.Time

	sent atomic.Pointer[time.Time] // nil if it was not
}

type exchangeKey struct{}

// exchangeOf finds the exchange in the callbacks of the reverse proxy, which hands them
// nothing else. Everything behind them is passed what it needs.
func exchangeOf(ctx context.Context) *exchange { return ctx.Value(exchangeKey{}).(*exchange) }

// failed reports whether the client did not get a whole answer, or an error.
func (x *exchange) failed(rw *responseWriter) bool {
	return x.aborted != "" || rw.code >= http.StatusBadRequest
}

// refusals returns what the request exceeds, before it was sent and on its way.
func (x *exchange) refusals() querylimit.Refusals {
	if len(x.exceeded) == 0 {
		return x.verdict.Refusals
	}
	return slices.Concat(x.verdict.Refusals, x.exceeded)
}

// limits returns the limits that the request exceeds, each with its mode.
func (x *exchange) limits() []string {
	var limits []string
	for _, refusal := range x.refusals() {
		limits = append(limits, refusal.Limit+":"+refusal.Mode.String())
	}
	return limits
}

// CountLostLog counts a request that could not be written to the query log.
func (p *Proxy) CountLostLog() { p.metrics.logLost.Inc() }

// log logs the request if the log wants it. Text of a client is copied, not
// interpreted.
func (x *exchange) log(to *querylog.Log, start time.Time, took time.Duration, rw *responseWriter, r *http.Request) {
	if x.endpoint == nil || !to.Wants(took, x.failed(rw) || x.partial || len(x.refusals()) > 0) {
		return
	}
	e := &querylog.Entry{
		Time: start, Endpoint: x.endpoint.Name, Class: x.endpoint.Class.String(),
		Tenant: x.who.Tenant, Dashboard: x.who.Dashboard, Panel: x.who.Panel, User: x.who.User,
		Alert: x.who.Alert, AlertRule: x.who.AlertRule, UserAgent: x.who.UserAgent,
		Fingerprints: querylimit.Fingerprints(x.verdict.Queries), Limits: x.limits(), Rules: x.verdict.Rules,
		Code: rw.code, Aborted: x.aborted, Partial: x.partial, Took: took.Seconds(), Bytes: rw.bytes,
	}
	e.Client, _, _ = net.SplitHostPort(r.RemoteAddr)
	if q := x.request; q != nil {
		e.Queries = q.PromQL()
		e.Label = canonical.Shorten(q.Label())
		e.Start, e.End = optional(q.When.Start), optional(q.When.End)
		e.Step, e.Lookback = q.When.Step.Seconds(), q.When.Lookback.Seconds()
		if q.Limit >= 0 && q.Endpoint.Limited {
			e.Limit = &q.Limit
		}
	}
	to.Write(e)
}

// optional returns nil for a time that was not given. JSON holds years up to 9999.
func optional(t time.Time) *time.Time {
	if t.IsZero() || t.Year() < 0 || t.Year() > 9999 {
		return nil
	}
	return &t
}
