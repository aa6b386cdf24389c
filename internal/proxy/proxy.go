// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"cmp"
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
	"github.com/promguard/promguard/internal/proxy/canonical"
	"github.com/promguard/promguard/internal/proxy/identity"
	"github.com/promguard/promguard/internal/proxy/querylog"
	"github.com/promguard/promguard/internal/proxy/upstream"
	"github.com/promguard/promguard/internal/querylimit"
	"github.com/promguard/promguard/internal/running"
	"github.com/promguard/promguard/internal/screen"
)

// Options is what a Proxy is built from.
type Options struct {
	// Upstream is the root of the upstream server, without /api/v1; it may have a
	// path. Required without Pool; see ParseUpstream.
	Upstream *url.URL
	// Pool has the upstream servers; nil means Upstream alone, which is not asked
	// what it is.
	Pool *upstream.Pool
	// Kind is what the upstream server is; empty means KindPrometheus.
	Kind upstream.Kind
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
	// PageUsers are who may see the page where the API is served.
	PageUsers []string
	// Log takes requests worth remembering; nil means none.
	Log *querylog.Log
	// Tracer begins spans; nil means that there are none.
	Tracer trace.Tracer
	// Redact keeps the texts of queries from whatever shows what was asked.
	Redact bool
	// Hash tells policies apart, for people.
	Hash string
}

// queryCacheBytes bounds what is remembered of parsed queries.
const queryCacheBytes = 32 << 20

// Proxy is an http.Handler and safe for concurrent use.
type Proxy struct {
	pool      *upstream.Pool
	policy    atomic.Pointer[Policy]
	router    *canonical.Router
	analyzer  *querylimit.Analyzer
	transport http.RoundTripper
	reverse   *httputil.ReverseProxy
	admission *admission.Controller
	collapser *collapser
	metrics   *metrics
	top       *screen.TopQueries
	running   running.List
	refusals  screen.Refusals
	titles    screen.Titles
	readers   *screen.Page // the page of PageUsers
	logger    *slog.Logger
	stopping  atomic.Bool // Stop was called
	through   names
	looped    sync.Once // a loop was logged
	partial   bool      // answers may be, see seesPartial

	readTimeout, stallTimeout time.Duration
}

// New returns a proxy. It sends nothing yet.
func New(o Options) *Proxy {
	p := &Proxy{
		pool:         o.Pool,
		router:       canonical.NewRouter(o.Kind, o.RoutePrefix),
		analyzer:     querylimit.NewAnalyzer(queryCacheBytes),
		transport:    o.Transport,
		top:          screen.NewTopQueries(topQueries),
		metrics:      newMetrics(o.Registerer),
		logger:       o.Logger,
		partial:      o.Kind == upstream.KindThanos,
		readTimeout:  cmp.Or(o.ReadTimeout, 10*time.Second),
		stallTimeout: cmp.Or(o.StallTimeout, 30*time.Second),
	}
	if p.transport == nil {
		p.transport = NewTransport()
	}
	if p.pool == nil {
		p.pool = upstream.NewPool(upstream.Options{
			URLs: []*url.URL{o.Upstream}, Kind: o.Kind, Transport: p.transport, Registerer: o.Registerer, Logger: o.Logger,
		})
	}
	p.admission = admission.New(o.Policy.Admission)
	p.metrics.registerAdmission(o.Registerer, p.admission)
	p.pool.OnHead(func(h *querylimit.Head) { p.admission.SetRoom(h.Room()) })
	p.collapser = newCollapser(p.admitted, p.metrics.collapsed.Inc)
	p.SetPolicy(o.Policy)
	p.reverse = p.newReverseProxy()
	p.readers = screen.New(screen.Source{State: p.stateOfReaders, Explain: p.explain, Titles: &p.titles})
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

// ServeHTTP takes a request through the stops of the package comment. It counts
// the request once, when all is over, however that came about.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	rw := newResponseWriter(w, p.stallTimeout)
	e, label := p.router.Find(r.URL) // 1. route
	class := classUnknown
	if e != nil {
		class = e.Class.String()
	}
	inFlight := p.metrics.inFlight.WithLabelValues(class)
	inFlight.Inc()
	x := &exchange{client: r.Context(), trace: p.startTrace(r)}
	defer func() { // 6. release
		inFlight.Dec()
		took := time.Since(start)
		p.metrics.request(class, rw.code, took)
		// A reload may have replaced and closed the log of when the request came.
		x.log(p.policy.Load().Log, start, took, rw, r)
		p.titles.Add(x.who.Dashboard, r.Header.Get("X-Dashboard-Title"))
		p.countCost(x, rw, start, took)
		p.remember(x, rw)
		x.trace.end(x, rw, r.Method)
	}()

	var err error
	if x.decision, err = p.decide(rw, r, e, label); err != nil { // 2. to 4.
		p.reject(rw, err)
		return
	}
	p.forward(rw, r, x) // 5. forward
}

func (p *Proxy) reject(rw *responseWriter, err error) {
	ae := asAPIError(err)
	switch {
	case ae.shed:
		p.metrics.shed.WithLabelValues(ae.reason).Inc()
	case ae.reason != "":
		p.metrics.refused.WithLabelValues(ae.reason).Inc()
	}
	rw.refused = ae
	writeError(rw, ae)
}
