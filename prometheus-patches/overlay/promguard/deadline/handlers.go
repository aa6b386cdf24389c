// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package deadline

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Handlers puts handlers under a deadline. A nil *Handlers leaves every handler
// as it is.
type Handlers struct {
	timeout      time.Duration
	queryTimeout time.Duration

	inFlight *prometheus.GaugeVec
	exceeded *prometheus.CounterVec
	aborted  *prometheus.CounterVec
}

// New returns the handlers' deadline: timeout for an endpoint that reads
// metadata, and queryTimeout + timeout for one that evaluates PromQL, whose
// evaluation has the limit queryTimeout of its own. A timeout of 0 means no
// deadline, and then New returns nil.
func New(timeout, queryTimeout time.Duration, reg prometheus.Registerer) *Handlers {
	if timeout <= 0 {
		return nil
	}
	factory := promauto.With(reg)
	return &Handlers{
		timeout:      timeout,
		queryTimeout: queryTimeout,
		inFlight: factory.NewGaugeVec(prometheus.GaugeOpts{
			Name: "promguard_api_requests_in_flight",
			Help: "Read requests that are worked on, by endpoint.",
		}, []string{"endpoint"}),
		exceeded: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "promguard_api_deadline_exceeded_total",
			Help: "Read requests that were answered with an error because their deadline passed, by endpoint.",
		}, []string{"endpoint"}),
		aborted: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "promguard_api_responses_aborted_total",
			Help: "Answers that were cut off after their first byte because the deadline passed or the client left, by endpoint.",
		}, []string{"endpoint"}),
	}
}

// unbounded are the endpoints below /api/v1 that have no deadline: they write,
// they stream for as long as the client likes, or they change the database.
var unbounded = []string{"/write", "/otlp/", "/notifications", "/admin/", "/*path"}

// evaluates are the endpoints that evaluate PromQL.
var evaluates = []string{"/query", "/query_range"}

// API puts the handler of a route below /api/v1 under its deadline. An endpoint
// that this package has not heard of is bounded like the rest.
func (h *Handlers) API(route string, next http.HandlerFunc) http.HandlerFunc {
	if h == nil {
		return next
	}
	for _, prefix := range unbounded {
		if strings.HasPrefix(route, prefix) {
			return next
		}
	}
	e := endpoint{handlers: h, name: "/api/v1" + route, ownTimeout: true, timeout: h.timeout, source: fmt.Sprintf("%s=%s", Flag, h.timeout), json: true}
	for _, name := range evaluates {
		if route == name {
			e.timeout = sum(h.queryTimeout, h.timeout)
			e.source = fmt.Sprintf("--query.timeout=%s for the evaluation, %s=%s for the answer", h.queryTimeout, Flag, h.timeout)
			e.ownTimeout = false // The PromQL engine's affair.
		}
	}
	e.json = route != "/read"
	return e.bound(next)
}

// sum adds two durations of at least 0; a sum that is too large is the largest.
func sum(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Root puts the handlers outside of /api/v1 that read the database under their
// deadline: /federate.
func (h *Handlers) Root(route string, next http.HandlerFunc) http.HandlerFunc {
	if h == nil || route != "/federate" {
		return next
	}
	e := endpoint{handlers: h, name: route, ownTimeout: true, timeout: h.timeout, source: fmt.Sprintf("%s=%s", Flag, h.timeout)}
	return e.bound(next)
}

// endpoint is one route's deadline.
type endpoint struct {
	handlers *Handlers
	name     string
	timeout  time.Duration
	source   string
	// ownTimeout says that a request may shorten its deadline by timeout=.
	ownTimeout bool
	// json says that errors go in the API's JSON envelope.
	json bool
}

func (e endpoint) bound(next http.HandlerFunc) http.HandlerFunc {
	inFlight := e.handlers.inFlight.WithLabelValues(e.name)
	exceededTotal := e.handlers.exceeded.WithLabelValues(e.name)
	abortedTotal := e.handlers.aborted.WithLabelValues(e.name)
	return func(w http.ResponseWriter, r *http.Request) {
		inFlight.Inc()
		defer inFlight.Dec()

		cause := &ExceededError{Method: r.Method, Endpoint: e.name, Timeout: e.timeout, Source: e.source}
		if e.ownTimeout {
			if err := shorten(cause, r); err != nil {
				e.respond(w, http.StatusBadRequest, "bad_data", err)
				return
			}
		}
		ctx, cancel := Bind(r.Context(), cause)
		defer cancel()
		bw := &writer{ResponseWriter: w, ctx: ctx, endpoint: e}
		next(bw, r.WithContext(ctx))
		bw.finish()
		if bw.replaced {
			exceededTotal.Inc()
		}
		if bw.aborted {
			abortedTotal.Inc()
			bw.abort()
		}
	}
}
