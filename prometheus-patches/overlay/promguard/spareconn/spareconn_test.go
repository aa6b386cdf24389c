// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package spareconn

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"slices"
	"strings"
	"testing"
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
	s := &server{pool: NewPool(most, spare, 10*most, prometheus.NewRegistry()), gate: make(chan struct{})}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/wait") {
			select {
			case <-s.gate:
			case <-r.Context().Done():
			}
		}
		_, _ = io.WriteString(w, r.URL.Path)
	}))
	l := netconnlimit.SharedLimitListener(s.Listener, netconnlimit.NewSharedSemaphore(most+s.pool.Extra()))
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
		idle := s.occupy(t, 60)
		for range 3 {
			resp, body := s.get(t, "/api/v1/query")
			require.Equal(t, http.StatusOK, resp.StatusCode)
			require.Equal(t, "/prefix/api/v1/query", body)
		}
		require.LessOrEqual(t, s.openConns(), 4)
		require.Zero(t, testutil.ToFloat64(s.pool.spared))
		require.GreaterOrEqual(t, testutil.ToFloat64(s.pool.replaced), 20.0)
		_, err := idle[0].Read(make([]byte, 1))
		require.Error(t, err, "the first to come has waited for longest")
	})
}

func TestWhichConnectionMakesRoom(t *testing.T) {
	type state struct {
		used, begins bool
		requests     int
	}
	for _, tc := range []struct {
		name  string
		open  []state
		close int // Of those that are open; -1: none.
	}{
		{"one that begins no request", []state{{used: true}, {}, {}}, 1},
		{"the one that is idle for longest", []state{{begins: true}, {used: true}, {used: true}}, 1},
		{"the next one, if a request begins on the first", []state{{begins: true}, {}, {}}, 1},
		{"an idle one, if requests begin on all others", []state{{begins: true}, {begins: true}, {used: true}}, 2},
		{"none on which a request begins", []state{{begins: true}, {begins: true}}, -1},
		{"none on which a request runs", []state{{used: true, requests: 1}, {used: true, requests: 1}}, -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := NewPool(len(tc.open), 1, 1, prometheus.NewRegistry())
			enter := func() *conn {
				c := p.accept(quiet{}, &listener{})
				require.True(t, p.enter(c))
				return c
			}
			open := make([]*conn, len(tc.open))
			for i, is := range tc.open {
				open[i] = enter()
				open[i].unfile()
				open[i].used, open[i].requests = is.used, is.requests
				if is.begins {
					open[i].spoke.Store(time.Now().UnixNano())
				}
				open[i].file()
			}
			enter()
			closed := slices.IndexFunc(open, func(c *conn) bool { return c.closed })
			require.Equal(t, tc.close, closed)
			left := slices.DeleteFunc(open, func(c *conn) bool { return c.closed })
			require.GreaterOrEqual(t, len(left), len(tc.open)-1, "one is enough")
			require.Equal(t, len(left)+1, p.open)
		})
	}
}

// quiet is a connection whose client says nothing.
type quiet struct{ net.Conn }

func (quiet) Close() error { return nil }

func TestAConnectionThatSaysNothingTakesNoRoomFromOthers(t *testing.T) {
	both(t, func(t *testing.T, http2 bool) {
		s := serve(t, 3, 1, http2)
		kept := s.newClient()
		defer kept.CloseIdleConnections()
		get := func() (reused bool) {
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }})
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/prefix/x", http.NoBody)
			require.NoError(t, err)
			resp, err := kept.Do(req)
			require.NoError(t, err)
			_, err = io.ReadAll(resp.Body)
			require.NoError(t, err)
			resp.Body.Close()
			return reused
		}
		get()
		s.occupy(t, 100)
		require.Eventually(t, func() bool { return testutil.ToFloat64(s.pool.replaced) == 70 }, time.Minute, time.Millisecond)
		require.True(t, get())
		require.Equal(t, 1, s.openConns())
	})
}

func TestWhoWaitsForTheServerIsNotClosedForWhoSaysNothing(t *testing.T) {
	p := NewPool(1, 1, 1, prometheus.NewRegistry())
	silent, says := p.accept(quiet{}, &listener{}), p.accept(quiet{}, &listener{})
	require.True(t, silent.closed, "it had not said anything yet")
	says.spoke.Store(time.Now().UnixNano())
	silent = p.accept(quiet{}, &listener{})
	require.False(t, says.closed)
	require.True(t, silent.closed)
	require.True(t, p.enter(says))
}

func TestClientsThatNeverEndARequestKeepNobodyOut(t *testing.T) {
	s := serve(t, 4, 1, false)
	for _, c := range s.occupy(t, 12) {
		_, err := io.WriteString(c, "GET /")
		require.NoError(t, err)
	}
	resp, _ := s.get(t, "/api/v1/query")
	require.Equal(t, http.StatusOK, resp.StatusCode)
}

func TestAListenerThatIsClosedClosesWhoWaits(t *testing.T) {
	s := serve(t, 1, 1, false)
	end := s.run(t, 1)
	waiting := s.occupy(t, 1)[0]
	require.Eventually(t, func() bool { s.pool.mtx.Lock(); defer s.pool.mtx.Unlock(); return s.pool.silent.Len() == 1 }, time.Minute, time.Millisecond)
	require.NoError(t, s.Listener.Close())
	_, err := waiting.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	end()
}

func TestAClientThatSaysNothingForTooLongIsClosed(t *testing.T) {
	p := NewPool(1, 1, 1, prometheus.NewRegistry())
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &http.Server{ReadTimeout: time.Millisecond}
	l := p.Bound(s, "/", []net.Listener{inner})[0]
	ended := make(chan error)
	go func() { ended <- s.Serve(l) }()
	c, err := net.Dial("tcp", inner.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, s.Close())
	require.ErrorIs(t, <-ended, http.ErrServerClosed)
}

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
		require.Positive(t, testutil.ToFloat64(s.pool.spared))
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
