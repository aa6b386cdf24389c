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
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/time/rate"

	"github.com/promguard/promguard/bench/oomstorm/internal/family"
	"github.com/promguard/promguard/bench/oomstorm/internal/scenario"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run runs clients against a handler until they are through, or have asked so often.
func run(t *testing.T, ph scenario.Phase, often int64, handler http.HandlerFunc) Result {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var asked atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == often {
			cancel()
		}
		handler(w, r)
	}))
	defer srv.Close()
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
	r := run(t, scenario.Phase{Storm: &scenario.Storm{Clients: 3, Timeout: time.Minute, Gzip: 1}}, 20, func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1)%2 == 0 || r.Header.Get("Accept-Encoding") != "gzip" {
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
	})
	require.Positive(t, r.Storm["series"]["200"])
	require.Positive(t, r.Storm["series"]["422"])
}

// A client that asks again has counted what came of its last request.
func TestASilentServerIsLeftOrTimesOut(t *testing.T) {
	silent := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	require.Positive(t, run(t, scenario.Phase{Storm: &scenario.Storm{Clients: 1, Timeout: 100 * time.Millisecond}}, 2, silent).Storm["series"][Timeout])
	require.Positive(t, run(t, scenario.Phase{Storm: &scenario.Storm{Clients: 40, Timeout: time.Minute, Leave: 1}}, 41, silent).Storm["series"][Left])
	require.Equal(t, 2, run(t, scenario.Phase{Storm: &scenario.Storm{Clients: 2, Timeout: time.Minute}}, 2, silent).Storm["series"][Ended])
}

func TestAnAnswerThatIsCutIsNotWhole(t *testing.T) {
	r := run(t, scenario.Phase{Storm: &scenario.Storm{Clients: 1, Timeout: time.Minute}}, 2, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "not all")
		panic(http.ErrAbortHandler)
	})
	require.Positive(t, r.Storm["series"][Cut])
	require.Zero(t, r.Storm["series"]["200"])
}

func TestASlowReaderHoldsTheServerUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer cancel()
		for written := 0; written < 64<<20; { // Buffers on the way are smaller.
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Second))
			n, err := w.Write(make([]byte, 1<<20))
			if written += n; err != nil {
				cancel()
				<-r.Context().Done()
				return
			}
		}
	}))
	defer srv.Close()
	r, err := Run(ctx, Config{URL: srv.URL, Phase: scenario.Phase{SlowReaders: &scenario.SlowReaders{Clients: 1, Family: "series", Rate: 1000}}, Families: family.Shipped(), Data: family.Data{Points: 1}})
	require.NoError(t, err)
	require.Equal(t, Outcomes{Ended: 1}, r.Slow)
}

func TestASlowReaderReadsAtItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		require.NoError(t, trickle(t.Context(), strings.NewReader(strings.Repeat("x", 10_100)), rate.NewLimiter(1000, 100)))
		require.InDelta(t, 10, time.Since(began).Seconds(), 0.01)
	})
}

// idling keeps one idle connection, over what dial gives, for so long.
func idling(t *testing.T, long time.Duration, dial func() (net.Conn, error)) (away time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), long)
		defer cancel()
		s := &clients{Config: Config{URL: "http://server"}, dial: func(context.Context, string, string) (net.Conn, error) { return dial() }}
		s.idle(ctx)
		away = s.IdleAway
	})
	return away
}

func TestIdleConnectionsStayOpen(t *testing.T) {
	dialled := 0
	away := idling(t, time.Hour, func() (net.Conn, error) {
		dialled++
		ours, _ := net.Pipe()
		return ours, nil
	})
	require.Equal(t, 1, dialled)
	require.Zero(t, away)
}

func TestIdleConnectionsThatAreClosedComeBack(t *testing.T) {
	dialled := 0
	away := idling(t, 10*time.Second+time.Millisecond, func() (net.Conn, error) {
		dialled++
		if dialled > 4 {
			return nil, errors.New("refused")
		}
		ours, theirs := net.Pipe()
		return ours, theirs.Close()
	})
	require.Equal(t, 11, dialled, "once a second")
	require.Equal(t, 7*time.Second, away, "since the fourth was closed")
}

func TestDashboardsAskEachExpressionTwiceARound(t *testing.T) {
	var asked atomic.Int64
	d := &scenario.Dashboards{Clients: 2, Expressions: true, Rounds: 3}
	r := run(t, scenario.Phase{Dashboards: d, IdleConnections: 1}, -1, func(w http.ResponseWriter, r *http.Request) {
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
	var asked atomic.Int64
	enough := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if asked.Add(1) == 3 {
			close(enough) // One of two clients has asked twice.
		}
	}))
	defer srv.Close()
	in, parent := io.Pipe()
	go func() {
		ph := scenario.Phase{Storm: &scenario.Storm{Clients: 2, Families: []string{"series"}, Timeout: time.Minute}}
		_ = json.NewEncoder(parent).Encode(Config{URL: srv.URL, Phase: ph, Families: family.Shipped(), Data: family.Data{Points: 1}})
		<-enough
		parent.Close()
	}()
	var out strings.Builder
	require.NoError(t, RunChild(in, &out))
	var r Result
	require.NoError(t, json.Unmarshal([]byte(out.String()), &r))
	require.Positive(t, r.Storm["series"]["200"])
	require.ErrorContains(t, RunChild(strings.NewReader("not JSON"), io.Discard), "reading what to do")
}
