// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAQueryThatIsStoppedEndsAtStockPrometheus stops one of 601 steps.
func TestAQueryThatIsStoppedEndsAtStockPrometheus(t *testing.T) {
	t.Parallel()
	s := stock(t, history.data(t))
	g := promguard(t, s)
	end := metric(t, s.url, "prometheus_tsdb_head_max_time_seconds", nil)
	at := func(before float64) string { return secondsText(time.UnixMilli(int64(1000 * (end - before)))) }
	const query = `count(quantile_over_time(0.5, apiserver_request_sli_duration_seconds_bucket[10m]))`
	evaluated := func() float64 { return metric(t, s.url, "prometheus_engine_query_samples_total", nil) }
	require.Equal(t, http.StatusOK, post(t, s.url+"/api/v1/query", url.Values{"query": {query}, "time": {at(600)}}.Encode()).code)
	least := evaluated() // Of a step: later ones have more.
	require.Positive(t, least)
	answers := make(chan answer, 1)
	go func() {
		res, err := http.PostForm(g.url+"/api/v1/query_range", url.Values{
			"query": {query},
			"start": {at(600)}, "end": {at(0)}, "step": {"1"},
		})
		if err != nil {
			answers <- answer{body: err.Error()}
			return
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		answers <- answer{res.StatusCode, res.Header, fmt.Sprint(string(text), err)}
	}()
	list := func(command string, more ...string) []string {
		out, _ := run(t, append([]string{command, "--web.telemetry-address=" + strings.TrimPrefix(g.telemetry, "http://")}, more...)...)
		return strings.Split(strings.TrimSpace(out), "\n")[1:]
	}
	begun := s.cpu(t)
	eventually(t, "the server works on it", func() bool { return s.cpu(t)-begun > 500*time.Millisecond })
	running := list("queries")
	require.Len(t, running, 1)
	require.Contains(t, running[0], "quantile_over_time")
	require.Len(t, list("kill", strings.Fields(running[0])[0]), 1)
	a := <-answers
	require.Equal(t, http.StatusServiceUnavailable, a.code, a.body)
	require.Contains(t, a.body, "an operator stopped this query")
	eventually(t, "it is listed no more", func() bool { return len(list("queries")) == 0 })

	eventually(t, "the server works no more on it", func() bool {
		return metric(t, s.url, "prometheus_engine_queries", nil) == 0
	})
	t.Logf("of %.0f steps", (evaluated()-least)/least)
	require.Less(t, evaluated()-least, 300*least, "half of the steps are evaluated")
}
