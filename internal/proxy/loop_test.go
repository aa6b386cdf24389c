// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// ring serves proxies, each of which has the next one behind it, and the last one the
// first. It counts what they are asked.
func ring(t *testing.T, n int) (proxies []*testProxy, asked *atomic.Int64) {
	t.Helper()
	asked = &atomic.Int64{}
	servers := make([]*httptest.Server, n)
	handlers := make([]http.Handler, n)
	for i := range servers {
		servers[i] = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			handlers[i].ServeHTTP(w, r)
		}))
		t.Cleanup(servers[i].Close)
	}
	for i := range servers {
		g := newProxy(t, servers[(i+1)%n].URL, nil)
		mux := http.NewServeMux()
		mux.HandleFunc("/-/ready", g.proxy.HandleReady)
		mux.Handle("/", g.proxy)
		handlers[i] = mux
		proxies = append(proxies, &testProxy{servers[i], g.proxy, g.reg})
	}
	return proxies, asked
}

func TestPromguardThatIsItsOwnUpstreamRefusesItsOwnRequests(t *testing.T) {
	for n := 1; n <= 3; n++ {
		proxies, asked := ring(t, n)
		for _, target := range []string{"/api/v1/query?query=up", "/api/v1/status/buildinfo", "/api/v1/label/a/values"} {
			asked.Store(0)
			a := proxies[0].get(t, target)
			require.Equal(t, http.StatusServiceUnavailable, a.code)
			requireEnvelope(t, a, typeUnavailable, "this promguard", "--upstream.url")
			require.EqualValues(t, n+1, asked.Load())
		}
		require.InDelta(t, 3, proxies[0].value(t, "promguard_refused_total", reasonLoop), 0)
		require.InDelta(t, 3, proxies[n-1].value(t, "promguard_upstream_errors_total", reasonLoop), 0)
	}
}

func TestPromguardThatIsItsOwnUpstreamIsNotReady(t *testing.T) {
	proxies, asked := ring(t, 1)
	require.ErrorContains(t, proxies[0].proxy.Probe(context.Background()), "this promguard")
	require.EqualValues(t, 1, asked.Load())
	require.ErrorContains(t, proxies[0].proxy.Ready(), "does not answer")
}

func TestAnotherPromguardInFrontIsAllowedAndNamedOnce(t *testing.T) {
	var via []string
	upstream := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		via = r.Header["Via"]
		io.WriteString(w, "{}")
	})
	var log bytes.Buffer
	inner := newProxy(t, upstream.URL, nil, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	outer := newProxy(t, inner.URL, nil)
	for range 3 {
		require.Equal(t, 200, outer.get(t, "/api/v1/query?query=up").code)
	}
	require.Equal(t, []string{"1.1 " + outer.proxy.Name(), "1.1 " + inner.proxy.Name()}, via)
	require.Equal(t, 1, strings.Count(log.String(), "another promguard"))
	require.Contains(t, log.String(), outer.proxy.Name())
}

func TestMadeUpNamesOfPromguardsFillNoLog(t *testing.T) {
	upstream := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") })
	var log bytes.Buffer
	g := newProxy(t, upstream.URL, nil, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	for i := range 100 {
		req := newRequest(t, http.MethodGet, g.URL, "labels", "")
		req.Header.Add("Via", "1.0 fred, 1.1 promguard-"+strings.Repeat("x", i)+" (a comment), HTTP")
		require.Equal(t, 200, do(t, g.Client(), req).code)
	}
	require.Equal(t, 10, strings.Count(log.String(), "another promguard"))
}
