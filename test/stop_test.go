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

// TestAQueryThatIsStoppedEndsAtStockPrometheus stops one that takes many seconds.
func TestAQueryThatIsStoppedEndsAtStockPrometheus(t *testing.T) {
	t.Parallel()
	s := stock(t, history.data(t))
	g := promguard(t, s)
	end := metric(t, s.url, "prometheus_tsdb_head_max_time_seconds", nil)
	at := func(before float64) string { return secondsText(time.UnixMilli(int64(1000 * (end - before)))) }
	answers := make(chan answer, 1)
	go func() {
		res, err := http.PostForm(g.url+"/api/v1/query_range", url.Values{
			"query": {`count(quantile_over_time(0.5, apiserver_request_sli_duration_seconds_bucket[10m]))`},
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

	stopped := s.cpu(t)
	time.Sleep(3 * time.Second)
	require.Less(t, s.cpu(t)-stopped, time.Second, "the server works on")
}
