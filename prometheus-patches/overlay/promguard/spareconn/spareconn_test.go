// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package spareconn

import (
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/prometheus/prometheus/util/netconnlimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts a server with the given number of connections and spare ones.
func serve(t *testing.T, connections int, p *Pool) string {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &http.Server{
		Handler: p.Handler("/prefix", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) })),
	}
	l := p.Listener(inner, netconnlimit.NewSharedSemaphore(connections))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-done
	})
	return inner.Addr().String()
}

// occupy opens a connection that asks for nothing.
func occupy(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// client keeps connections alive, so that it is the server who closes them.
func client(t *testing.T, timeout time.Duration) *http.Client {
	c := &http.Client{Timeout: timeout, Transport: &http.Transport{}}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func status(t *testing.T, url string) (*http.Response, string) {
	t.Helper()
	resp, err := client(t, 5*time.Second).Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(body)
}

func TestHealthChecksAreAnsweredWhenAllConnectionsAreInUse(t *testing.T) {
	p := NewPool(2, prometheus.NewRegistry())
	addr := serve(t, 1, p)
	slow := occupy(t, addr)
	require.Eventually(t, func() bool {
		resp, _ := status(t, "http://"+addr+"/prefix/api/v1/query")
		return resp.StatusCode == http.StatusServiceUnavailable
	}, 5*time.Second, 10*time.Millisecond)

	for _, path := range []string{"/-/healthy", "/-/ready", "/metrics", "/api/v1/rules", "/api/v1/alerts", "/api/v1/status/guard/queries"} {
		resp, body := status(t, "http://"+addr+"/prefix"+path)
		require.Equal(t, http.StatusOK, resp.StatusCode, path)
		require.Equal(t, "/prefix"+path, body)
		require.True(t, resp.Close, "a spare connection serves one request")
	}
	for _, path := range []string{"/", "/api/v1/series", "/metricsx", "/federate"} {
		resp, body := status(t, "http://"+addr+"/prefix"+path)
		require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode, path)
		require.NotEmpty(t, resp.Header.Get("Retry-After"))
		require.Contains(t, body, "--web.max-connections")
	}
	require.Positive(t, testutil.ToFloat64(p.accepted))

	slow.Close()
	require.Eventually(t, func() bool {
		resp, _ := status(t, "http://"+addr+"/prefix/api/v1/query")
		return resp.StatusCode == http.StatusOK && !resp.Close
	}, 5*time.Second, 10*time.Millisecond, "a connection that is free again serves everything")
}

func TestConnectionsBeyondTheSpareOnesWait(t *testing.T) {
	addr := serve(t, 1, NewPool(1, nil))
	first, second := occupy(t, addr), occupy(t, addr)
	time.Sleep(50 * time.Millisecond) // Until both are accepted.
	_, err := client(t, 200*time.Millisecond).Get("http://" + addr + "/prefix/-/healthy")
	require.Error(t, err)
	second.Close()
	resp, _ := status(t, "http://"+addr+"/prefix/-/healthy")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	first.Close()
}

func TestSpareConnectionsThatAskForNothingMakeRoom(t *testing.T) {
	addr := serve(t, 1, NewPool(1, nil))
	occupy(t, addr)
	occupy(t, addr)
	time.Sleep(50 * time.Millisecond) // Until both are accepted.
	begin := time.Now()
	resp, _ := status(t, "http://"+addr+"/prefix/-/healthy")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Greater(t, time.Since(begin), patience/2)
}

func TestNoSpareConnectionsMeanUpstreamsListener(t *testing.T) {
	p := NewPool(0, nil)
	require.Nil(t, p)
	addr := serve(t, 1, p)
	occupy(t, addr)
	time.Sleep(50 * time.Millisecond)
	_, err := client(t, 200*time.Millisecond).Get("http://" + addr + "/prefix/-/healthy")
	require.Error(t, err)
}
