// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// run runs promguard's binary for a command that ends.
func run(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary(t, "promguard"), args...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Run(), "%s\n%s", out.String(), errs.String())
	return out.String(), errs.String()
}

func TestLimitsAreSuggestedFromTheLogsOfPromguardAndOfPrometheus(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	upstreamLog, proxyLog := filepath.Join(dir, "prometheus.log"), filepath.Join(dir, "promguard.log")
	p := prometheus(t, t.TempDir(), "global: {query_log_file: "+upstreamLog+"}\n")
	policy := "# ours\nlimits:\n  range: {max: 90d} # a quarter\nquery_log: {file: " + proxyLog + ", slower_than: 0s}\n"
	g, file := promguardWith(t, p, policy)
	for i := range 150 {
		end := 1_700_000_000 + i
		a := post(t, g.url+"/api/v1/query_range", url.Values{
			"query": {`sum by (job) (rate(up[5m]))`}, "start": {strconv.Itoa(end - 6*3600)}, "end": {strconv.Itoa(end)}, "step": {"60"},
		}.Encode())
		require.Equal(t, http.StatusOK, a.code, a.body)
	}
	require.Equal(t, http.StatusUnprocessableEntity, get(t, g.url+"/api/v1/series?match[]="+url.QueryEscape(`{le!=""}`)).code)
	g.stop(t) // Writes what waits.
	p.stop(t)
	for name, log := range map[string]string{"promguard's": proxyLog, "Prometheus's": upstreamLog} {
		t.Run(name, func(t *testing.T) {
			limits, told := run(t, "policy", "suggest", "--query-log="+log, "--config.file="+file, "--min-requests=100", "--min-period=0s")
			// Prometheus logs what promguard asks it, too.
			require.Regexp(t, `^1[5-9]\d requests that were answered, from `, told)
			require.Regexp(t, `(?m)^\(all\) +range +150 +6h5m +6h5m +observe 90d +observe 1d$`, told)
			require.Contains(t, limits, "\n  range: {max: 1d, mode: observe} # a quarter\n")
			suggested := filepath.Join(t.TempDir(), "new.yml") // The file had no other limits.
			require.NoError(t, os.WriteFile(suggested, []byte(limits), 0o600))
			out, _ := run(t, "policy", "test", "--config.file="+suggested, "--query-log="+log)
			refused := map[string]int{"promguard's": 1, "Prometheus's": 0}[name]
			require.Regexp(t, fmt.Sprintf(`^1[5-9]\d requests: would refuse %d `, refused), out)
		})
	}
	cmd := exec.CommandContext(t.Context(), binary(t, "promguard"), "policy", "suggest", "--query-log="+proxyLog)
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "too little evidence: 150 requests")
}

func TestTopQueriesOfARealServer(t *testing.T) {
	t.Parallel()
	p := prometheus(t, cluster.data(t), emptyConfig)
	g, _ := promguardWith(t, p, "identity: {peers: [127.0.0.1]}\n")
	ask := func(query, panel string) {
		form := url.Values{"query": {query}, "time": {"1700000000"}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.url+"/api/v1/query", strings.NewReader(form.Encode()))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("X-Dashboard-Uid", "d1")
		req.Header.Set("X-Panel-Id", panel)
		require.Equal(t, http.StatusOK, do(t, req).code)
	}
	newest := strconv.FormatFloat(metric(t, p.url, "prometheus_tsdb_head_max_time_seconds", nil), 'f', 3, 64)
	for range 3 {
		ask(`count(kube_pod_info @ `+newest+`)`, "1")
	}
	ask(`count(kube_pod_info @ `+newest+`)`, "2")
	var top struct {
		Data struct {
			Queries []struct {
				Panel, Query string
				Requests     int
				Seconds      float64
			}
			Total struct{ Requests int }
		}
	}
	eventually(t, "all requests are counted", func() bool {
		a := get(t, g.telemetry+"/api/v1/promguard/top?window=1h")
		require.NoError(t, json.Unmarshal([]byte(a.body), &top), a.body)
		return top.Data.Total.Requests == 4
	})
	require.Len(t, top.Data.Queries, 2)
	for _, q := range top.Data.Queries {
		require.Contains(t, q.Query, "kube_pod_info")
		require.Positive(t, q.Seconds)
		require.Equal(t, map[string]int{"1": 3, "2": 1}[q.Panel], q.Requests)
	}
	table, _ := run(t, "top", "--web.telemetry-address="+strings.TrimPrefix(g.telemetry, "http://"), "--window=1h")
	require.Regexp(t, `(?m) 3 +0 .* dashboard=d1 panel=1 +query +[0-9a-f]{16} +count\(kube_pod_info`, table)
}

// spanCollector is what Jaeger, Tempo and the like are to a service.
type spanCollector struct {
	*httptest.Server

	mu    sync.Mutex
	spans map[string][]*tracepb.Span // by service
}

func newSpanCollector(t *testing.T) *spanCollector {
	t.Helper()
	c := &spanCollector{spans: map[string][]*tracepb.Span{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var req collector.ExportTraceServiceRequest
		if err != nil || proto.Unmarshal(body, &req) != nil {
			http.Error(w, "no spans", http.StatusBadRequest)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, rs := range req.GetResourceSpans() {
			for _, a := range rs.GetResource().GetAttributes() {
				if a.GetKey() == "service.name" {
					for _, ss := range rs.GetScopeSpans() {
						name := a.GetValue().GetStringValue()
						c.spans[name] = append(c.spans[name], ss.GetSpans()...)
					}
				}
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// find waits for a span of a service.
func (c *spanCollector) find(t *testing.T, service string, is func(*tracepb.Span) bool) *tracepb.Span {
	t.Helper()
	var found *tracepb.Span
	eventually(t, "there is such a span of "+service, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, s := range c.spans[service] {
			if is(s) {
				found = s
				return true
			}
		}
		return false
	})
	return found
}

func TestTheSpansOfPromguardAndServerAreOneTrace(t *testing.T) {
	t.Parallel()
	c := newSpanCollector(t)
	tracing := "tracing: {endpoint: '" + strings.TrimPrefix(c.URL, "http://") + "', client_type: http, insecure: true, sampling_fraction: 1}\n"
	p := prometheus(t, t.TempDir(), tracing)
	g, file := promguardWith(t, p, "limits: {}\n")
	require.Equal(t, http.StatusOK, get(t, g.url+"/api/v1/query?query=up").code)
	require.NoError(t, os.WriteFile(file, []byte(tracing), 0o600))
	require.Equal(t, http.StatusOK, post(t, g.telemetry+"/-/reload", "").code)
	require.Equal(t, http.StatusOK, get(t, g.url+"/api/v1/query?query=vector(42)").code)
	root := c.find(t, "promguard", func(s *tracepb.Span) bool { return s.GetName() == "GET /api/v1/query" })
	sent := c.find(t, "promguard", func(s *tracepb.Span) bool { return s.GetName() == "upstream" })
	require.Equal(t, root.GetSpanId(), sent.GetParentSpanId())
	served := c.find(t, "prometheus", func(s *tracepb.Span) bool { return bytes.Equal(s.GetParentSpanId(), sent.GetSpanId()) })
	require.Equal(t, root.GetTraceId(), served.GetTraceId())
	text := ""
	for _, a := range root.GetAttributes() {
		if a.GetKey() == "db.query.text" {
			text = a.GetValue().GetStringValue()
		}
	}
	require.Equal(t, "vector(42)", text)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans["promguard"] {
		require.Equal(t, root.GetTraceId(), s.GetTraceId(), "nothing is traced before the reload")
	}
}
