// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

func samplesAt(at time.Time) string {
	return fmt.Sprintf("prometheus_tsdb_head_max_time_seconds %d\n", at.Unix())
}

func TestStaleServerStaysSoUntilASampleSaysOtherwise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPool(t, KindPrometheus, ProbeRequire, "http://a", "http://b")
		begin := time.Now()
		p.serve("a", with(healthy(1), "/metrics", samplesAt(begin)))
		p.serve("b", with(healthy(2), "/metrics", samplesAt(begin)))
		require.NoError(t, p.Check(t.Context()))
		p.run(t)
		tick := func(a, b string) {
			p.serve("a", with(healthy(1), "/metrics", a))
			p.serve("b", with(healthy(2), "/metrics", b))
			time.Sleep(newestEvery + lookEvery)
		}
		now := func() string { return samplesAt(time.Now()) }
		for range 15 {
			tick(samplesAt(begin), now())
		}
		require.Equal(t, "b", p.chosen(t))
		switches := testutil.ToFloat64(p.metrics.switches)
		for range 5 {
			tick("503 ", now())
			tick(samplesAt(begin), now())
			tick(samplesAt(begin), "503 ")
			require.Equal(t, "b", p.chosen(t))
		}
		last := time.Now()
		p.serve("b", nil)
		time.Sleep(lookEvery + time.Second)
		require.Equal(t, "a", p.chosen(t), "it is the only one")
		require.Equal(t, 1.0, testutil.ToFloat64(p.metrics.state.WithLabelValues("http://a", "stale")))
		for range 4 {
			tick(samplesAt(last.Add(-newestEvery)), now())
		}
		require.Equal(t, "b", p.chosen(t))
		require.InDelta(t, 2, testutil.ToFloat64(p.metrics.switches)-switches, 0)

		tick(now(), now())
		require.Equal(t, "b", p.chosen(t), "the other one has new samples, and settles first")
		for range 3 {
			tick(now(), now())
		}
		require.Equal(t, "a", p.chosen(t), "which runs longer")
	})
}

// fresh has servers with a sample of every moment, of which one answers late.
type fresh struct{ *fleet }

// RoundTrip implements http.RoundTripper.
func (f *fresh) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Path != "/metrics" {
		return f.fleet.RoundTrip(req)
	}
	if req.URL.Host == "b" {
		time.Sleep(lookTimeout / 2)
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(samplesAt(time.Now()))), Request: req}, nil
}

func TestTwoServersWithNewSamplesAreNotStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPool(t, KindPrometheus, ProbeRequire, "http://a", "http://b")
		p.transport, p.staleAfter = &fresh{p.fleet}, MinStaleAfter
		p.serve("a", healthy(1))
		p.serve("b", healthy(2))
		require.NoError(t, p.Check(t.Context()))
		p.run(t)
		time.Sleep(time.Hour)
		require.Equal(t, "a", p.chosen(t))
		require.Zero(t, testutil.ToFloat64(p.metrics.switches))
	})
}
