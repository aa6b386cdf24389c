// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const emptyConfig = "global: {}\n"

// requests that dashboards make, each with a fixed time so that two servers on
// the same data give the same answer.
func requests(t *testing.T, s *server) []string {
	t.Helper()
	newest := metric(t, s.url, "prometheus_tsdb_head_max_time_seconds", nil)
	at := func(offset float64) string {
		b, err := json.Marshal(newest + offset)
		require.NoError(t, err)
		return string(b)
	}
	values := func(kv ...string) string {
		v := url.Values{}
		for i := 0; i < len(kv); i += 2 {
			v.Add(kv[i], kv[i+1])
		}
		return v.Encode()
	}
	return []string{
		"query?" + values("query", `count by (job) ({__name__=~"kube_pod_info|up"})`, "time", at(0)),
		"query?" + values("query", `kube_pod_info{namespace!=""}`, "time", at(0), "limit", "7"),
		"query?" + values("query", `histogram_quantile(0.9, sum by (le) (apiserver_request_duration_seconds_bucket))`, "time", at(0)),
		"query?" + values("query", `"<html> & more"`, "time", at(0)),
		"query_range?" + values("query", `sum by (namespace) (kube_pod_info)`, "start", at(-60), "end", at(0), "step", "15"),
		"query_range?" + values("query", `kube_pod_info`, "start", at(-30), "end", at(0), "step", "15s"),
		"query_exemplars?" + values("query", `kube_pod_info`, "start", at(-60), "end", at(0)),
		"series?" + values("match[]", `kube_pod_info`),
		"series?" + values("match[]", `kube_pod_info`, "match[]", `up`, "limit", "10"),
		"labels?" + values("match[]", `kube_pod_info`),
		"label/namespace/values?" + values("limit", "3"),
		"label/__name__/values",
		"metadata?limit=5",
		"format_query?" + values("query", `sum(up)by(job)`),
		"query?" + values("query", `sum(`),
		"query_range?" + values("query", `up`, "start", "soon", "end", "1", "step", "1"),
		"series?" + values("match[]", `{job=`),
	}
}

// body leaves out what two processes may say differently.
func body(a answer) string { return strings.TrimSpace(a.body) }

func TestEveryHistogramIsRefusedByPromguardOnEveryEndpoint(t *testing.T) {
	t.Parallel()
	g := promguard(t, prometheus(t, cluster.data(t), emptyConfig))
	const selector = `{le!=""}`
	m, q := "match[]="+url.QueryEscape(selector), "query="+url.QueryEscape("count("+selector+")")
	for _, path := range []string{
		"series?" + m, "labels?" + m, "label/pod/values?" + m, "query?" + q,
		"query_range?start=0&end=60&step=15&" + q, "query_exemplars?start=0&end=60&" + q,
	} {
		a := get(t, g.url+"/api/v1/"+path)
		require.Equal(t, http.StatusUnprocessableEntity, a.code, "%s: %s", path, a.body)
		var envelope map[string]any
		require.NoError(t, json.Unmarshal([]byte(a.body), &envelope))
		require.Equal(t, "error", envelope["status"])
		require.NotContains(t, envelope, "data")
		require.Contains(t, envelope["error"], selector, "the refusal names what it refuses")
		require.Contains(t, envelope["error"], "Name a metric", "the refusal says what to do")
	}
	endpoint, form := g.url+"/api/v1/series", m
	require.Equal(t, http.StatusUnprocessableEntity, post(t, endpoint, form).code)
}

func TestSensibleRequestsPassPromguardByteForByte(t *testing.T) {
	t.Parallel()
	p := prometheus(t, cluster.data(t), emptyConfig)
	g := promguard(t, p)
	for _, path := range requests(t, p) {
		direct, proxied := get(t, p.url+"/api/v1/"+path), get(t, g.url+"/api/v1/"+path)
		require.Equal(t, direct.code, proxied.code, path)
		require.Equal(t, body(direct), body(proxied), path)
		require.Equal(t, direct.header.Get("Content-Type"), proxied.header.Get("Content-Type"), path)
		endpoint, form, _ := strings.Cut(path, "?")
		if strings.HasPrefix(endpoint, "query") || endpoint == "series" || endpoint == "labels" {
			direct, proxied = post(t, p.url+"/api/v1/"+endpoint, form), post(t, g.url+"/api/v1/"+endpoint, form)
			require.Equal(t, direct.code, proxied.code, path)
			require.Equal(t, body(direct), body(proxied), "POST %s", path)
		}
	}
}

func TestDeadlineChangesNoAnswerThatIsInTime(t *testing.T) {
	t.Parallel()
	off := prometheus(t, cluster.data(t), emptyConfig, "--guard.api-timeout=0", "--guard.drop-rules=off", "--guard.wal-replay-gomaxprocs=off")
	on := prometheus(t, cluster.data(t), emptyConfig)
	for _, path := range requests(t, off) {
		want, got := get(t, off.url+"/api/v1/"+path), get(t, on.url+"/api/v1/"+path)
		require.Equal(t, want.code, got.code, path)
		require.Equal(t, want.body, got.body, path)
	}
}

// Selectors that take the server long: all series, and all of them sorted.
var heavy = map[string]string{
	"one selector":  "match[]=" + url.QueryEscape(`{job!=""}`),
	"two selectors": "match[]=" + url.QueryEscape(`{job!=""}`) + "&match[]=" + url.QueryEscape(`{instance!=""}`),
}

