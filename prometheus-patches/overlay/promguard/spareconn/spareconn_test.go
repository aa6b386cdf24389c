// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package spareconn

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/prometheus/prometheus/util/netconnlimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server answers with the path of a request, once gate lets it if there is one.
type server struct {
	*httptest.Server
	pool *Pool
	gate chan struct{}
}

// serve starts a server with so many connections and spare ones.
func serve(t *testing.T, most, spare int, http2 bool) *server {
	t.Helper()
	s := &server{pool: NewPool(most, 0, prometheus.NewRegistry()), gate: make(chan struct{})}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/wait") {
			select {
			case <-s.gate:
			case <-r.Context().Done():
			}
		}
		_, _ = io.WriteString(w, r.URL.Path)
	}))
	l := netconnlimit.SharedLimitListener(s.Listener, netconnlimit.NewSharedSemaphore(most+spare))
	s.Listener = s.pool.Bound(s.Config, "/prefix/", []net.Listener{l})[0]
	if s.EnableHTTP2 = http2; http2 {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

// occupy opens connections that ask for nothing, and waits until the server has
// all of them.
func (s *server) occupy(t *testing.T, n int) []net.Conn {
	t.Helper()
	conns := make([]net.Conn, n)
	for i := range conns {
		c, err := net.Dial("tcp", s.Listener.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		conns[i] = c
	}
	return conns
}

// run starts n requests that wait for the gate, each on a connection of its own,
// and returns when they run.
func (s *server) run(t *testing.T, n int) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	for range n {
		go func() {
			client := s.newClient()
			defer client.CloseIdleConnections()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/prefix/wait", http.NoBody)
			if err == nil {
				var resp *http.Response
				if resp, err = client.Do(req); err == nil {
					_, err = io.ReadAll(resp.Body)
					resp.Body.Close()
				}
			}
			ended <- err
		}()
	}
	require.Eventually(t, func() bool { return s.busy() == n }, time.Minute, time.Millisecond)
	return func() {
		cancel()
		for range n {
			<-ended
		}
		require.Eventually(t, func() bool { return s.busy() == 0 }, time.Minute, time.Millisecond)
	}
}

func (s *server) busy() int {
	s.pool.mtx.Lock()
	defer s.pool.mtx.Unlock()
	return s.pool.busy()
}

func (s *server) openConns() int {
	s.pool.mtx.Lock()
	defer s.pool.mtx.Unlock()
	return s.pool.open
}

// newClient returns a client that has connections of its own, and keeps them.
func (s *server) newClient() *http.Client {
	return &http.Client{Timeout: time.Minute, Transport: s.Client().Transport.(*http.Transport).Clone()}
}

func (s *server) get(t *testing.T, path string) (*http.Response, string) {
	t.Helper()
	client := s.newClient()
	defer client.CloseIdleConnections()
	resp, err := client.Get(s.URL + "/prefix" + path)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(body)
}

func both(t *testing.T, f func(t *testing.T, http2 bool)) {
	t.Run("HTTP/1.1", func(t *testing.T) { f(t, false) })
	t.Run("HTTP/2", func(t *testing.T) { f(t, true) })
}

func TestConnectionsThatAskForNothingMakeRoomForThoseThatDo(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		s := serve(t, 4, 1, http2)
		idle := s.occupy(t, 20)
		for range 3 {
			resp, body := s.get(t, "/api/v1/query")
			require.Equal(t, http.StatusOK, resp.StatusCode)
			require.Equal(t, "/prefix/api/v1/query", body)
		}
		require.LessOrEqual(t, s.openConns(), 4)
		require.Zero(t, testutil.ToFloat64(s.pool.spare))
		require.GreaterOrEqual(t, testutil.ToFloat64(s.pool.replaced), 16.0)
		_, err := idle[0].Read(make([]byte, 1))
		require.Error(t, err, "the first to come has waited for longest")
	})
}

func TestWhichConnectionMakesRoom(t *testing.T) {
	type state struct {
		used, spoke bool
		requests    int
	}
	for _, tc := range []struct {
		name  string
		open  []state
		close int // Of those that are open; -1: none.
	}{
		{"one that never carried a request, if most are such", []state{{used: true}, {}, {}}, 1},
		{"the one that is idle for longest, if most have carried some", []state{{}, {used: true}, {used: true}, {used: true}}, 1},
		{"the next one, if a request begins on the first", []state{{spoke: true}, {}, {}}, 1},
		{"an idle one, if requests begin on all others", []state{{spoke: true}, {spoke: true}, {used: true}}, 2},
		{"the first, if requests begin on all", []state{{spoke: true}, {spoke: true}}, 0},
		{"none on which a request runs", []state{{used: true, requests: 1}, {used: true, requests: 1}}, -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := NewPool(len(tc.open), 1, prometheus.NewRegistry())
			accept := func() *conn {
				inner, other := net.Pipe()
				t.Cleanup(func() { inner.Close(); other.Close() })
				return p.accept(inner).(*conn)
			}
			open := make([]*conn, len(tc.open))
			for i, is := range tc.open {
				open[i] = accept()
				open[i].unfile()
				open[i].used, open[i].requests = is.used, is.requests
				if is.spoke {
					open[i].read.Store(time.Now().UnixNano())
				}
				open[i].file()
			}
			accept()
			closed := slices.IndexFunc(open, func(c *conn) bool { return c.closed })
			require.Equal(t, tc.close, closed)
		})
	}
}

