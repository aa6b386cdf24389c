// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

// slow delays the answers to some paths on their way.
type slow struct {
	*fleet

	delays map[string]time.Duration
}

// RoundTrip implements http.RoundTripper.
func (s *slow) RoundTrip(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	delay := s.delays[req.URL.Path]
	s.mu.Unlock()
	res, err := s.fleet.RoundTrip(req)
	select {
	case <-time.After(delay):
		return res, err
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
}

func (s *slow) delay(path string, by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delays[path] = by
}

func newSlowPool(t *testing.T, roots ...string) (*testPool, *slow) {
	t.Helper()
	p := newTestPool(t, KindPrometheus, ProbeRequire, roots...)
	s := &slow{p.fleet, map[string]time.Duration{}}
	p.transport = s
	return p, s
}

func TestOverloadedServerIsNotTakenForOneWithoutTheAPI(t *testing.T) {
	for _, status := range []string{"429 ", "500 ", "502 ", "503 ", "504 ", "302 ", "307 "} {
		overloaded := map[string]string{"/-/ready": "ok", "/api/v1/status/buildinfo": status, "/api/v1/query": status}
		synctest.Test(t, func(t *testing.T) {
			alone := newTestPool(t, KindPrometheus, ProbeRequire, "http://b")
			alone.serve("b", overloaded)
			require.NoError(t, alone.Check(t.Context()), status)
			require.Zero(t, testutil.ToFloat64(alone.metrics.probed.WithLabelValues("http://b")))

			p := newTestPool(t, KindPrometheus, ProbeRequire, "http://a", "http://b")
			p.serve("a", healthy(1))
			require.NoError(t, p.Check(t.Context()), status)
			p.run(t)
			p.serve("b", overloaded)
			time.Sleep(time.Hour)
			require.Equal(t, "a", p.chosen(t))
			p.serve("b", healthy(2))
			time.Sleep(factsEvery + lookEvery)
			synctest.Wait()
			require.Equal(t, 1.0, testutil.ToFloat64(p.metrics.probed.WithLabelValues("http://b")))
		})
	}
}

func TestMismatchThatOnlyALaterAnswerShowsEndsPromguard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPool(t, KindPrometheus, ProbeRequire, "http://a")
		p.serve("a", with(healthy(1), "/api/v1/features", "503 "))
		require.NoError(t, p.Check(t.Context()))
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { ended <- p.Run(ctx) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Empty(t, ended)
		p.serve("a", with(healthy(1), "/api/v1/features", success(`{"prometheus":{"agent_mode":true}}`)))
		time.Sleep(factsEvery + lookEvery)
		synctest.Wait()
		require.Len(t, ended, 1)
		require.ErrorContains(t, <-ended, "agent mode")
	})
}

func TestOverloadedServerKeepsWhatItToldBefore(t *testing.T) {
	known := with(healthy(1), "/api/v1/status/flags", success(`{"query.lookback-delta":"1h"}`),
		"/api/v1/query", success(`{"resultType":"vector","result":[{"metric":{},"value":[0,"1"]}]}`))
	const busy = `503 {"status":"error","errorType":"timeout","error":"query timed out in query queue"}`
	for _, answer := range []string{busy, "429 ", "502 ", "302 ", "401 ", "403 ", `422 {"status":"error","errorType":"execution","error":"limit"}`} {
		synctest.Test(t, func(t *testing.T) {
			p := newTestPool(t, KindPrometheus, ProbeRequire, "http://a", "http://b")
			p.serve("a", known)
			p.serve("b", with(known, "/api/v1/status/runtimeinfo", success(`{"startTime":"1999-11-21T12:02:00Z"}`)))
			require.NoError(t, p.Check(t.Context()))
			want := Assumptions{Lookback: time.Hour, SubqueryStep: time.Second}
			require.Equal(t, want, p.Assumed())
			p.run(t)
			for _, host := range []string{"a", "b"} {
				p.serve(host, with(known, "/api/v1/query", answer, "/api/v1/status/flags", answer, "/api/v1/status/runtimeinfo", answer, "/api/v1/status/buildinfo", answer))
			}
			time.Sleep(10 * time.Minute)
			require.Equal(t, want, p.Assumed(), answer)
			require.Equal(t, "a", p.chosen(t), answer)

			old := with(known)
			delete(old, "/api/v1/status/flags")
			p.serve("a", old)
			p.serve("b", old)
			time.Sleep(2 * factsEvery)
			require.Equal(t, Assumptions{Lookback: 5 * time.Minute, SubqueryStep: time.Second}, p.Assumed(), "it has no flags any more")
		})
	}
}

