// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"time"

	"github.com/promguard/promguard/internal/proxy/admission"
	"github.com/promguard/promguard/internal/proxy/canonical"
	"github.com/promguard/promguard/internal/proxy/querylog"
	"github.com/promguard/promguard/internal/proxy/upstream"
	"github.com/promguard/promguard/internal/querylimit"
)

// NewTransport returns a transport for one upstream server and many clients. It
// uses no proxy from the environment, and leaves compression to the two ends.
func NewTransport() *http.Transport {
	return &http.Transport{
		DialContext:           NewDialer().DialContext,
		TLSHandshakeTimeout:   5 * time.Second,
		MaxIdleConns:          0, // no bound but the one for the only host
		MaxIdleConnsPerHost:   100,
		IdleConnTimeout:       90 * time.Second, // shorter than Prometheus's own
		ExpectContinueTimeout: time.Second,
		ForceAttemptHTTP2:     true,
		DisableCompression:    true,
	}
}

// NewDialer returns what connects to upstream servers. A server that is gone without a
// word is given up in time for another one.
func NewDialer() *net.Dialer {
	return &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}
}

func (p *Proxy) newReverseProxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite:        p.rewrite,
		Transport:      roundTripper(p.roundTrip),
		ModifyResponse: p.modifyResponse,
		ErrorHandler:   p.handleError,
		BufferPool:     &bufferPool{},
		ErrorLog:       slog.NewLogLogger(p.logger.Handler(), slog.LevelDebug),
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// roundTrip sends a request that is written anew: once for all that are identical,
// and with a permit.
func (p *Proxy) roundTrip(req *http.Request) (*http.Response, error) {
	x := exchangeOf(req.Context())
	if x.collapse {
		if key := collapseKey(req, x); key != "" {
			return p.collapser.roundTrip(req, key, &x.trip)
		}
	}
	return p.admitted(req, &x.trip)
}

// forward sends the request upstream within its deadline and streams the answer
// back. If that breaks after the headers, it aborts the connection, since an
// answer that merely ended early would look complete.
func (p *Proxy) forward(rw *responseWriter, r *http.Request, x *exchange) {
	x.trip.request, x.trip.tenant, x.trip.class, x.trip.trace = x.request, x.who.Tenant, x.admissionClass(), x.trace
	x.trip.need = admission.Need{Who: cmp.Or(x.who.User, x.who.Dashboard), Bytes: x.verdict.Cost.Bytes()}
	ctx, cancel := context.WithTimeout(r.Context(), cmp.Or(x.deadline, math.MaxInt64))
	defer cancel()
	x.end = cancel
	defer p.running.Remove(p.running.Add(x))

	defer func() {
		if v := recover(); v != nil {
			if v == http.ErrAbortHandler { //nolint:errorlint // A panic's value is compared as net/http does.
				x.aborted = p.countAborted(ctx, rw, x)
				rw.breakOff()
			}
			panic(v)
		}
	}()
	p.reverse.ServeHTTP(rw, r.WithContext(context.WithValue(ctx, exchangeKey{}, x)))
}

// rewrite makes the outgoing request from what was understood of the client's.
func (p *Proxy) rewrite(pr *httputil.ProxyRequest) {
	x := exchangeOf(pr.In.Context())
	out := pr.Out
	out.Host = ""
	out.Trailer, out.TransferEncoding = nil, nil
	x.identity.Rewrite(out.Header, &x.who, pr.In.RemoteAddr)
	if len(x.warnings) > 0 || x.measuresPlain() || p.seesPartial(x) {
		// A warning goes into plain JSON and is seen there, and a decoded size is that of it.
		out.Header.Set("Accept-Encoding", "identity")
	}
	x.key = x.request.Write(out) // To which server, send decides.
	pr.SetXForwarded()
	p.pool.Sign(out.Header)
}

var (
	errRedirect = errors.New("redirect")
	errEncoded  = errors.New("encoded answer")
	errNoEnd    = errors.New("answer without an end of its own")
	errLoop     = errors.New("a request of this promguard came back to it")
)

// exceed counts a limit that the request ran into on its way, and notes it for
// the query log.
func (p *Proxy) exceed(x *exchange, refusal *querylimit.Refusal) {
	p.metrics.exceeded.WithLabelValues(refusal.Limit, refusal.Mode.String()).Inc()
	x.exceeded = append(x.exceeded, refusal)
}

func (x *exchange) refuseDeadline() *querylimit.Refusal {
	return x.verdict.Policy.RefuseDeadline(x.endpoint.Class, x.endpoint.Path, x.deadline)
}

