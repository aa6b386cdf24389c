// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/running"
)

// queries lists what runs and is as asked, or ends it.
func (g *testProxy) queries(t *testing.T, method, params string) (list []running.Query) {
	t.Helper()
	w := httptest.NewRecorder()
	g.proxy.HandleQueries(w, httptest.NewRequest(method, "/?"+params, nil))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	var a struct{ Data []running.Query }
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &a))
	return a.Data
}

func TestAnOperatorSeesAndStopsQueries(t *testing.T) {
	come, left, answered := make(chan string, 10), make(chan string, 10), make(chan string, 10)
	behind := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		query := r.FormValue("query")
		come <- query
		if query == "begun" { // More than is held back.
			_, _ = w.Write(make([]byte, 2*heldBack))
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		left <- query
	})
	g := newProxy(t, behind.URL, nil)
	ends := map[string]chan answer{}
	ask := func(query, dashboard string) {
		end := make(chan answer, 1)
		ends[query] = end
		req := newRequest(t, http.MethodGet, g.URL, "query", url.Values{"query": {query}}.Encode())
		req.Header.Set("X-Dashboard-Uid", dashboard)
		go func() {
			res, err := g.Client().Do(req)
			if err != nil {
				end <- answer{}
				return
			}
			defer res.Body.Close()
			answered <- query
			body, err := io.ReadAll(res.Body)
			if err != nil { // It was cut off.
				body = []byte(err.Error())
			}
			end <- answer{res.StatusCode, res.Header, string(body)}
		}()
	}
	ask("one", "a")
	ask("two", "a")
	ask("begun", "b")
	ask(`up{job="x"}`, "c")
	for range 4 {
		<-come
	}
	require.Equal(t, "begun", <-answered)
	require.Len(t, g.queries(t, http.MethodGet, ""), 4)
	list := g.queries(t, http.MethodGet, "dashboard=c")
	require.Len(t, list, 1)
	require.Equal(t, `up{job="x"}`, list[0].Text)
	require.Empty(t, g.queries(t, http.MethodDelete, "dashboard=c&tenant=none"), "all that is said must hold")

	w := httptest.NewRecorder()
	g.proxy.HandleQueries(w, httptest.NewRequest(http.MethodDelete, "/", nil))
	require.Equal(t, http.StatusBadRequest, w.Code, "everything is not stopped by mistake")

	require.Len(t, g.queries(t, http.MethodDelete, "fingerprint="+list[0].Fingerprint+"&id="+list[0].ID), 1)
	requireEnvelope(t, <-ends[`up{job="x"}`], "canceled", "an operator stopped this query")
	require.Len(t, g.queries(t, http.MethodDelete, "dashboard=a"), 2)
	for _, query := range []string{"one", "two"} {
		a := <-ends[query]
		require.Equal(t, http.StatusServiceUnavailable, a.code)
		require.Empty(t, a.header.Get("Retry-After"))
	}
	require.Len(t, g.queries(t, http.MethodDelete, "dashboard=b"), 1)
	require.Contains(t, (<-ends["begun"]).body, "unexpected EOF", "what has begun is cut off")
	for range 4 {
		<-left // Each request to the server has ended.
	}
	require.Eventually(t, func() bool { return len(g.queries(t, http.MethodGet, "")) == 0 }, time.Minute, time.Millisecond)
	require.InDelta(t, 4, g.value(t, "promguard_refused_total", "stopped"), 0)
}