func TestWhatAServerDoesNotTellIsAsInPrometheus(t *testing.T) {
	p := newTestPool(t, KindPrometheus, ProbeRequire, "http://a", "http://b")
	p.serve("a", with(healthy(1), "/api/v1/status/flags", success(`{"query.lookback-delta":"1m"}`),
		"/api/v1/query", success(`{"resultType":"vector","result":[{"metric":{},"value":[0,"600"]}]}`)))
	p.serve("b", with(healthy(2), "/api/v1/status/flags", "404 ", "/api/v1/query", `422 {"status":"error"}`))
	require.NoError(t, p.Check(t.Context()))
	require.Equal(t, Assumptions{Lookback: 5 * time.Minute, SubqueryStep: time.Minute}, p.Assumed())
}

func TestKindThatFlagsToldIsKeptAsLongAsTheyAreNotThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPool(t, KindPrometheus, ProbeWarn, "http://a")
		mismatch := p.metrics.mismatch.WithLabelValues("http://a", MismatchKind)
		thanos := with(healthy(1), "/api/v1/status/buildinfo", success(`{"version":"","goVersion":"go1.26"}`), "/api/v1/status/flags", success(`{"query.replica-label":""}`))
		p.serve("a", thanos)
		require.NoError(t, p.Check(t.Context()))
		require.Equal(t, 1.0, testutil.ToFloat64(mismatch))
		p.run(t)
		for answer, want := range map[string]float64{"503 busy": 1, success(`{"web.listen-address":""}`): 0} {
			p.serve("a", thanos)
			time.Sleep(factsEvery + lookEvery)
			p.serve("a", with(thanos, "/api/v1/status/flags", answer))
			time.Sleep(factsEvery + lookEvery)
			synctest.Wait()
			require.InDelta(t, want, testutil.ToFloat64(mismatch), 0, answer)
		}
	})
}

func TestStartDoesNotWaitForAServerWhoseQueriesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := newSlowPool(t, "http://a")
		s.delay("/api/v1/query", time.Hour)
		p.serve("a", with(healthy(1), "/api/v1/status/flags", success(`{"query.lookback-delta":"1h"}`)))
		begin := time.Now()
		require.NoError(t, p.Check(t.Context()))
		require.Equal(t, lookTimeout, time.Since(begin))
		require.Equal(t, Assumptions{Lookback: time.Hour, SubqueryStep: time.Minute}, p.Assumed(), "what it told counts")

		p.run(t)
		asked := p.count("a/api/v1/status/flags")
		time.Sleep(time.Hour)
		require.Less(t, p.count("a/api/v1/status/flags")-asked, 65, "it is not asked at every look")
	})
}

func TestServerIsLeftInTimeWhileItIsAskedWhatItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := newSlowPool(t, "http://a", "http://b")
		p.serve("a", with(healthy(1), "/metrics", "x 1\n"))
		p.serve("b", with(healthy(2), "/metrics", "x 1\n"))
		require.NoError(t, p.Check(t.Context()))
		p.run(t)
		s.delay("/api/v1/query", time.Hour)
		s.delay("/metrics", time.Hour)
		for off := range 40 {
			first, second := []string{"a", "b"}[off%2], []string{"b", "a"}[off%2]
			p.serve("a", with(healthy(1), "/metrics", "x 1\n"))
			p.serve("b", with(healthy(2), "/metrics", "x 1\n"))
			time.Sleep(2*time.Minute + time.Duration(off)*500*time.Millisecond)
			require.Equal(t, first, p.chosen(t))
			p.serve(first, map[string]string{"/-/ready": "503 "})
			time.Sleep(lookEvery + time.Millisecond)
			require.Equal(t, second, p.chosen(t), "after %d", off)
		}
	})
}

func TestServerThatAnswersSlowlyHasAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := newSlowPool(t, "http://a")
		p.serve("a", healthy(1))
		require.NoError(t, p.Check(t.Context()))
		p.run(t)
		s.delay("/-/ready", 2500*time.Millisecond)
		s.delay("/api/v1/query", time.Hour)
		for range 1200 {
			time.Sleep(250 * time.Millisecond)
			require.False(t, p.Gone())
		}
	})
}

func TestWhatAServerSaidBeforeItWasAwayIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, s := newSlowPool(t, "http://a", "http://b")
		p.serve("a", healthy(1))
		p.serve("b", healthy(2))
		require.NoError(t, p.Check(t.Context()))
		p.run(t)
		time.Sleep(factsEvery - time.Second)
		s.delay("/api/v1/status/runtimeinfo", 3*time.Second)
		time.Sleep(2 * time.Second) // It is asked, and goes away before the answer comes.
		p.Failed(p.Pool.servers[0], Away)
		p.serve("a", with(healthy(1), "/api/v1/status/runtimeinfo", success(`{"startTime":"1999-11-21T13:00:00Z"}`)))
		time.Sleep(settleAfter + lookEvery)
		require.Equal(t, "b", p.chosen(t), "the other one runs longer now")
	})
}
