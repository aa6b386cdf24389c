// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package readapi

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/common/route"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/internal/screen"
	"github.com/prometheus/prometheus/promguard/memory"
	"github.com/prometheus/prometheus/promguard/newseries"
)

// withPage serves a route under limits, and the page.
func withPage(t *testing.T, opts Options, next http.HandlerFunc) (s *httptest.Server, state func() screen.State) {
	h, router := limited(t, opts), route.New()
	router.Get("/query", h.API("/query", next))
	h.RegisterPage(router, promslog.NewNopLogger())
	s = httptest.NewServer(router)
	t.Cleanup(s.Close)
	return s, func() (state screen.State) {
		_, body := get(t, s.URL+screen.Route+"/state")
		require.NoError(t, json.Unmarshal([]byte(body), &state))
		return state
	}
}

func TestThePageNamesAReadThatWaitsForItsTurnAndStopsIt(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	s, state := withPage(t, Options{QueryConcurrency: 1, QueueTimeout: time.Minute, EnableStop: true}, func(http.ResponseWriter, *http.Request) {
		begun <- struct{}{}
		<-end
	})
	ask := func(query string) <-chan int {
		code := make(chan int, 1)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/query?query="+query, http.NoBody)
		require.NoError(t, err)
		req.Header.Set("X-Dashboard-Title", "Nodes")
		go func() {
			res, err := s.Client().Do(req)
			if err != nil {
				code <- 0
				return
			}
			_ = res.Body.Close()
			code <- res.StatusCode
		}()
		return code
	}
	first := ask("one")
	<-begun
	second := ask("two")
	var waits screen.Query
	require.Eventually(t, func() bool {
		running := state().Running
		if len(running) == 2 {
			waits = running[1]
		}
		return waits.Waits
	}, time.Minute, time.Millisecond)
	require.Equal(t, "two", waits.Text)
	require.Equal(t, "Nodes", waits.DashboardTitle)

	res, err := s.Client().PostForm(s.URL+screen.Route+"/stop", url.Values{"id": {waits.ID}})
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusServiceUnavailable, <-second)
	close(end)
	require.Equal(t, http.StatusOK, <-first)
	require.Eventually(t, func() bool {
		s := state()
		return len(s.Refusals) == 1 && s.Refusals[0].Reason == "operator" && len(s.Costs[0].Costs) == 1 && s.Costs[0].Costs[0].Text == "one" && s.Costs[0].Costs[0].Client == "127.0.0.1"
	}, time.Minute, time.Millisecond)
}

func TestThePageSaysTheStateOfTheMemoryAndWhyNothingCanBeStopped(t *testing.T) {
	_, state := withPage(t, Options{
		Memory: memory.NewMonitor(memory.Auto), NewSeries: newseries.New(),
		Replay: func() string { return "it replays the write-ahead log, 42.0 % done" },
	}, nil)
	s := state()
	require.Equal(t, "replaying", s.Health)
	require.Equal(t, screen.Warn, s.Level)
	require.Equal(t, "it replays the write-ahead log, 42.0 % done", s.Detail)
	require.Equal(t, "Lives in memory", s.Gauges[0].Name)
	require.NotNil(t, s.NewSeries)
	require.Equal(t, noStop, s.NoStop)
}

func TestThePageHasThoseWhoAddMostSeriesFirst(t *testing.T) {
	a := adders(&newseries.Report{Created: 10, Culprits: []newseries.Culprit{{Share: 0.2, Created: 2}, {Share: 0.7, Created: 7}, {Share: 0.1, Created: 1}}})
	var shares []float64
	for _, of := range a.Adders {
		shares = append(shares, of.Share)
	}
	require.Equal(t, []float64{0.7, 0.2, 0.1}, shares)
}
