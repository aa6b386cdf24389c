// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/promguard/promguard/internal/proxy/querylog"
)

// propagator reads and writes the headers of W3C Trace Context.
var propagator propagation.TraceContext

// maxTracedText bounds the text of a query in a span, in bytes.
const maxTracedText = 4 << 10

// requestTrace is the trace of one request. A nil one records nothing and costs
// nothing.
type requestTrace struct {
	tracer trace.Tracer
	ctx    context.Context // with span; not that of the request, which may end first
	span   trace.Span
	redact bool
}

// startTrace begins the span of a request. A peer that is not believed begins a
// trace of its own: its headers would decide what is sampled.
func (p *Proxy) startTrace(r *http.Request) *requestTrace {
	set := p.policy.Load()
	if set.Tracer == nil {
		return nil
	}
	ctx := context.Background()
	if set.Identity.Believes(r.RemoteAddr) {
		ctx = propagator.Extract(ctx, propagation.HeaderCarrier(r.Header))
	}
	t := &requestTrace{tracer: set.Tracer, redact: set.Redact}
	t.ctx, t.span = set.Tracer.Start(ctx, "request", trace.WithSpanKind(trace.SpanKindServer))
	return t
}

// end says in the span what came of the request.
func (t *requestTrace) end(x *exchange, rw *responseWriter, method string) {
	if t == nil {
		return
	}
	defer t.span.End()
	if !t.span.IsRecording() {
		return
	}
	if rw.code > 0 {
		t.span.SetAttributes(semconv.HTTPResponseStatusCode(rw.code))
	}
	switch {
	case rw.code >= http.StatusInternalServerError || rw.code == 0:
		t.span.SetStatus(codes.Error, "")
	case x.aborted != "" && x.aborted != querylog.AbortedClient:
		t.span.SetStatus(codes.Error, "the answer was broken off")
	}
	if x.endpoint != nil {
		t.describe(x, rw, method)
	}
}

// describe says in the span what was asked, of which endpoint and by whom.
func (t *requestTrace) describe(x *exchange, rw *responseWriter, method string) {
	t.span.SetName(method + " " + x.endpoint.Path) // Of an open endpoint, one of few.
	t.span.SetAttributes(
		semconv.HTTPRequestMethodKey.String(method), semconv.HTTPRoute(x.endpoint.Path),
		semconv.HTTPResponseBodySize(int(rw.bytes)), attribute.String("promguard.class", x.endpoint.Class.String()),
	)
	for _, a := range []struct{ key, value string }{
		{"promguard.tenant", x.who.Tenant},
		{"promguard.dashboard", x.who.Dashboard},
		{"promguard.panel", x.who.Panel},
		{"promguard.alert_rule", x.who.AlertRule},
		{"promguard.aborted", x.aborted},
		{"promguard.fingerprint", joinedFingerprint(x.verdict.Queries)},
	} {
		if a.value != "" {
			t.span.SetAttributes(attribute.String(a.key, a.value))
		}
	}
	if limits := x.limits(); len(limits) > 0 {
		t.span.SetAttributes(attribute.StringSlice("promguard.limits", limits))
	}
	if len(x.verdict.Queries) > 0 && !t.redact {
		text := x.verdict.Queries[0].Text
		if len(text) > maxTracedText {
			text = strings.ToValidUTF8(text[:maxTracedText], "")
		}
		t.span.SetAttributes(semconv.DBQueryText(text))
	}
}

// childSpan is a part of a request; the zero value is none.
type childSpan struct{ span trace.Span }

// admission begins the span of the wait for a permit.
func (t *requestTrace) admission(class string) childSpan {
	if t == nil {
		return childSpan{}
	}
	_, span := t.tracer.Start(t.ctx, "admission", trace.WithAttributes(attribute.String("promguard.admission.class", class)))
	return childSpan{span}
}

// upstream begins the span of a request to the server, and tells the server.
func (t *requestTrace) upstream(req *http.Request) childSpan {
	if t == nil {
		return childSpan{}
	}
	ctx, span := t.tracer.Start(t.ctx, "upstream", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		semconv.HTTPRequestMethodKey.String(req.Method), semconv.ServerAddress(req.URL.Hostname()),
	))
	req.Header = req.Header.Clone() // Others may read those of the request that this one is for.
	req.Header.Del("Traceparent")
	req.Header.Del("Tracestate")
	propagator.Inject(ctx, propagation.HeaderCarrier(req.Header))
	return childSpan{span}
}

func (s childSpan) end(err error) {
	if s.span == nil {
		return
	}
	if err != nil {
		s.span.SetStatus(codes.Error, err.Error())
	}
	s.span.End()
}

// endWith returns what ends the span before it calls then.
func (s childSpan) endWith(res *http.Response, then func()) func() {
	if s.span == nil {
		return then
	}
	s.span.SetAttributes(semconv.HTTPResponseStatusCode(res.StatusCode))
	return func() {
		s.span.End()
		then()
	}
}
