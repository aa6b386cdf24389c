// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/promguard/promguard/bench/oomstorm/internal/family"
	"github.com/promguard/promguard/bench/oomstorm/internal/scenario"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run runs clients against a handler for a moment.
func run(t *testing.T, ph scenario.Phase, handler http.HandlerFunc) Result {
	t.Helper()
	srv := httptest.NewServer(handler)
	defer srv.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
	defer cancel()
	if ph.Storm != nil {
		ph.Storm.Families = []string{"series"}
	}
	r, err := Run(ctx, Config{URL: srv.URL, Seed: 1, Phase: ph, Families: family.Shipped(), Expressions: []string{"up", "# why\nup == 0"}, Data: family.Data{Points: 1}})
	require.NoError(t, err)
	return r
}

func TestOutcomesTellWhoEndedIt(t *testing.T) {
	open := context.Background()
	done, cancel := context.WithCancel(open)
	cancel()
	refused := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for _, tc := range []struct {
		outer, inner context.Context
		err          error
		want         string
	}{
		{open, open, nil, "200"},
		{done, done, nil, "200"},
		{done, done, io.ErrUnexpectedEOF, Ended},
		{open, done, context.Canceled, Timeout},
		{open, open, refused, Refused},
		{open, open, io.ErrUnexpectedEOF, Cut},
	} {
		require.Equal(t, tc.want, classify(tc.outer, tc.inner, 200, tc.err))
	}
}

func TestHostileAnswersAreCountedByStatus(t *testing.T) {
	var n atomic.Int64
	r := run(t, scenario.Phase{Storm: &scenario.Storm{Clients: 3, Timeout: time.Second, Gzip: 1}}, func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1)%2 == 0 || r.Header.Get("Accept-Encoding") != "gzip" {
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
	})
	require.Positive(t, r.Storm["series"]["200"])
	require.Positive(t, r.Storm["series"]["422"])
}

func TestASilentServerIsLeftOrTimesOut(t *testing.T) {
	silent := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	require.Positive(t, run(t, scenario.Phase{Storm: &scenario.Storm{Clients: 1, Timeout: 100 * time.Millisecond}}, silent).Storm["series"][Timeout])
	require.Positive(t, run(t, scenario.Phase{Storm: &scenario.Storm{Clients: 40, Timeout: time.Minute, Leave: 1}}, silent).Storm["series"][Left])
	require.Equal(t, 2, run(t, scenario.Phase{Storm: &scenario.Storm{Clients: 2, Timeout: time.Minute}}, silent).Storm["series"][Ended])
}

func TestAnAnswerThatIsCutIsNotWhole(t *testing.T) {
	r := run(t, scenario.Phase{Storm: &scenario.Storm{Clients: 1, Timeout: time.Minute}}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "not all")
		panic(http.ErrAbortHandler)
	})
	require.Positive(t, r.Storm["series"][Cut])
	require.Zero(t, r.Storm["series"]["200"])
}

func TestASlowReaderHoldsTheServerUp(t *testing.T) {
	var written atomic.Int64
	r := run(t, scenario.Phase{SlowReaders: &scenario.SlowReaders{Clients: 1, Family: "series", Rate: 1000}}, func(w http.ResponseWriter, _ *http.Request) {
		for {
			n, err := w.Write(make([]byte, 1<<20))
			written.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	require.Equal(t, Outcomes{Ended: 1}, r.Slow)
	require.Less(t, written.Load(), int64(64<<20), "only what is buffered on the way")
}

func TestIdleConnectionsStayOpen(t *testing.T) {
	require.Less(t, run(t, scenario.Phase{IdleConnections: 20}, func(http.ResponseWriter, *http.Request) {}).IdleAway, 500*time.Millisecond)
}

func TestIdleConnectionsThatAreClosedComeBack(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var closed atomic.Int64
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			conn.Close()
			closed.Add(1)
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	time.AfterFunc(1500*time.Millisecond, func() { l.Close() })
	time.AfterFunc(3500*time.Millisecond, cancel)
	r, err := Run(ctx, Config{URL: "http://" + l.Addr().String(), Phase: scenario.Phase{IdleConnections: 1}})
	require.NoError(t, err)
	require.EqualValues(t, 2, closed.Load())
	require.InDelta(t, 2, r.IdleAway.Seconds(), 1, "since the second one was closed")
}

func TestDashboardsAskEachExpressionTwiceARound(t *testing.T) {
	var asked atomic.Int64
	d := &scenario.Dashboards{Clients: 2, Expressions: true, Rounds: 3}
	r := run(t, scenario.Phase{Dashboards: d, IdleConnections: 1}, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		switch {
		case strings.Contains(r.URL.Query().Get("query"), "#"):
			w.WriteHeader(http.StatusBadRequest)
		case r.URL.Path == "/api/v1/query_range" && r.URL.Query().Get("query") == "up":
			w.WriteHeader(http.StatusUnprocessableEntity)
		case r.URL.Path == "/api/v1/query_range":
			w.Header().Set("Retry-After", "5")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}).Dashboards
	require.EqualValues(t, 2*2*3, asked.Load())
	require.Equal(t, 6, r.Outcomes["200"])
	require.Equal(t, 3, r.Outcomes["503"])
	require.Equal(t, 3, r.Unfriendly, "a refusal that does not say when to come back")
	require.Len(t, r.Took, 6)
	require.Positive(t, r.Through)
}

func TestTheClientsProcessRunsUntilItsInputEnds(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer srv.Close()
	in, parent := io.Pipe()
	asked := make(chan struct{})
	go func() {
		ph := scenario.Phase{Storm: &scenario.Storm{Clients: 2, Families: []string{"series"}, Timeout: time.Second}}
		_ = json.NewEncoder(parent).Encode(Config{URL: srv.URL, Phase: ph, Families: family.Shipped(), Data: family.Data{Points: 1}})
		time.Sleep(300 * time.Millisecond)
		parent.Close()
		close(asked)
	}()
	var out strings.Builder
	require.NoError(t, RunChild(in, &out))
	<-asked
	var r Result
	require.NoError(t, json.Unmarshal([]byte(out.String()), &r))
	require.Positive(t, r.Storm["series"]["200"])
	require.ErrorContains(t, RunChild(strings.NewReader("not JSON"), io.Discard), "reading what to do")
}