func TestReadEndsAtItsDeadlineAndUpstreamGoesOn(t *testing.T) {
	t.Parallel()
	on := clusterServer(t, "--guard.api-timeout=1ms")
	for _, endpoint := range []string{"/api/v1/labels", "/federate"} {
		t.Run(endpoint+" is answered with 503", func(t *testing.T) {
			a := get(t, on.url+endpoint+"?"+everything)
			require.Equal(t, http.StatusServiceUnavailable, a.code)
			for _, part := range []string{endpoint, "1ms", "--guard.api-timeout"} {
				require.Contains(t, a.body, part)
			}
			if endpoint != "/federate" {
				requireRefusal(t, a, http.StatusServiceUnavailable, "timeout", "deadline")
			}
			requireStopped(t, on, endpoint, "deadline")
		})
	}
	require.NotContains(t, on.out.String(), "level=ERROR")

	// Its deadlines run while clients read nothing.
	waits := clusterServer(t, "--guard.min-client-rate=off", "--guard.api-timeout=10m")
	for name, query := range heavy {
		t.Run("/api/v1/series, which has begun, is cut off: "+name, func(t *testing.T) {
			resp := begun(t, waits.url+"/api/v1/series?"+query)
			defer resp.Body.Close()
			eventually(t, "the read ends", func() bool {
				return metric(t, waits.url, "prometheus_guard_api_requests_in_flight", nil) == 0
			})
			_, err := io.Copy(io.Discard, resp.Body)
			require.Error(t, err, "a part of the answer looks like the whole")
			requireStopped(t, waits, "/api/v1/series", "deadline")
		})
	}
	require.NotContains(t, waits.out.String(), "level=ERROR")
}

// begun asks with longer and longer deadlines until an answer has begun, and returns it
// unread.
func begun(t *testing.T, target string) *http.Response {
	t.Helper()
	for timeout := 100 * time.Millisecond; ; timeout *= 2 {
		resp, err := http.Get(target + "&timeout=" + timeout.String())
		require.NoError(t, err)
		if resp.StatusCode == http.StatusOK {
			return resp
		}
		resp.Body.Close()
		require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		require.Less(t, timeout, 2*time.Minute, "no answer begins")
	}
}

func requireStopped(t *testing.T, s *server, endpoint, reason string) {
	t.Helper()
	eventually(t, "the read is counted as stopped", func() bool {
		return metric(t, s.url, "prometheus_guard_api_requests_stopped_total", map[string]string{"endpoint": endpoint, "reason": reason}) > 0
	})
}

func TestWorkStopsSoonAfterTheClientHasLeft(t *testing.T) {
	// A collection after the client has left would be counted as work for it.
	p := clusterServer(t, "--guard.api-timeout=10m", "GOGC=off")
	g := promguard(t, p)
	inFlight := func() float64 {
		return metric(t, p.url, "prometheus_guard_api_requests_in_flight", nil)
	}
	// Selective enough for promguard, and still most of the cluster.
	const jobs = `{job=~"kubelet|apiserver|kube-state-metrics|node-exporter"}`
	query := "query=" + url.QueryEscape("count by (instance) ("+jobs+")")
	series := "match[]=" + url.QueryEscape(`{__name__=~"[a-m].+",`+jobs[1:]) + "&match[]=" + url.QueryEscape(jobs)
	for name, target := range map[string]string{
		"/federate":               p.url + "/federate?" + heavy["two selectors"],
		"/query":                  p.url + "/api/v1/query?" + query,
		"/series":                 p.url + "/api/v1/series?" + series,
		"/query, with promguard":  g.url + "/api/v1/query?" + query,
		"/series, with promguard": g.url + "/api/v1/series?" + series,
	} {
		t.Run(name, func(t *testing.T) {
			before := p.cpu(t)
			require.Equal(t, http.StatusOK, get(t, target).code)
			whole := p.cpu(t) - before

			used := cpuAfterLeaving(t, p, target, inFlight)
			// The polls of the metrics are counted too, and a busy machine
			// makes any of it dearer, but not three times in a row.
			for range 2 {
				used = min(used, cpuAfterLeaving(t, p, target, inFlight))
			}
			require.LessOrEqual(t, used, whole/2, "the server works on for a client that has left")
			t.Logf("%s of CPU since the client left, where the whole answer takes %s", used, whole)
		})
	}
	require.Zero(t, metric(t, g.telemetry, "promguard_requests_in_flight", nil))
}

// cpuAfterLeaving returns the processor time that the server uses after a
// client has left in the middle of a request.
func cpuAfterLeaving(t *testing.T, p *server, target string, inFlight func() float64) time.Duration {
	t.Helper()
	leave(t, target, func() bool { return inFlight() > 0 })
	before := p.cpu(t)
	eventually(t, "the server works no more for a client that has left", func() bool { return inFlight() == 0 })
	return p.cpu(t) - before
}

func TestGuardAnswersInTheEnvelopeWhenTheServerBehindIsGone(t *testing.T) {
	t.Parallel()
	p := prometheus(t, t.TempDir(), emptyConfig)
	g := promguard(t, p)
	p.stop(t)
	a := get(t, g.url+"/api/v1/query?query=up")
	require.Contains(t, []int{http.StatusBadGateway, http.StatusServiceUnavailable}, a.code)
	var envelope map[string]string
	require.NoError(t, json.Unmarshal([]byte(a.body), &envelope))
	require.Equal(t, "error", envelope["status"])
	require.NotEmpty(t, envelope["error"])
}
