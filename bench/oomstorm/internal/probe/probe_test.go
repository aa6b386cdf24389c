// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestQuantilesAreOfWhatWasMeasured(t *testing.T) {
	var took []time.Duration
	for i := range 200 {
		took = append(took, time.Duration(200-i)*time.Second)
	}
	require.Equal(t, Summary{Count: 200, Failed: 3, P50: 100, P99: 198, Max: 200}, summarize(took, 3))
	require.Equal(t, Summary{Count: 1, P50: 200, P99: 200, Max: 200}, summarize(took[:1], 0))
	require.Equal(t, Summary{}, summarize(nil, 0))
}

// probed runs probes against a handler until each question was asked so often.
func probed(t *testing.T, dead chan struct{}, often int64, handler http.HandlerFunc) Result {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var asked atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 3*often {
			cancel()
		}
		handler(w, r)
	}))
	defer srv.Close()
	return Run(ctx, dead, srv.URL, 50)
}

func TestSlowServerIsAskedAtTheSameRate(t *testing.T) {
	var asked atomic.Int64
	enough := make(chan struct{})
	r := probed(t, make(chan struct{}), 5, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/query" {
			if asked.Add(1) == 5 {
				close(enough)
			}
			<-enough
		}
	})
	require.GreaterOrEqual(t, r.Query.Count, 5)
	require.Equal(t, r.Health.Count, r.Query.Count)
	require.Equal(t, r.Metrics.Count, r.Query.Count)
	require.Zero(t, r.Query.Failed+r.Health.Failed+r.Metrics.Failed)
}

func TestRefusalCountsAsNoAnswer(t *testing.T) {
	r := probed(t, make(chan struct{}), 3, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/-/healthy" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	require.Zero(t, r.Query.Failed)
	require.Positive(t, r.Health.Count)
	require.Equal(t, r.Health.Count, r.Health.Failed)
	require.Equal(t, Timeout.Seconds(), r.Health.P50)
}

func TestQuestionsOpenWhenTheServerEndsHaveFailed(t *testing.T) {
	dead := make(chan struct{})
	asked := make(chan struct{}, 1000)
	go func() {
		<-asked
		close(dead)
	}()
	r := probed(t, dead, -1, func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	})
	require.Positive(t, r.Query.Count)
	require.Equal(t, r.Query.Count, r.Query.Failed)
	require.Less(t, r.Query.Max, Timeout.Seconds())
}