func TestAFloodOfConnectionsLeavesEachATimeForItsFirstRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(8, 0, prometheus.NewRegistry())
		l := &listener{endless{}, p}
		shortest := time.Hour
		var open []*conn
		begin := time.Now()
		for range 1000 {
			c, err := l.Accept()
			require.NoError(t, err)
			for len(open) > 0 && open[0].closed {
				shortest = min(shortest, time.Since(open[0].since))
				open = open[1:]
			}
			open = append(open, c.(*conn))
		}
		require.Equal(t, fresh, shortest)
		require.Less(t, time.Since(begin), 1000/8*fresh+fresh, "and no longer")
		require.Equal(t, 8, p.open)
	})
}

// endless is a listener to whom clients come that say nothing.
type endless struct{ net.Listener }

func (endless) Accept() (net.Conn, error) { return silent{}, nil }

type silent struct{ net.Conn }

func (silent) Close() error { return nil }

func TestARequestThatRunsIsNeverClosed(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		s := serve(t, 3, 1, http2)
		client := s.newClient()
		defer client.CloseIdleConnections()
		answered := make(chan error)
		go func() {
			resp, err := client.Get(s.URL + "/prefix/wait")
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				resp.Body.Close()
			}
			answered <- err
		}()
		require.Eventually(t, func() bool { return s.busy() == 1 }, time.Minute, time.Millisecond)
		s.occupy(t, 50)
		s.get(t, "/-/healthy")
		close(s.gate)
		require.NoError(t, <-answered)
	})
}

func TestHealthChecksAreAnsweredWhenRequestsRunOnAllConnections(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		s := serve(t, 2, 2, http2)
		end := s.run(t, 2)
		s.occupy(t, 30) // They keep nobody out of the spare ones either.
		for _, path := range []string{"/-/healthy", "/-/ready", "/metrics", "/api/v1/rules", "/api/v1/alerts", "/api/v1/status/guard", "/api/v1/status/guard/queries"} {
			resp, body := s.get(t, path)
			require.Equal(t, http.StatusOK, resp.StatusCode, path)
			require.Equal(t, "/prefix"+path, body)
			if !http2 { // There the frame that says so is not seen.
				require.True(t, resp.Close, "a spare connection serves one request")
			}
		}
		for _, path := range []string{"/", "/api/v1/series", "/metricsx", "/federate"} {
			resp, body := s.get(t, path)
			require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode, path)
			require.NotEmpty(t, resp.Header.Get("Retry-After"))
			require.Contains(t, body, "--web.max-connections")
		}
		require.Positive(t, testutil.ToFloat64(s.pool.spare))
		require.Equal(t, 4.0, testutil.ToFloat64(s.pool.refused))
		end()
		resp, _ := s.get(t, "/api/v1/query")
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.False(t, resp.Close, "a connection that is free again serves everything")
	})
}

func TestASpareConnectionTakesNoRequestFromTheOthers(t *testing.T) {
	s := serve(t, 1, 1, true)
	client := s.newClient()
	defer client.CloseIdleConnections()
	get := func(client *http.Client, path string) int {
		resp, err := client.Get(s.URL + "/prefix" + path)
		if err != nil {
			t.Error(err)
			return 0
		}
		_, _ = io.ReadAll(resp.Body)
		resp.Body.Close()
		return resp.StatusCode
	}
	got := make(chan int)
	go func() { got <- get(client, "/wait") }()
	require.Eventually(t, func() bool { return s.busy() == 1 }, time.Minute, time.Millisecond)
	go func() {
		probe := s.newClient()
		defer probe.CloseIdleConnections()
		got <- get(probe, "/-/wait")
	}()
	require.Eventually(t, func() bool { return s.busy() == 2 }, time.Minute, time.Millisecond)
	require.Equal(t, http.StatusOK, get(client, "/another"), "on the connection that was there before")
	close(s.gate)
	require.Equal(t, http.StatusOK, <-got)
	require.Equal(t, http.StatusOK, <-got)
}

func TestAConnectionThatHasAnsweredWaitsAgain(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		s := serve(t, 1, 1, http2)
		kept := s.newClient() // Keeps its connection open.
		defer kept.CloseIdleConnections()
		resp, err := kept.Get(s.URL + "/prefix/x")
		require.NoError(t, err)
		_, err = io.ReadAll(resp.Body)
		require.NoError(t, err)
		resp.Body.Close()
		require.Eventually(t, func() bool { return s.busy() == 0 }, time.Minute, time.Millisecond)
		require.Equal(t, 1, s.openConns())
		s.pool.mtx.Lock()
		require.Equal(t, 1, s.pool.idle.Len(), "as one that has carried a request")
		s.pool.mtx.Unlock()
		other, _ := s.get(t, "/api/v1/query")
		require.Equal(t, http.StatusOK, other.StatusCode)
	})
}

func TestWithoutAPoolAServerIsUpstreams(t *testing.T) {
	var p *Pool
	s := &http.Server{}
	l := []net.Listener{nil}
	require.Equal(t, l, p.Bound(s, "/", l))
	require.Nil(t, s.ConnState)
	require.Nil(t, s.ConnContext)
	require.Nil(t, s.Handler)
}
