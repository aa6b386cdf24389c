// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/promguard/promguard/internal/querylimit"
	"github.com/promguard/promguard/internal/screen"
)

func TestWhatIsOffAllocatesNothing(t *testing.T) {
	g := newProxy(t, "http://127.0.0.1:1", nil)
	r := httptest.NewRequest(http.MethodGet, "/api/v1/query?query=up", nil)
	rw := newResponseWriter(httptest.NewRecorder(), time.Second)
	e, label := g.proxy.router.Find(r.URL)
	x := &exchange{decision: decision{endpoint: e, passed: true, verdict: querylimit.Verdict{Queries: []*querylimit.Query{{Text: "up"}}}}}
	require.Empty(t, label)
	start := time.Now()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		x.trace = g.proxy.startTrace(r)
		x.trace.admission("query").end(nil)
		x.trace.upstream(r).end(nil)
		x.trace.end(x, rw, r.Method)
		g.proxy.countCost(x, rw, start, time.Second)
	}))
	g.proxy.top = screen.NewTopQueries(10)
	g.proxy.countCost(x, rw, start, time.Second)
	require.Zero(t, testing.AllocsPerRun(100, func() { g.proxy.countCost(x, rw, start, time.Second) }), "nor does a query that is known")
}

// BenchmarkServeSeen is what it costs to look: without tracing, and with tracing of no
// request and of every one.
func BenchmarkServeSeen(b *testing.B) {
	upstream := newUpstream(b, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"status":"success","data":["a","b","c"]}`)
	})
	traced := func(share float64) func(*Options) {
		provider := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.TraceIDRatioBased(share)), sdktrace.WithBatcher(tracetest.NewNoopExporter()))
		b.Cleanup(func() { require.NoError(b, provider.Shutdown(context.Background())) })
		return func(o *Options) { o.Policy.Tracer = provider.Tracer("bench") }
	}
	for _, c := range []struct {
		name string
		with func(*Options)
	}{
		{"tracing=off", func(*Options) {}},
		{"tracing=0", traced(0)},
		{"tracing=1", traced(1)},
	} {
		b.Run(c.name, func(b *testing.B) {
			g := newProxy(b, upstream.URL, nil, c.with)
			b.ReportAllocs()
			for b.Loop() {
				res, err := g.Client().Get(g.URL + "/api/v1/label/job/values?match[]=up")
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != http.StatusOK {
					b.Fatal(res.Status, err)
				}
				res.Body.Close()
			}
		})
	}
}
