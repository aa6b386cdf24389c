// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/promguard/promguard/internal/proxy/admission"
	"github.com/promguard/promguard/internal/proxy/identity"
	"github.com/promguard/promguard/internal/proxy/querylog"
	"github.com/promguard/promguard/internal/proxy/topqueries"
	"github.com/promguard/promguard/internal/proxy/upstream"
	"github.com/promguard/promguard/internal/querylimit"
)

// Options is what a Proxy is built from.
type Options struct {
	// Upstream is the root of the server behind, without /api/v1; it may have a
	// path. Required without Pool; see ParseUpstream.
	Upstream *url.URL
	// Pool has the servers behind; nil means Upstream alone, which is not asked
	// what it is.
	Pool *upstream.Pool
	// Kind is what the server behind is; empty means KindPrometheus.
	Kind Kind
	// RoutePrefix is the path below which the API is served, such as /prometheus;
	// empty means the root.
	RoutePrefix string
	// Policy is the first policy; SetPolicy replaces it. Required.
	Policy Policy
	// Registerer takes the metrics. Required.
	Registerer prometheus.Registerer
	// Logger is required.
	Logger *slog.Logger
	// Transport carries requests upstream; nil means NewTransport().
	Transport http.RoundTripper
	// ReadTimeout bounds the reading of a request's body; 0 means 10s.
	ReadTimeout time.Duration
	// Top adds up what queries cost; nil means that nobody does.
	Top *topqueries.Tracker
	// StallTimeout bounds each write to a client; 0 means 30s. A client that
	// takes longer to make room is disconnected.
	StallTimeout time.Duration
}

// Policy is what a reload replaces, as a whole.
type Policy struct {
	// Rules holds the limits. Required.
	Rules *querylimit.Ruleset
	// Identity says whose headers are believed. Required.
	Identity *identity.Source
	// Admission says how many requests go to the server at a time. The zero
	// value admits all.
	Admission admission.Options
	// Collapse sends identical requests that are in flight together only once.
	Collapse bool
	// Open names endpoints of ClassBulk that are open; the others are closed.
	Open []string
	// Log takes requests worth remembering; nil means none.
	Log *querylog.Log
	// Tracer begins spans; nil means that there are none.
	Tracer trace.Tracer
	// Redact keeps the texts of queries from whatever shows what was asked.
	Redact bool
}

// queryCacheBytes bounds what is remembered of parsed queries.
const queryCacheBytes = 32 << 20

// Proxy is an http.Handler and safe for concurrent use.
type Proxy struct {
	pool      *upstream.Pool
	policy    atomic.Pointer[Policy]
	router    *router
	analyzer  *querylimit.Analyzer
	transport http.RoundTripper
	reverse   *httputil.ReverseProxy
	admission *admission.Controller
	collapser *collapser
	metrics   *metrics
	top       *topqueries.Tracker
	logger    *slog.Logger
	stopping  atomic.Bool // Stop was called
	guards    guards
	looped    sync.Once // a loop was logged

	readTimeout, stallTimeout time.Duration
}

// New returns a proxy. It sends nothing yet.
func New(o Options) *Proxy {
	p := &Proxy{
		pool:         o.Pool,
		router:       newRouter(o.Kind),
		analyzer:     querylimit.NewAnalyzer(queryCacheBytes),
		transport:    o.Transport,
		top:          o.Top,
		metrics:      newMetrics(o.Registerer),
		logger:       o.Logger,
		readTimeout:  o.ReadTimeout,
		stallTimeout: o.StallTimeout,
	}
	if p.transport == nil {
		p.transport = NewTransport()
	}
	if p.readTimeout == 0 {
		p.readTimeout = 10 * time.Second
	}
	if p.stallTimeout == 0 {
		p.stallTimeout = 30 * time.Second
	}
	if p.pool == nil {
		p.pool = upstream.NewPool(upstream.Options{
			URLs: []*url.URL{o.Upstream}, Kind: o.Kind, Transport: p.transport, Registerer: o.Registerer, Logger: o.Logger,
		})
	}
	p.router.prefix = o.RoutePrefix
	p.admission = admission.New(o.Policy.Admission)
	p.metrics.registerAdmission(o.Registerer, p.admission)
	p.collapser = newCollapser(p.admitted, p.metrics.collapsed.Inc)
	p.SetPolicy(o.Policy)
	p.reverse = p.newReverseProxy()
	return p
}

// ParseUpstream returns the URL of a server, or an error that says what is
// wrong with it.
func ParseUpstream(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	scheme, _, _ := strings.Cut(s, "://") // What has none may not parse: 127.0.0.1:9090.
	switch {
	case !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https"):
		return nil, fmt.Errorf("upstream URL %q: the scheme must be http or https, as in http://127.0.0.1:9090", s)
	case err != nil:
		return nil, fmt.Errorf("upstream URL: %w", err)
	case u.Hostname() == "":
		return nil, fmt.Errorf("upstream URL %q has no host: use one such as http://127.0.0.1:9090", s)
	case u.User != nil:
		return nil, errors.New("upstream URL must not hold a user or password: the Authorization header of a client is passed on")
	case u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return nil, fmt.Errorf("upstream URL %q must end with its path: remove what follows", s)
	case strings.HasSuffix(strings.TrimSuffix(u.Path, "/"), "/api/v1"):
		return nil, fmt.Errorf("upstream URL %q must not include /api/v1: it is added", s)
	}
	return u, nil
}