// handleError answers a request to which no answer was passed on.
func (p *Proxy) handleError(w http.ResponseWriter, r *http.Request, err error) {
	x := exchangeOf(r.Context())
	switch {
	case x.client.Err() != nil:
		// Nobody is there. Abort, so that this is never taken for an answer.
		w.(*responseWriter).code = statusClientGone
		panic(http.ErrAbortHandler)
	case x.ended.Load():
		p.reject(w.(*responseWriter), errStopped)
	case errors.Is(r.Context().Err(), context.DeadlineExceeded):
		p.metrics.upstream.WithLabelValues(reasonDeadline).Inc()
		refusal := x.refuseDeadline()
		p.exceed(x, refusal)
		p.reject(w.(*responseWriter), &apiError{code: http.StatusServiceUnavailable, typ: typeTimeout, err: refusal})
	case as[*admission.Shed](err) != nil:
		p.shed(w.(*responseWriter), r.UserAgent(), as[*admission.Shed](err))
	case as[*querylimit.Refusal](err) != nil:
		refusal := as[*querylimit.Refusal](err)
		p.exceed(x, refusal)
		p.reject(w.(*responseWriter), refusal)
	case as[*upstream.Unavailable](err) != nil:
		p.upstreamError(w, reasonUnavailable, err, canonical.Advise("Try again in some seconds", "%w", err))
	case errors.Is(err, errRedirect):
		p.upstreamError(w, reasonRedirect, err, canonical.Advise(
			"Check the path in --upstream.url", "the upstream server answered with a redirect, which promguard does not pass on"))
	case errors.Is(err, errLoop):
		p.upstreamError(w, reasonLoop, err, canonical.Advise(
			"Let --upstream.url lead to a Prometheus", "the upstream server is this promguard, or asks this promguard"))
	case errors.Is(err, errEncoded):
		p.upstreamError(w, reasonEncoded, err, canonical.Advise(
			"Switch compression off at the upstream server, or set wire_max in place of max",
			"it compressed an answer that it was asked not to, so that the limit response_bytes cannot be kept"))
	case errors.Is(err, errNoEnd):
		p.upstreamError(w, reasonTruncated, err, canonical.Advise(
			"Let the upstream server, or the proxy before it, speak HTTP/1.1 with chunked answers",
			"it sent an answer that ends with the connection, of which a part would look whole"))
	default:
		p.upstreamError(w, reasonUnreachable, err, canonical.Advise(
			"Try again in some seconds", "the upstream server did not answer (%s) and may be restarting", publicCause(err)))
	}
}

// as is errors.AsType where nil says that there is none.
func as[T error](err error) T {
	found, _ := errors.AsType[T](err)
	return found
}

func (p *Proxy) upstreamError(w http.ResponseWriter, reason string, cause, told error) {
	p.metrics.upstream.WithLabelValues(reason).Inc()
	p.logger.Debug("Upstream server gave no answer", "reason", reason, "err", cause)
	p.reject(w.(*responseWriter), &apiError{code: http.StatusServiceUnavailable, typ: typeUnavailable, err: told})
}

// publicCause leaves addresses out of an error that a client gets to see.
func publicCause(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Op + ": " + op.Err.Error()
	}
	if errors.Is(err, upstream.ErrGone) {
		return err.Error()
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "it closed the connection"
	}
	return "no valid HTTP"
}

// countAborted finds out why an answer ended before its end.
func (p *Proxy) countAborted(ctx context.Context, rw *responseWriter, x *exchange) (reason string) {
	switch {
	case x.client.Err() != nil || rw.writeErr != nil:
		p.metrics.clientGone.WithLabelValues(x.endpoint.Class.String()).Inc()
		return querylog.AbortedClient
	case x.ended.Load():
		p.metrics.refused.WithLabelValues(reasonStopped).Inc()
		return querylog.AbortedOperator
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		p.metrics.upstream.WithLabelValues(reasonDeadline).Inc()
		p.exceed(x, x.refuseDeadline())
		return querylog.AbortedLimit
	case x.bounded != nil && x.bounded.broke():
		p.metrics.refused.WithLabelValues(querylimit.LimitResponseBytes).Inc()
		return querylog.AbortedLimit
	default:
		p.metrics.upstream.WithLabelValues(reasonTruncated).Inc()
		return querylog.AbortedUpstream
	}
}

// bufferPool holds the buffers through which answers are copied.
type bufferPool struct{ pool sync.Pool }

const bufferSize = 64 << 10 // Half the system calls of httputil's 32 KiB.

// Get implements httputil.BufferPool.
func (b *bufferPool) Get() []byte {
	if buf, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return buf[:]
	}
	return make([]byte, bufferSize)
}

// Put implements httputil.BufferPool.
func (b *bufferPool) Put(buf []byte) { b.pool.Put((*[bufferSize]byte)(buf)) }
