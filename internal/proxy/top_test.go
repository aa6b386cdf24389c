// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/screen"
)

// top asks until the total has so many requests: a request is counted when its
// answer has been sent.
func (g *testProxy) top(t *testing.T, params string, requests int) *screen.TopReport {
	t.Helper()
	var report *screen.TopReport
	require.Eventually(t, func() bool {
		w := httptest.NewRecorder()
		g.proxy.HandleTop(w, httptest.NewRequest(http.MethodGet, "/?"+params, nil))
		require.Equal(t, http.StatusOK, w.Code, w.Body)
		var a struct{ Data *screen.TopReport }
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &a))
		report = a.Data
		return report.Total.Requests == requests
	}, time.Minute, time.Millisecond)
	return report
}

func TestTopQueriesAreToldByWhoAsked(t *testing.T) {
	upstream := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
	})
	g := newProxy(t, upstream.URL, nil)
	ask := func(query, panel string) {
		req := newRequest(t, http.MethodPost, g.URL, "query", url.Values{"query": {query}}.Encode())
		req.Header.Set("X-Dashboard-Uid", "d1")
		req.Header.Set("X-Panel-Id", panel)
		require.Equal(t, http.StatusOK, do(t, g.Client(), req).code)
	}
	ask(`rate(up{job="a"}[5m])`, "1")
	ask(`rate(up{job="b"}[9m])`, "1")
	ask(`rate(up{job="a"}[5m])`, "2")
	require.Equal(t, http.StatusUnprocessableEntity, g.get(t, "/api/v1/query?query="+url.QueryEscape(`{le!=""}`)).code)
	r := g.top(t, "by=bytes", 3)
	require.Len(t, r.Queries, 2, "one query on two panels")
	q := r.Queries[0]
	require.Equal(t, "d1 1", q.Dashboard+" "+q.Panel)
	require.Equal(t, `rate(up{job="a"}[5m])`, q.Text)
	require.Equal(t, 2, q.Requests)
	require.Positive(t, q.Seconds)

	policy := newPolicy(t, nil)
	policy.Redact = true
	g.proxy.SetPolicy(policy)
	require.Empty(t, g.top(t, "", 3).Queries[0].Text)
}

// codeOf returns the status of an answer, or 0: it may be called from any goroutine.
func (g *testProxy) codeOf(path string) int {
	res, err := g.Client().Get(g.URL + path)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return 0
	}
	return res.StatusCode
}

func TestARequestThatGotACopyCostsTheServerNothing(t *testing.T) {
	release := make(chan struct{})
	upstream := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		<-release
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"status":"success","data":{}}`)
	})
	g := newProxy(t, upstream.URL, nil, func(o *Options) { o.Policy.Collapse = true })
	done := make(chan int)
	for range 2 {
		go func() { done <- g.codeOf("/api/v1/query?query=up") }()
	}
	require.Eventually(t, func() bool { return g.value(t, "promguard_collapsed_total") == 1 }, time.Minute, time.Millisecond)
	close(release)
	require.Equal(t, http.StatusOK, <-done)
	require.Equal(t, http.StatusOK, <-done)
	q := g.top(t, "", 2).Queries[0]
	require.Equal(t, 2, q.Requests)
	require.InDelta(t, q.Longest, q.Seconds, 1e-9)
}
