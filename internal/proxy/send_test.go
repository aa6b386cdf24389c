// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/promslog"
	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/proxy/upstream"
	"github.com/promguard/promguard/internal/querylimit"
)

var (
	errDial  = &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	errReset = &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}
)

// pair is a Proxy in front of the servers a and b, which are both ready. The first
// answers a request by broken, the second by whole.
type pair struct {
	*Proxy

	sent []string // host and body of each request
	reg  *prometheus.Registry
}

func newPair(t *testing.T, broken func() (*http.Response, error)) *pair {
	t.Helper()
	p := &pair{reg: prometheus.NewRegistry()}
	transport := roundTrip(func(req *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(req.Body)
		require.NoError(t, err)
		p.sent = append(p.sent, req.URL.Host+req.URL.Path+" "+string(body))
		if req.URL.Host == "a" && broken != nil {
			res, err := broken()
			if res != nil {
				res.Request = req
			}
			return res, err
		}
		return textResponse(req, strings.NewReader(`{"status":"success"}`)), nil
	})
	looks := roundTrip(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: req}, nil
	})
	pool := upstream.NewPool(upstream.Options{
		URLs:      []*url.URL{{Scheme: "http", Host: "a", Path: "/one"}, {Scheme: "http", Host: "b", Path: "/two/"}},
		Transport: looks, Registerer: p.reg, Logger: promslog.NewNopLogger(),
	})
	require.NoError(t, pool.Check(t.Context()))
	p.Proxy = New(Options{Pool: pool, Policy: newPolicy(t, nil), Registerer: p.reg, Logger: promslog.NewNopLogger(), Transport: transport})
	return p
}

func TestFailedRequestGoesToTheOtherServerOnlyIfItCannotBeTheCause(t *testing.T) {
	unsent := func() (*http.Response, error) { return nil, errDial }
	reset := func() (*http.Response, error) { return nil, errReset }
	answers := func(code int, header ...string) func() (*http.Response, error) {
		return func() (*http.Response, error) {
			h := http.Header{}
			for _, name := range header {
				h.Set(name, "false")
			}
			return &http.Response{StatusCode: code, Header: h, Body: http.NoBody}, nil
		}
	}
	cut := func() (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(io.MultiReader(strings.NewReader("{"), iotest.ErrReader(errReset)))}, nil
	}
	const heavy, light = "/api/v1/query?query=up", "/api/v1/labels?limit=100"
	for name, tc := range map[string]struct {
		broken func() (*http.Response, error)
		target string
		again  string // the reason; "" if it is not sent again
		code   int
	}{
		"refused, heavy":                         {unsent, heavy, resentUnsent, 200},
		"refused, light":                         {unsent, light, resentUnsent, 200},
		"not ready, heavy":                       {answers(503, "X-Prometheus-Stopping"), heavy, resentNotReady, 200},
		"reset, heavy":                           {reset, heavy, "", 503},
		"reset, a range":                         {reset, "/api/v1/query_range?query=up&start=0&end=1&step=1", "", 503},
		"reset, exemplars":                       {reset, "/api/v1/query_exemplars?query=up&start=0&end=1", "", 503},
		"reset, all series":                      {reset, "/api/v1/series?match[]=up", "", 503},
		"reset, too many series":                 {reset, "/api/v1/series?match[]=up&limit=10001", "", 503},
		"reset, some series":                     {reset, "/api/v1/series?match[]=up&limit=1", "", 503},
		"reset, labels of series":                {reset, "/api/v1/labels?match[]=up&limit=1", "", 503},
		"reset, values of series":                {reset, "/api/v1/label/pod/values?match[]=up&limit=1", "", 503},
		"reset, too many values":                 {reset, "/api/v1/label/pod/values?limit=10001", "", 503},
		"reset, some values":                     {reset, "/api/v1/label/pod/values?limit=10000", resentLight, 200},
		"reset, light":                           {reset, light, resentLight, 200},
		"reset, status":                          {reset, "/api/v1/status/buildinfo", resentLight, 200},
		"reset, formatting":                      {reset, "/api/v1/format_query?query=up", resentLight, 200},
		"cut at its beginning, heavy":            {cut, heavy, "", 503},
		"cut at its beginning, light":            {cut, light, resentLight, 200},
		"overloaded, light":                      {answers(503, "Retry-After"), light, "", 503},
		"an error of its own, light":             {answers(500), light, "", 500},
		"the answer to a bad query is an answer": {answers(422), heavy, "", 422},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, tc.broken)
			rec := ask(t.Context(), p.Proxy, tc.target)
			require.Equal(t, tc.code, rec.Code)
			from := ""
			switch {
			case tc.again != "":
				from = "2"
			case tc.code != 503 || strings.HasPrefix(name, "overloaded"):
				from = "1"
			}
			require.Equal(t, from, rec.Header().Get(headerServer), "which server gave the answer")
			path, _, _ := strings.Cut(tc.target, "?")
			want := []string{"a/one" + path + " "}
			if tc.again != "" {
				want = append(want, "b/two"+path+" ")
				g := guard{reg: p.reg}
				require.Equal(t, 1.0, g.value(t, "promguard_upstream_resent_total", tc.again))
			}
			require.Equal(t, want, p.sent)
			if tc.again == resentUnsent || tc.again == resentNotReady {
				ask(t.Context(), p.Proxy, tc.target)
				require.Equal(t, append(want, "b/two"+path+" "), p.sent, "the next one goes there at once")
			}
		})
	}
}

func TestRequestsEndWhenTheirServerIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hung atomic.Bool
		sent := make(chan string, 10)
		wait := roundTrip(func(req *http.Request) (*http.Response, error) {
			if req.URL.Host == "a" && hung.Load() {
				<-req.Context().Done()
				return nil, context.Cause(req.Context())
			}
			return textResponse(req, strings.NewReader(`{"status":"success"}`)), nil
		})
		reg := prometheus.NewRegistry()
		pool := upstream.NewPool(upstream.Options{
			URLs: []*url.URL{{Scheme: "http", Host: "a"}, {Scheme: "http", Host: "b"}}, Transport: wait, Registerer: reg, Logger: promslog.NewNopLogger(),
		})
		require.NoError(t, pool.Check(t.Context()))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = pool.Run(ctx) }()
		policy := newPolicy(t, func(o *querylimit.Options) {
			for c := range o.Deadlines {
				o.Deadlines[c] = time.Minute
			}
		})
		p := New(Options{Pool: pool, Policy: policy, Registerer: reg, Logger: promslog.NewNopLogger(), Transport: roundTrip(func(req *http.Request) (*http.Response, error) {
			sent <- req.URL.Host + req.URL.Path
			return wait(req)
		})})
		hung.Store(true)
		begin, heavy, light := time.Now(), make(chan *httptest.ResponseRecorder), make(chan *httptest.ResponseRecorder)
		go func() { heavy <- ask(ctx, p, "/api/v1/query?query=up") }()
		go func() { light <- ask(ctx, p, "/api/v1/labels?limit=10") }()
		ended := <-heavy
		require.Equal(t, http.StatusServiceUnavailable, ended.Code)
		require.Contains(t, ended.Body.String(), "the upstream server did not answer (it answers no more)")
		require.Equal(t, "5", ended.Header().Get("Retry-After"))
		require.Equal(t, http.StatusOK, (<-light).Code)
		require.LessOrEqual(t, time.Since(begin), 15*time.Second, "two looks without an answer")
		close(sent)
		got := map[string]int{}
		for host := range sent {
			got[host]++
		}
		require.Equal(t, map[string]int{"a/api/v1/query": 1, "a/api/v1/labels": 1, "b/api/v1/labels": 1}, got, "what may be the reason is not sent twice")
	})
}

func TestFormIsWholeWhenItIsSentAgain(t *testing.T) {
	p := newPair(t, func() (*http.Response, error) { return nil, errDial })
	req := newRequest(t, http.MethodPost, "", "query", "query=up&time=7")
	rec := httptest.NewRecorder()
	p.ServeHTTP(rec, req)
	require.Equal(t, 200, rec.Code)
	require.Equal(t, []string{"a/one/api/v1/query query=up&time=7", "b/two/api/v1/query query=up&time=7"}, p.sent)
}

func TestWithoutAnyServerTheErrorSaysHowEachIs(t *testing.T) {
	p := newPair(t, func() (*http.Response, error) { return nil, errDial })
	require.Equal(t, 200, ask(t.Context(), p.Proxy, "/api/v1/query?query=up").Code)
	b, err := p.pool.Pick(false)
	require.NoError(t, err)
	p.pool.Failed(b, upstream.NotReady)
	rec := ask(t.Context(), p.Proxy, "/api/v1/query?query=up")
	require.Equal(t, 503, rec.Code)
	require.Equal(t, "5", rec.Header().Get("Retry-After"))
	require.JSONEq(t, `{"status":"error","errorType":"unavailable","error":"Try again in some seconds: no server behind is ready: upstream 1 does not answer, upstream 2 is not ready"}`, rec.Body.String())
	require.Equal(t, 200, ask(t.Context(), p.Proxy, "/api/v1/status/walreplay").Code, "what a server answers in any state")
	g := guard{reg: p.reg}
	require.Equal(t, 1.0, g.value(t, "promguard_upstream_errors_total", reasonUnavailable))
}

func TestTenantReachesTheServerBelowItsPath(t *testing.T) {
	var got []string
	behind := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.URL.Path+" "+r.Header.Get("X-Scope-OrgID"))
		_, _ = io.WriteString(w, "{}")
	})
	g := newGuard(t, behind.URL+"/prometheus/", nil, opened, func(o *Options) { o.Kind, o.RoutePrefix = upstream.KindMimir, "/mimir" })
	for _, path := range []string{"/api/v1/query?query=up", "/api/v1/label/a%3Fb/values", "/federate?match[]=up"} {
		req, err := http.NewRequest(http.MethodGet, g.URL+"/mimir"+path, nil)
		require.NoError(t, err)
		req.Header.Set("X-Scope-OrgID", "team-a")
		require.Equal(t, 200, do(t, g.Client(), req).code)
	}
	read := newRead(t, g.URL+"/mimir", readBody(t, equal("__name__", "up")))
	read.Header.Set("X-Scope-OrgID", "team-a")
	require.Equal(t, 200, do(t, g.Client(), read).code)
	require.Equal(t, []string{
		"/prometheus/api/v1/query team-a", "/prometheus/api/v1/label/a?b/values team-a",
		"/prometheus/federate team-a", "/prometheus/api/v1/read team-a",
	}, got)
}
