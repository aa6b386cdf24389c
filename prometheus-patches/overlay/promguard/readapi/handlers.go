// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package readapi

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/prometheus/prometheus/internal/promqltext"
	"github.com/prometheus/prometheus/internal/screen"
	"github.com/prometheus/prometheus/promguard/reads"
	"github.com/prometheus/prometheus/util/httputil"
)

// Handlers puts handlers under their limits. A nil *Handlers leaves every
// handler as it is.
type Handlers struct {
	opts    Options
	table   *reads.Table
	text    reads.TextCheck // nil: PromQL texts are not looked at.
	metrics *metrics
	seen    seen

	metadata, bulk, query *reads.Pool
}

// New returns the handlers' limits, or nil if opts has none.
func New(opts Options, reg prometheus.Registerer) *Handlers {
	if !opts.limits() {
		return nil
	}
	h := &Handlers{
		opts:     opts,
		table:    reads.NewTable(opts.Budget),
		metadata: reads.NewPool("metadata", opts.MetadataConcurrency),
		bulk:     reads.NewPool("bulk", opts.BulkConcurrency),
		query:    reads.NewPool("query", opts.QueryConcurrency),
	}
	h.table.Procs = reads.NewProcs(opts.Procs, opts.Tight)
	if opts.CheckText {
		h.text = checkText
	}
	h.metrics = newMetrics(h, reg)
	h.seen.top = screen.NewTopQueries(topQueries)
	return h
}

// textMost is what PromQL texts may cost: more is too much to parse, whoever asks.
// The proxy in front of a server is where to be stricter. A list of 7,500 node
// names has a third of this size of regular expressions.
var textMost = promqltext.Cost{Bytes: promqltext.MaxBytes, Operators: promqltext.MaxOperators, RegexSize: 300_000}

func checkText(texts ...string) error {
	if err := promqltext.Check(textMost, texts...); err != nil {
		return fmt.Errorf("%w (--guard.query-text-limits)", err)
	}
	return nil
}

// API puts the handler of a route below /api/v1 under its limits.
func (h *Handlers) API(route string, next http.HandlerFunc) http.HandlerFunc {
	return h.limited("/api/v1", route, next)
}

// Root puts the handlers outside of /api/v1 that read the database under their
// limits: /federate and the consoles.
func (h *Handlers) Root(route string, next http.HandlerFunc) http.HandlerFunc {
	if route != "/federate" && !strings.HasPrefix(route, "/consoles/") {
		return next
	}
	return h.limited("", route, next)
}

func (h *Handlers) limited(prefix, route string, next http.HandlerFunc) http.HandlerFunc {
	if h == nil {
		return next
	}
	e := h.endpoint(prefix, route)
	if e == nil {
		return next
	}
	h.metrics.init(e)
	return func(w http.ResponseWriter, r *http.Request) { h.serve(e, next, w, r) }
}

// shutdownWait is how long a server that ends waits for reads to say so to their
// clients: its connections are dropped then.
const shutdownWait = 2 * time.Second

// Stop stops every read, because the server ends: it would wait for them.
func (h *Handlers) Stop() {
	if h != nil {
		h.table.StopAll(&reads.Stop{Reason: reads.ReasonShutdown, Text: "the server is shutting down"}, shutdownWait)
	}
}

// serve runs one request from its admission to its last byte.
func (h *Handlers) serve(e *endpoint, next http.HandlerFunc, w http.ResponseWriter, r *http.Request) {
	h.boundBody(e, w, r)
	scan, formErr := parse(e, r)
	limits := e.limits
	if scan.chunks {
		limits.SeriesBytes = chunksSeriesBytes
	}

	read, ctx, remove := h.table.Add(r.Context(), info(e, r), limits)
	defer remove()
	ctx, clock, cancel, err := h.withDeadline(ctx, e, r)
	defer cancel()

	bw := &writer{ResponseWriter: w, ctx: ctx, read: read, endpoint: e, handlers: h, request: r, clock: clock, pace: newPace(h.opts.MinClientRate), header: w.Header().Clone(), holdsAll: !e.json && !r.ProtoAtLeast(1, 1)}
	defer bw.leave()
	defer bw.finish()
	defer context.AfterFunc(ctx, bw.unblock)()
	switch {
	case formErr != nil:
		bw.refuse(http.StatusBadRequest, "bad_data", formErr)
		return
	case err != nil:
		bw.refuse(http.StatusBadRequest, "bad_data", err)
		return
	case read.CheckTexts(read.Expressions...) != nil || read.CheckRegexes(scan.regexes) != nil:
		return
	}
	h.run(bw, next, r.WithContext(ctx))
}