// SetPolicy replaces the policy for requests that come from now on.
func (p *Proxy) SetPolicy(policy Policy) {
	p.policy.Store(&policy)
	p.admission.SetOptions(policy.Admission)
}

// exchange is one request on its way. It is the context of the forwarded
// request, so that every callback of the reverse proxy can find it.
type exchange struct {
	context.Context // with the deadline

	client   context.Context // of the client's connection, without it
	request  *request
	who      querylimit.Subject
	identity *identity.Source
	policy   *querylimit.Policy
	deadline time.Duration
	warnings []string
	collapse bool
	params   string // as they go upstream
	record   *record
	bounded  bounded // the answer; nil before it, or if it has no limit
	// waitsSince says since when it waits for a permit. Without it, it begins to wait when
	// it asks for one.
	waitsSince func() time.Time
}

type exchangeKey struct{}

// Value implements context.Context.
func (x *exchange) Value(key any) any {
	if _, ok := key.(exchangeKey); ok {
		return x
	}
	return x.Context.Value(key)
}

func exchangeOf(ctx context.Context) *exchange { return ctx.Value(exchangeKey{}).(*exchange) }

// ServeHTTP takes a request through the stops of the package comment. It counts
// the request once, when all is over, however that came about.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	rw := newResponseWriter(w, p.stallTimeout)
	e, label := p.router.find(r.URL) // 1. route
	class := classUnknown
	if e != nil {
		class = e.Class.String()
	}
	inFlight := p.metrics.inFlight.WithLabelValues(class)
	inFlight.Inc()
	seen := record{trace: p.startTrace(r), trip: &trip{}}
	defer func() { // 6. release
		inFlight.Dec()
		took := time.Since(start)
		p.metrics.request(class, rw.code, took)
		// A reload may have replaced and closed the log of when the request came.
		seen.write(p.policy.Load().Log, start, took, rw, r)
		p.countCost(&seen, rw, start, took)
		seen.trace.end(&seen, rw, r.Method)
	}()

	x, err := p.admit(rw, r, e, label, &seen) // 2. to 4.
	if err != nil {
		p.reject(rw, err)
		return
	}
	p.forward(rw, r, x) // 5. forward
}

// admit reads the request and says whether it may go on.
func (p *Proxy) admit(rw *responseWriter, r *http.Request, e *endpoint, label string, seen *record) (*exchange, error) {
	if err := p.loop(r); err != nil {
		return nil, err
	}
	if e == nil {
		return nil, &apiError{
			http.StatusNotFound, typeNotFound, "not_found",
			fmt.Errorf("%q is not open here: promguard serves %s{%s}", shorten(r.URL.Path), p.router.prefix+apiPrefix, p.router.open),
		}
	}
	if !e.allows(r.Method) {
		rw.Header().Set("Allow", e.allowHeader())
		return nil, &apiError{
			http.StatusMethodNotAllowed, typeBadData, "method_not_allowed",
			fmt.Errorf("method %s is not open for %s: use one of %s", shorten(r.Method), e.path, e.allowHeader()),
		}
	}
	set := p.policy.Load()
	if err := e.closed(set.Open); err != nil {
		return nil, err
	}
	who := set.Identity.Subject(r)
	policy := set.Rules.Tenant(who.Tenant)
	seen.endpoint, seen.who = e, who
	if r.ContentLength != 0 {
		rw.setReadDeadline(time.Now().Add(p.readTimeout))
	}
	q, err := readRequest(r, e, label, policy)
	if err != nil {
		return nil, err
	}
	if r.ContentLength != 0 {
		// The server goes on reading to notice that the client leaves, and
		// takes a passed deadline for just that.
		rw.setReadDeadline(time.Time{})
	}
	v, err := p.judge(q, who, set.Rules)
	seen.request, seen.verdict = q, v
	if err != nil {
		return nil, err
	}
	seen.passed = true
	deadline := v.Policy.Deadline(e.Class, q.timeout)
	if q.timeout > deadline && deadline > 0 {
		q.set("timeout", formatDuration(deadline))
	}
	q.capDuration(v.Policy.Deadline(e.Class, 0))
	return &exchange{
		client:   r.Context(),
		request:  q,
		who:      who,
		identity: set.Identity,
		policy:   v.Policy,
		deadline: deadline,
		warnings: e.warnings(v.Refusals),
		collapse: set.Collapse,
		record:   seen,
	}, nil
}

func (p *Proxy) reject(rw *responseWriter, err error) {
	ae := asAPIError(err)
	if ae.reason != "" {
		p.metrics.rejected.WithLabelValues(ae.reason).Inc()
	}
	writeError(rw, ae)
}

// shorten keeps a client from writing its own novel into an error.
func shorten(s string) string {
	const most = 100
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
