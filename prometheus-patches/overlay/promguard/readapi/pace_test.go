// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package readapi

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

// hop is a connection with a buffer of which it is told that there is room when a
// third of it is free, as Linux does.
type hop struct {
	size, held int
	full       bool
}

// room returns how much may be written.
func (h *hop) room() int {
	if h.full && h.size-h.held < h.size/3 {
		return 0
	}
	h.full = false
	return h.size - h.held
}

// put returns how much of n it takes.
func (h *hop) put(n int) int {
	n = min(n, h.room())
	h.held += n
	h.full = h.held == h.size
	return n
}

// simulate lets a client read an answer at a rate over some hops, and returns how much
// it has when its patience is spent or it has all.
func simulate(p pace, rate float64, size int, hops ...hop) int {
	const tick = 10 * time.Millisecond
	sent, read, due := 0, 0, 0.0
	waited := time.Duration(0)
	for read < size && waited <= p.left {
		due += rate * tick.Seconds()
		last := &hops[len(hops)-1]
		got := min(int(due), last.held)
		last.held -= got
		read += got
		due = min(due-float64(got), rate) // What it could not read is lost.
		for i := len(hops) - 1; i > 0; i-- {
			hops[i-1].held -= hops[i].put(hops[i-1].held)
		}
		waited += tick
		for sent < size {
			n := hops[0].put(min(writeChunk, size-sent))
			if n == 0 {
				break
			}
			sent += n
			p.took(n, waited)
			waited = 0
		}
		if sent == size {
			waited = 0
		}
	}
	return read
}

func TestTheRateIsThatOverTimeAndNotOfOneBuffer(t *testing.T) {
	const rate, size = 16 << 10, 30 << 20
	for name, hops := range map[string][]hop{
		"small buffer":             {{size: 64 << 10}},
		"large buffer":             {{size: 4 << 20}},
		"large and a small one":    {{size: 4 << 20}, {size: 64 << 10}},
		"small and a large one":    {{size: 64 << 10}, {size: 4 << 20}},
		"two large ones":           {{size: 4 << 20}, {size: 4 << 20}},
		"two that are not alike":   {{size: 4 << 20}, {size: 3 << 20}},
		"three of them":            {{size: 1 << 20}, {size: 2 << 20}, {size: 3 << 20}},
		"one that is full at once": {{size: 1 << 10}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, size, simulate(newPace(rate), 2*rate, size, append([]hop{}, hops...)...), "twice the rate")
			require.Equal(t, size, simulate(newPace(rate), 100*rate, size, append([]hop{}, hops...)...))
			require.Less(t, simulate(newPace(rate), rate/2, size, append([]hop{}, hops...)...), size, "half of the rate")
		})
	}
	require.Equal(t, time.Duration(0), newPace(0).left)
}

// reader returns a client whose connection has a receive buffer of so many bytes.
func reader(s *httptest.Server, buffer int) *http.Client {
	transport := s.Client().Transport.(*http.Transport).Clone()
	transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err == nil {
			err = c.(*net.TCPConn).SetReadBuffer(buffer)
		}
		return c, err
	}
	if transport.TLSClientConfig == nil {
		transport.TLSClientConfig = &tls.Config{}
	}
	return &http.Client{Transport: transport}
}

// through puts a proxy before the server that holds no more than its kernel does.
func through(t *testing.T, s *httptest.Server) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	backend := s.Listener.Addr().String()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b, err := net.Dial("tcp", backend)
				if err != nil {
					return
				}
				defer b.Close()
				go func() { _, _ = io.Copy(b, c) }()
				buf := make([]byte, 4<<10)
				_, _ = io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{b}, buf)
			}()
		}
	}()
	s.URL = s.URL[:len(s.URL)-len(backend)] + l.Addr().String()
}

// readAt reads all of it at a rate, and makes up for what it was late.
func readAt(r io.Reader, rate float64) (n int64, err error) {
	began, buf := time.Now(), make([]byte, 8<<10)
	for {
		got, err := r.Read(buf)
		n += int64(got)
		switch err {
		case nil:
			time.Sleep(time.Until(began.Add(time.Duration(float64(n) / rate * float64(time.Second)))))
		case io.EOF:
			return n, nil
		default:
			return n, err
		}
	}
}

