// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package intake

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve serves what reads the whole body and answers with its length, or 503.
func serve(t *testing.T, memory int64) (*Intake, *httptest.Server) {
	t.Helper()
	in := New(memory, prometheus.NewRegistry())
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if errors.Is(err, ErrFull) {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, len(body))
	}))
	srv.Listener = in.Serve(srv.Config, srv.Listener)
	srv.Start()
	t.Cleanup(srv.Close)
	return in, srv
}

func begin(t *testing.T, srv *httptest.Server, text string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	_, err = io.WriteString(c, text)
	require.NoError(t, err)
	return c
}

func post(bytes, of int) string {
	return fmt.Sprintf("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", of, strings.Repeat("x", bytes))
}

func status(t *testing.T, c net.Conn) int {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	defer res.Body.Close()
	return res.StatusCode
}

func requireHeld(t *testing.T, in *Intake, ok func(int64) bool) {
	t.Helper()
	require.Eventually(t, func() bool { return ok(in.held.Load()) }, time.Minute, time.Millisecond)
}

func isZero(held int64) bool { return held == 0 }

func TestLongRequestsAreRefusedWhileTooMuchIsReadAndShortOnesAreNot(t *testing.T) {
	const memory = 64 << 20 // Of which 2 MiB for what is sent.
	in, srv := serve(t, memory)
	for range 2 { // All is given back.
		first := begin(t, srv, post(1<<20, 1<<20+1))
		second := begin(t, srv, post(900<<10, 1<<20))
		requireHeld(t, in, func(held int64) bool { return held > 1800<<10 })
		third := begin(t, srv, post(400<<10, 400<<10))
		require.Equal(t, 503, status(t, third))
		require.Equal(t, 200, status(t, begin(t, srv, post(7<<10, 7<<10))))
		_, err := io.WriteString(first, "x")
		require.NoError(t, err)
		require.Equal(t, 200, status(t, first))
		require.Equal(t, 200, status(t, begin(t, srv, post(400<<10, 400<<10))))
		second.Close()
		first.Close()
		requireHeld(t, in, isZero)
	}
}

func TestConnectionMayBeUsedForEver(t *testing.T) {
	in, srv := serve(t, 64<<20)
	for range 50 {
		res, err := srv.Client().Post(srv.URL, "text/plain", strings.NewReader(strings.Repeat("x", 500<<10)))
		require.NoError(t, err)
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
		require.Equal(t, 200, res.StatusCode)
	}
	requireHeld(t, in, isZero)
}

func TestHeadersThatAreTooLongAreRefused(t *testing.T) {
	_, srv := serve(t, 64<<20)
	header := func(n int) string { return "GET / HTTP/1.1\r\nHost: x\r\nX-A: " + strings.Repeat("x", n) + "\r\n\r\n" }
	require.Equal(t, 200, status(t, begin(t, srv, header(200<<10))))
	require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, status(t, begin(t, srv, header(300<<10))))
}

func TestNoMoreConnectionsThanThereIsMemoryFor(t *testing.T) {
	in, srv := serve(t, 20*costOfConnection)
	require.Equal(t, 10, in.connections)
	var conns []net.Conn
	for range 12 {
		conns = append(conns, begin(t, srv, ""))
	}
	last := conns[11]
	_, err := io.WriteString(last, post(0, 0))
	require.NoError(t, err)
	require.NoError(t, last.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err = last.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "it waits")
	conns[0].Close()
	conns[1].Close()
	require.Equal(t, 200, status(t, last))
}

func TestManyRequestsOfOneConnectionOfHTTP2AreNotTakenForOne(t *testing.T) {
	in := New(64<<20, prometheus.NewRegistry())
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, r.Proto)
	}))
	listener := in.Serve(srv.Config, srv.Listener)
	srv.Listener, srv.EnableHTTP2 = listener, true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	for range 40 {
		res, err := srv.Client().Post(srv.URL, "text/plain", strings.NewReader(strings.Repeat("x", 200<<10)))
		require.NoError(t, err)
		text, _ := io.ReadAll(res.Body)
		res.Body.Close()
		require.Equal(t, "HTTP/2.0", string(text))
	}
	srv.Client().Transport.(*http.Transport).CloseIdleConnections()
	requireHeld(t, in, isZero)
}

// What the chart's limit is for, with fewer connections and less memory.
func TestConnectionsThatSendAllTheyCanTakeNoMoreThanTheirPart(t *testing.T) {
	const memory = 64 << 20
	in, srv := serve(t, memory)
	all := []byte("POST / HTTP/1.1\r\nHost: x\r\nX-A: " + strings.Repeat("x", 200<<10) + "\r\nContent-Length: 1048576\r\n\r\n" + strings.Repeat("x", 1<<20-1))
	runtime.GC()
	var before, during runtime.MemStats
	runtime.ReadMemStats(&before)
	var done atomic.Int64
	for range 200 {
		c, err := net.Dial("tcp", srv.Listener.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		go func() {
			_, _ = c.Write(all) // An error means that it is refused.
			done.Add(1)
		}()
	}
	require.Eventually(t, func() bool { return done.Load() == 200 }, time.Minute, 10*time.Millisecond)
	require.Eventually(t, func() bool { // Some are being refused yet.
		runtime.GC()
		runtime.ReadMemStats(&during)
		held := in.held.Load()
		return int64(during.HeapAlloc)-int64(before.HeapAlloc) < memory/4 && 0 < held && held <= in.most
	}, time.Minute, 10*time.Millisecond, "while those that are held are still there")
}
