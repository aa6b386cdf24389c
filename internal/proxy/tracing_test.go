// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/promguard/promguard/internal/proxy/identity"
)

// traced records the spans of a proxy.
type traced struct {
	*testProxy

	spans *tracetest.SpanRecorder
}

func newTraced(t *testing.T, upstream string, change func(*Options)) traced {
	t.Helper()
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	t.Cleanup(func() { require.NoError(t, provider.Shutdown(context.Background())) })
	g := newProxy(t, upstream, nil, func(o *Options) {
		o.Policy.Tracer = provider.Tracer("test")
		if change != nil {
			change(o)
		}
	})
	return traced{g, recorder}
}

// wait returns the spans by name once there are so many.
func (g traced) wait(t *testing.T, n int) map[string]sdktrace.ReadOnlySpan {
	t.Helper()
	require.Eventually(t, func() bool { return len(g.spans.Ended()) >= n }, time.Minute, time.Millisecond)
	spans := map[string]sdktrace.ReadOnlySpan{}
	for _, s := range g.spans.Ended() {
		spans[s.Name()] = s
	}
	require.Len(t, g.spans.Ended(), n)
	return spans
}

func attributesOf(s sdktrace.ReadOnlySpan) map[string]string {
	out := map[string]string{}
	for _, a := range s.Attributes() {
		out[string(a.Key)] = a.Value.String()
	}
	return out
}

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestTracesFollowARequestFromTheClientThroughPromguardToTheServer(t *testing.T) {
	var told http.Header
	upstream := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		told = r.Header.Clone()
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"status":"success","data":{}}`)
	})
	g := newTraced(t, upstream.URL, nil)
	req := newRequest(t, http.MethodPost, g.URL, "query", url.Values{"query": {`up{job="a"}`}}.Encode())
	req.Header.Set("Traceparent", parent)
	req.Header.Set("X-Dashboard-Uid", "d1")
	require.Equal(t, http.StatusOK, do(t, g.Client(), req).code)
	spans := g.wait(t, 3)
	root := spans["POST /api/v1/query"]
	require.Equal(t, "0af7651916cd43dd8448eb211c80319c", root.SpanContext().TraceID().String())
	require.Equal(t, "b7ad6b7169203331", root.Parent().SpanID().String())
	require.Equal(t, trace.SpanKindServer, root.SpanKind())
	a := attributesOf(root)
	require.Equal(t, `up{job="a"}`, a["db.query.text"])
	require.Equal(t, "d1", a["promguard.dashboard"])
	require.Equal(t, "200", a["http.response.status_code"])
	for _, name := range []string{"admission", "upstream"} {
		require.Equal(t, root.SpanContext().SpanID(), spans[name].Parent().SpanID(), name)
	}
	require.Equal(t, "00-0af7651916cd43dd8448eb211c80319c-"+spans["upstream"].SpanContext().SpanID().String()+"-01", told.Get("Traceparent"))
}

func TestAPeerThatIsNotBelievedDoesNotDecideWhatIsTraced(t *testing.T) {
	var told http.Header
	upstream := newUpstream(t, func(_ http.ResponseWriter, r *http.Request) { told = r.Header.Clone() })
	g := newTraced(t, upstream.URL, func(o *Options) {
		o.Policy.Identity = identity.NewSource(nil, "")
		o.Policy.Redact = true
	})
	req := newRequest(t, http.MethodGet, g.URL, "query", "query=up")
	req.Header.Set("Traceparent", parent)
	req.Header.Set("Tracestate", "a=b")
	require.Equal(t, http.StatusOK, do(t, g.Client(), req).code)
	root := g.wait(t, 3)["GET /api/v1/query"]
	require.False(t, root.Parent().IsValid())
	require.NotContains(t, told.Get("Traceparent"), "0af7651916cd43dd8448eb211c80319c")
	require.Empty(t, told.Get("Tracestate"))
	require.NotContains(t, attributesOf(root), "db.query.text", "redacted, as in the query log")
}

func TestSpansSayWhatWentWrong(t *testing.T) {
	upstream := httptest.NewServer(nil)
	upstream.Close()
	g := newTraced(t, upstream.URL, nil)
	require.Equal(t, http.StatusServiceUnavailable, g.get(t, "/api/v1/query?query=up").code)
	spans := g.wait(t, 3)
	require.Equal(t, codes.Error, spans["upstream"].Status().Code)
	require.Equal(t, codes.Error, spans["GET /api/v1/query"].Status().Code)

	require.Equal(t, http.StatusUnprocessableEntity, g.get(t, "/api/v1/series?match[]="+url.QueryEscape(`{le!=""}`)).code)
	refused := g.wait(t, 4)["GET /api/v1/series"]
	require.Equal(t, codes.Unset, refused.Status().Code, "promguard did its work")
	require.Contains(t, refused.Attributes(), attribute.StringSlice("promguard.limits", []string{"selectivity:enforce"}))

	require.Equal(t, http.StatusNotFound, g.get(t, "/api/v1/"+strings.Repeat("x", 50)).code)
	require.Contains(t, g.wait(t, 5), "request", "a path of the client's choice is no name")
}