// A machine that others keep busy is not fast enough for it.
func TestReadersAtTwiceTheRateGetTheirAnswerThroughAProxy(t *testing.T) {
	if os.Getenv("PROMGUARD_READ_ENDS") == "" {
		t.Skip("make test-read-ends reads at a rate")
	}
	const rate, size = 2 << 20, 12 << 20
	answer := make([]byte, size)
	for _, buffer := range []int{256 << 10, 4 << 20} {
		for _, http2 := range []bool{false, true} {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				h := limited(t, Options{MinClientRate: rate, QueryTimeout: 500 * time.Millisecond, Timeout: 500 * time.Millisecond, QueryConcurrency: 1})
				s := httptest.NewUnstartedServer(h.API("/query", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(answer) }))
				s.EnableHTTP2 = http2
				s.StartTLS()
				t.Cleanup(s.Close)
				through(t, s)
				resp, err := reader(s, buffer).Get(s.URL)
				require.NoError(t, err)
				defer resp.Body.Close()
				require.Equal(t, http2, resp.ProtoMajor == 2)
				n, err := readAt(resp.Body, 2*rate)
				require.NoError(t, err, "its deadline is over, but that is not for the client's time")
				require.EqualValues(t, size, n)
			})
		}
	}
}

func TestAClientThatStandsStillIsCutOffAndHoldsNoPlace(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			const rate = 64 << 20
			h := limited(t, Options{MinClientRate: rate, Timeout: time.Hour, MetadataConcurrency: 1, QueueTimeout: time.Minute})
			ended := make(chan error, 2)
			mux := http.NewServeMux()
			mux.HandleFunc("/large", h.API("/series", func(w http.ResponseWriter, _ *http.Request) {
				_, err := w.Write(make([]byte, 64<<20))
				ended <- err
			}))
			mux.HandleFunc("/small", h.API("/labels", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "1") }))
			s := httptest.NewUnstartedServer(mux)
			s.EnableHTTP2 = http2
			s.StartTLS()
			t.Cleanup(s.Close)
			resp, err := reader(s, 256<<10).Get(s.URL + "/large")
			require.NoError(t, err)
			defer resp.Body.Close()
			small, err := reader(s, 256<<10).Get(s.URL + "/small")
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, small.StatusCode, "the place is given back while the client is waited for")
			require.NoError(t, small.Body.Close())
			require.ErrorContains(t, <-ended, "--guard.min-client-rate")
			requireCounted(t, 1, h.metrics.stopped.WithLabelValues("/api/v1/series", "slow"))
			_, err = io.ReadAll(resp.Body)
			require.Error(t, err)
		})
	}
}

func TestAnAnswerThatIsSentWhenItIsWholeHoldsNoPlace(t *testing.T) {
	for route, leaves := range map[string]bool{
		"/query": true, "/query_exemplars": true, "/labels": true, "/label/:name/values": true, "/targets": true, "/federate": true,
		"/series": false, "/read": false, "/search/label_names": false,
	} {
		t.Run(route, func(t *testing.T) {
			h := limited(t, Options{MetadataConcurrency: 1, BulkConcurrency: 1, QueryConcurrency: 1})
			bound := h.API
			if route == "/federate" {
				bound = h.Root
			}
			var second httptest.ResponseRecorder
			bound(route, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, "the beginning of its answer")
				bound(route, func(http.ResponseWriter, *http.Request) {})(&second, r)
			})(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody))
			require.Equal(t, leaves, second.Code == http.StatusOK, "%d", second.Code)
		})
	}
}

func TestTheDeadlineStandsStillForTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var expired atomic.Bool
		c := newClock(time.Minute, func() { expired.Store(true) })
		time.Sleep(50 * time.Second)
		c.pause()
		time.Sleep(time.Hour)
		c.resume()
		time.Sleep(9 * time.Second)
		c.pause()
		c.resume()
		require.False(t, expired.Load())
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.True(t, expired.Load())
		c.pause()
		c.resume()
		c.stop()
	})
	var none *clock
	none.pause()
	none.resume()
}

func TestAnswersThatHoldTheDatabaseHaveTheirDeadlineWhateverTheClientDoes(t *testing.T) {
	h := limited(t, Options{MinClientRate: 1, Timeout: time.Minute})
	answer := make([]byte, 64<<20)
	ended := make(chan error, 1)
	s := serve(t, h, "/series", func(w http.ResponseWriter, _ *http.Request) {
		_, err := w.Write(answer)
		ended <- err
	})
	asked := 0.0
	for timeout := 100 * time.Millisecond; ; timeout *= 2 { // Until an answer has begun.
		resp, err := http.Get(s.URL + "?timeout=" + timeout.String())
		require.NoError(t, err)
		defer resp.Body.Close()
		asked++
		if resp.StatusCode == http.StatusOK {
			break
		}
		select {
		case <-ended:
		default: // The handler has not run.
		}
	}
	require.Error(t, <-ended)
	requireCounted(t, asked, h.metrics.stopped.WithLabelValues("/api/v1/series", "deadline"))
	require.Zero(t, testutil.ToFloat64(h.metrics.stopped.WithLabelValues("/api/v1/series", "slow")))
}
