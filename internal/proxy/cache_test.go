// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/proxy/answercache"
	"github.com/promguard/promguard/internal/querylimit"
)

func withCache(o *Options) {
	o.Policy.Cache = answercache.Options{MaxBytes: 8 << 20, TTL: time.Hour, Round: time.Minute}
}

func TestTheCacheTellsApartWhatMayDiffer(t *testing.T) {
	var asked atomic.Int64
	upstream := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"status":"success","data":["%d"]}`, asked.Add(1))
	})
	g := newGuard(t, upstream.URL, nil, withCache)
	ask := func(path string, header ...string) (hit bool) {
		t.Helper()
		path, params, _ := strings.Cut(path, "?")
		req := newRequest(t, http.MethodGet, g.URL, path, params)
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		a := do(t, g.Client(), req)
		require.Equal(t, http.StatusOK, a.code, a.body)
		return a.header.Get("Age") != ""
	}
	for _, path := range []string{
		"labels", "labels?limit=5", "labels?limit=6", "labels?match[]=up", "labels?match[]=down", "labels?start=1200&end=6000", "labels?start=600&end=6000",
		"label/job/values", "label/pod/values", "metadata", "metadata?metric=up", "metadata?limit=1", "status/buildinfo",
	} {
		require.False(t, ask(path), path)
		require.True(t, ask(path), path)
	}
	require.True(t, ask("labels?start=1259.9&end=6059"), "the same minutes")
	require.False(t, ask("labels?start=1260&end=6059"))
	require.False(t, ask("labels?start=1200&end=1210"))
	require.False(t, ask("labels?start=1220&end=1230"), "a short range close by is another one")
	require.True(t, ask("labels?start=1220&end=1230"))
	require.False(t, ask("labels?end=6000"))
	require.True(t, ask("labels?end=6001"))
	require.False(t, ask("labels?start=-30"))
	require.False(t, ask("labels?start=30"))
	for _, header := range [][]string{{"X-Scope-OrgID", "a"}, {"Authorization", "Bearer x"}, {"Cookie", "a=b"}, {"X-Grafana-User", "u"}, {"Accept-Encoding", "deflate"}} {
		require.False(t, ask("labels", header...), header)
		require.True(t, ask("labels", header...), header)
	}
	require.True(t, ask("labels", "User-Agent", "other"))
	require.True(t, ask("labels", "X-Dashboard-Uid", "other"))
	require.True(t, ask("labels", "X-New", "other"), "the server does not get it")
	require.False(t, ask("labels", "Cache-Control", "no-cache"))
	for _, path := range []string{"query?query=up", "query_range?query=up&start=1&end=2&step=1", "series?match[]=up", "rules", "status/tsdb"} {
		require.False(t, ask(path), path)
		require.False(t, ask(path), path)
	}
	require.InDelta(t, 1, g.value(t, "promguard_cache_requests_total", "bypass"), 0)

	policy := newPolicy(t, nil)
	o := Options{Policy: policy}
	withCache(&o)
	g.proxy.SetPolicy(o.Policy)
	require.Zero(t, g.value(t, "promguard_cache_bytes"))
	require.False(t, ask("labels"), "a reload empties it")
	require.True(t, ask("labels"))
	g.proxy.SetPolicy(policy)
	require.False(t, ask("labels"), "off")
}

// The server behind is told these by the guard, whatever the client says of them.
func TestTheCacheTellsApartWhoIsForwardedFor(t *testing.T) {
	var asked atomic.Int64
	upstream := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		data := []string{r.Header.Get("X-Forwarded-For"), r.Header.Get("X-Forwarded-Host"), r.Header.Get("X-Forwarded-Proto"), r.Header.Get("Forwarded")}
		fmt.Fprintf(w, `{"status":"success","data":["%s"]}`, strings.Join(data, `","`))
	})
	g := newGuard(t, upstream.URL, nil, withCache)
	ask := func(change func(*http.Request)) (body string) {
		t.Helper()
		r := httptest.NewRequest(http.MethodGet, "http://a/api/v1/labels", nil)
		r.RemoteAddr = "10.0.0.1:5000"
		change(r)
		w := httptest.NewRecorder()
		g.proxy.ServeHTTP(w, r)
		require.Equal(t, http.StatusOK, w.Code)
		return w.Body.String()
	}
	for i, c := range []struct {
		change func(*http.Request)
		want   string
	}{
		{func(*http.Request) {}, `"10.0.0.1","a","http",""`},
		{func(r *http.Request) { r.RemoteAddr = "10.0.0.2:5000" }, `"10.0.0.2","a","http",""`},
		{func(r *http.Request) { r.Host = "b" }, `"10.0.0.1","b","http",""`},
		{func(r *http.Request) { r.TLS = &tls.ConnectionState{} }, `"10.0.0.1","a","https",""`},
	} {
		for range 2 {
			require.Equal(t, `{"status":"success","data":[`+c.want+`]}`, ask(c.change))
			require.EqualValues(t, i+1, asked.Load())
		}
	}
	ask(func(r *http.Request) {
		r.RemoteAddr = "10.0.0.1:6000"
		for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded"} {
			r.Header.Set(name, "c")
		}
	})
	require.EqualValues(t, 4, asked.Load(), "as the first")
}

func TestLimitsHoldForWhatComesFromTheCache(t *testing.T) {
	upstream := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"status":"success","data":["%s","b"]}`, strings.Repeat("a", 5000))
	})
	g := newGuard(t, upstream.URL, func(o *querylimit.Options) {
		o.Responses.Mode = querylimit.ModeEnforce
		o.Responses.Classes[querylimit.ClassMetadata] = querylimit.ResponseLimit{Max: 4000, Truncate: true}
		o.Selectivity = querylimit.ModeWarn
	}, withCache)
	for range 2 {
		a := g.get(t, "/api/v1/labels?match[]={le!=%22%22}")
		require.Equal(t, http.StatusOK, a.code)
		require.Contains(t, a.body, "Limit selectivity")
		require.Contains(t, a.body, "was truncated")
		require.NotContains(t, a.body, "aaaa")
	}
	require.InDelta(t, 1, g.value(t, "promguard_cache_requests_total", "hit"), 0)
}

func TestIdenticalRequestsThatMissTheCacheAreSentOnce(t *testing.T) {
	var asked atomic.Int64
	release := make(chan struct{})
	upstream := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		<-release
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"status":"success","data":[]}`)
	})
	g := newGuard(t, upstream.URL, nil, withCache, func(o *Options) { o.Policy.Collapse = true })
	done := make(chan int)
	for range 5 {
		go func() { done <- g.codeOf("/api/v1/labels") }()
	}
	require.Eventually(t, func() bool { return g.value(t, "promguard_collapsed_total") == 4 }, 20*time.Second, time.Millisecond)
	close(release)
	for range 5 {
		require.Equal(t, http.StatusOK, <-done)
	}
	require.Equal(t, http.StatusOK, g.get(t, "/api/v1/labels").code)
	require.EqualValues(t, 1, asked.Load())
}