// run runs the handler when it is the read's turn, and again if it finds out that it
// must wait. That it does for as long as it may take: nobody waits for it.
func (h *Handlers) run(w *writer, next http.HandlerFunc, r *http.Request) {
	timer := time.NewTimer(w.endpoint.wait)
	defer timer.Stop()
	body, _ := r.Body.(io.Seeker) // What was read before the handler ran.
	turn := timer.C
	for again := true; again; again = w.read.MustWait() {
		w.restart()
		if body != nil {
			_, _ = body.Seek(0, io.SeekStart)
		}
		waited := time.Now()
		w.waits = true
		leave, err := h.table.Admit(w.ctx, w.read, w.endpoint.pool, turn, w.endpoint.wait)
		h.metrics.waited(w.endpoint, time.Since(waited))
		if err != nil {
			return
		}
		w.place = leave
		w.waits, w.running = false, true
		began := time.Now()
		next(w, r)
		w.ran += time.Since(began)
		w.running = false
		if w.endpoint.wait > 0 {
			turn = nil
		}
	}
}

// maxBody is the largest body of a request in bytes. What people send is a tenth
// of it; it is held in memory before the request has its turn.
const maxBody = 4 << 20

// boundBody keeps a client from sending its request for longer than the
// request may take, or more than may be held of it.
func (h *Handlers) boundBody(e *endpoint, w http.ResponseWriter, r *http.Request) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	timeout := e.timeout + writeGrace
	if own := h.opts.ReadTimeout; own > 0 {
		timeout = min(timeout, own)
	}
	if e.timeout > 0 {
		// Writers that cannot do it, as in tests, go without.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(timeout))
	}
}

// withDeadline returns the context with the request's deadline, and its clock if it
// stands still while the client is waited for.
func (h *Handlers) withDeadline(ctx context.Context, e *endpoint, r *http.Request) (context.Context, *clock, context.CancelFunc, error) {
	timeout, source := e.timeout, e.source
	if timeout == 0 {
		return ctx, nil, func() {}, nil // timeout= is the handler's affair.
	}
	own, text, err := ownTimeout(r)
	if err != nil {
		return ctx, nil, func() {}, err
	}
	if own > 0 && own < timeout {
		timeout, source = own, fmt.Sprintf("timeout=%s of the request; at most %s", text, e.source)
	}
	stop := reads.FromContext(ctx).Refusal(reads.ReasonDeadline, "Narrow the selectors or the time range, set limit=, or raise the deadline",
		"was stopped at its deadline of %s (%s)", timeout, source)
	if e.holdsDatabase || h.opts.MinClientRate == 0 {
		ctx, cancel := context.WithTimeoutCause(ctx, timeout, stop)
		return ctx, nil, cancel, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	clock := newClock(timeout, func() { cancel(stop) })
	return ctx, clock, func() { clock.stop(); cancel(nil) }, nil
}

// origin are the headers by which Grafana says who asks.
var origin = []string{"X-Dashboard-Uid", "X-Dashboard-Title", "X-Panel-Id", "X-Panel-Title", "X-Grafana-Org-Id", "X-Grafana-User", "X-Grafana-From-Expr", "FromAlert", "X-Rule-Name"}

// info says what is read and for whom. It is read by people: what a client can
// make long is cut.
func info(e *endpoint, r *http.Request) reads.Info {
	i := reads.Info{Method: r.Method, Endpoint: e.name, UserAgent: cut(r.UserAgent())}
	for _, name := range []string{"query", "match[]", "match_target"} {
		i.Expressions = append(i.Expressions, r.Form[name]...)
	}
	i.Client, _, _ = net.SplitHostPort(r.RemoteAddr)
	for _, name := range origin {
		if v := r.Header.Get(name); v != "" {
			if i.Origin == nil {
				i.Origin = map[string]string{}
			}
			i.Origin[name] = cut(v)
		}
	}
	return i
}

func cut(s string) string {
	const most = 256
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

// setCORS lets errors that are sent before the handler runs be read by the
// origins that may read its answers.
func (h *Handlers) setCORS(w http.ResponseWriter, r *http.Request) {
	if h.opts.CORSOrigin != nil {
		httputil.SetCORS(w, h.opts.CORSOrigin, r)
	}
}
