// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/stretchr/testify/require"
)

// scalarOf returns the value of a query that gives one sample, or -1 if it gives none. A
// server with little memory may ask for another try.
func scalarOf(t *testing.T, s *server, query string) float64 {
	t.Helper()
	at := s.url + "/api/v1/query?query=" + url.QueryEscape(query)
	a := get(t, at)
	for began := time.Now(); a.code == http.StatusServiceUnavailable && time.Since(began) < patience; a = get(t, at) {
		time.Sleep(100 * time.Millisecond)
	}
	require.Equal(t, http.StatusOK, a.code, a.body)
	var data struct{ Result []struct{ Value [2]any } }
	require.NoError(t, json.Unmarshal(envelopeOf(t, a).Data, &data))
	if len(data.Result) == 0 {
		return -1
	}
	v, err := strconv.ParseFloat(data.Result[0].Value[1].(string), 64)
	require.NoError(t, err)
	return v
}

// memoryStatus is the memory in /api/v1/status/guard.
type memoryStatus struct {
	State                       string
	Limit, Live, Resident, Kill int64
	Since                       time.Time
}

func memoryOf(t *testing.T, s *server) memoryStatus {
	t.Helper()
	var data struct{ Memory memoryStatus }
	require.NoError(t, json.Unmarshal(envelopeOf(t, get(t, s.url+"/api/v1/status/guard")).Data, &data))
	return data.Memory
}

// anonOf returns the bytes of a server that the kernel cannot take back.
func anonOf(t *testing.T, s *server) (kib int64) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	require.NoError(t, err, "it runs")
	_, anon, _ := strings.Cut(string(status), "\nRssAnon:")
	_, err = fmt.Sscan(anon, &kib)
	require.NoError(t, err)
	return kib << 10
}

// TestATargetThatExplodesIsRefusedAndNothingElseIs takes a server of 150 MB.
func TestATargetThatExplodesIsRefusedAndNothingElseIs(t *testing.T) {
	t.Parallel()
	const (
		limit = 128 << 20
		each  = 3_000 // histograms of four series that are new at each scrape, until many were refused
	)
	var exploding, full, ended atomic.Bool
	var exposed, again atomic.Int64
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		out := bufio.NewWriter(w)
		defer out.Flush()
		for i := range 20 {
			fmt.Fprintf(out, "steady{i=\"%d\"} %d\n", i, time.Now().UnixMilli())
		}
		if r.URL.Path == "/steady" {
			return
		}
		if ended.Load() {
			fmt.Fprintf(out, "after 1\n")
		}
		if !exploding.Load() {
			return
		}
		if full.Load() {
			again.Add(1)
		} else {
			exposed.Add(each)
		}
		for i := range exposed.Load() {
			fmt.Fprintf(out, "explosion_bucket{id=\"%d\",le=\"1\"} 1\nexplosion_bucket{id=\"%d\",le=\"+Inf\"} 1\nexplosion_count{id=\"%d\"} 1\nexplosion_sum{id=\"%d\"} 1\n", i, i, i, i)
		}
	}))
	defer target.Close()
	config := fmt.Sprintf(`global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs:
- {job_name: steady, scrape_interval: 5s, scrape_timeout: 5s, metrics_path: /steady, static_configs: [{targets: [%[1]q]}]}
- {job_name: exploding, static_configs: [{targets: [%[1]q]}]}
`, strings.TrimPrefix(target.URL, "http://"))
	s := prometheus(t, t.TempDir(), config, "--guard.memory-limit=128MB", "--guard.drop-rules=off")
	eventually(t, "the steady series are there", func() bool { return scalarOf(t, s, `count(steady)`) == 40 })
	require.Equal(t, "ok", memoryOf(t, s).State)
	require.EqualValues(t, limit, memoryOf(t, s).Limit)

	var worst int64
	var states []string
	began := time.Now()
	until := func(what string, condition func(now memoryStatus) bool) {
		eventually(t, what, func() bool {
			now := memoryOf(t, s)
			worst = max(worst, anonOf(t, s))
			if len(states) == 0 || states[len(states)-1] != now.State {
				states = append(states, now.State)
				t.Logf("%6.1fs %s, %d MiB live, %d in all", time.Since(began).Seconds(), now.State, now.Live>>20, worst>>20)
			}
			return condition(now)
		})
		t.Logf("%6.1fs %s", time.Since(began).Seconds(), what)
	}
	exploding.Store(true)
	until("the culprit is named", func(memoryStatus) bool {
		all := culprits(t, s)
		return len(all) > 0 && all[0].Job == "exploding"
	})
	require.LessOrEqual(t, exposed.Load(), int64(10*each), "it takes more than ten scrapes to name it")
	// Queries may be stopped meanwhile.
	until("series are refused", func(memoryStatus) bool {
		return metric(t, s.url, "prometheus_guard_series_refused_total", map[string]string{"source": "scrape", "reason": "memory"}) > 0
	})
	fit := exposed.Load()
	until("many are refused", func(memoryStatus) bool { return exposed.Load() >= fit+5*each })
	full.Store(true)
	until("all of it has been exposed five times", func(memoryStatus) bool { return again.Load() >= 5 })
	require.Contains(t, s.out.String(), "The state of the memory has changed")

	exploding.Store(false)
	ended.Store(true)
	until("the state is ok again", func(now memoryStatus) bool { return now.State == "ok" })
	until("nothing is refused any more", func(memoryStatus) bool {
		return scalarOf(t, s, `scrape_series_refused{job="exploding"}`) == 0 && scalarOf(t, s, `after`) == 1
	})
	require.Contains(t, states, "critical")
	require.Less(t, worst, int64(limit)+32<<20, "what a compaction takes at least, which is much of so small a limit")
	// What is stored of the explosion are whole histograms: a tenth of them fits into a query.
	for digit := range 10 {
		counts := fmt.Sprintf(`present_over_time(explosion_count{id=~".*%d"}[10m])`, digit)
		buckets := fmt.Sprintf(`present_over_time(explosion_bucket{id=~".*%d",le="1"}[10m])`, digit)
		require.Positive(t, scalarOf(t, s, "count("+counts+")"))
		require.Zero(t, scalarOf(t, s, "count("+counts+" unless ignoring(le) "+buckets+") or vector(0)"))
		require.Zero(t, scalarOf(t, s, "count("+buckets+" unless ignoring(le) "+counts+") or vector(0)"))
	}
	require.Positive(t, scalarOf(t, s, `max_over_time(scrape_series_refused{job="exploding"}[10m])`))
	// Each scrape that was up has a sample of each of the steady series.
	require.EqualValues(t, 1, scalarOf(t, s, `min_over_time(up{job="steady"}[10m])`))
	at := fmt.Sprintf("@ %d", time.Now().Add(-2*time.Second).Unix()) // A scrape may be going on.
	for _, job := range []string{"steady", "exploding"} {
		lost := fmt.Sprintf(`sum(20 * sum_over_time(up{job=%[1]q}[10m] %[2]s)) - sum(count_over_time(steady{job=%[1]q}[10m] %[2]s))`, job, at)
		require.Zero(t, scalarOf(t, s, lost))
	}
}

// Nobody can wait for a garbage collection to tell that they were too many.
func TestOneScrapeBringsNoMoreSeriesThanThereIsMemoryFor(t *testing.T) {
	t.Parallel()
	const limit, series = 128 << 20, 500_000 // of some 900 bytes
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		out := bufio.NewWriter(w)
		defer out.Flush()
		for i := range series {
			fmt.Fprintf(out, "bomb{id=\"%d\"} 1\n", i)
		}
	}))
	defer target.Close()
	config := fmt.Sprintf(`global: {scrape_interval: 50s, scrape_timeout: 50s}
scrape_configs:
- {job_name: bomb, static_configs: [{targets: [%q]}]}
`, strings.TrimPrefix(target.URL, "http://"))
	s := prometheus(t, t.TempDir(), config, "--guard.memory-limit=128MB", "--guard.drop-rules=off")
	var worst int64
	eventually(t, "the scrape has been refused series", func() bool {
		worst = max(worst, anonOf(t, s))
		return scalarOf(t, s, `scrape_series_refused`) > 0
	})
	require.EqualValues(t, series, scalarOf(t, s, `scrape_samples_scraped`))
	require.Greater(t, scalarOf(t, s, `scrape_series_refused`), float64(series)/2)
	require.Less(t, worst, int64(limit)+32<<20)
}

func TestALimitOfSeriesIsReadAgainWithTheConfiguration(t *testing.T) {
	t.Parallel()
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		for i := range 10 {
			fmt.Fprintf(w, "a{i=\"%d\"} 1\n", i)
		}
	}))
	defer target.Close()
	limits := filepath.Join(t.TempDir(), "limits.yml")
	write := func(most int, mode string) {
		require.NoError(t, os.WriteFile(limits, fmt.Appendf(nil, "limits: [{name: a-s, label: __name__, value: a, max_series: %d, mode: %s}]\n", most, mode), 0o644))
	}
	write(4, "enforce")
	config := fmt.Sprintf("global: {scrape_interval: 500ms, scrape_timeout: 500ms}\nscrape_configs: [{job_name: a, static_configs: [{targets: [%q]}]}]\n", strings.TrimPrefix(target.URL, "http://"))
	s := prometheus(t, t.TempDir(), config, "--guard.series-limits="+limits, "--guard.drop-rules=off", "--web.enable-lifecycle")
	eventually(t, "of a scrape six are refused and four are let in", func() bool {
		return scalarOf(t, s, `scrape_series_refused`) == 6 && scalarOf(t, s, `count(a)`) == 4 && scalarOf(t, s, `up`) == 1
	})

	reload := func() answer {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/-/reload", nil)
		require.NoError(t, err)
		return do(t, req)
	}
	write(0, "enforce")
	a := reload()
	require.Equal(t, http.StatusInternalServerError, a.code)
	require.Contains(t, s.out.String(), `limits[0] \"a-s\": max_series: 0 is not at least 1`)
	write(4, "observe")
	require.Equal(t, http.StatusOK, reload().code)
	eventually(t, "all are let in", func() bool { return scalarOf(t, s, `count(a)`) == 10 && scalarOf(t, s, `scrape_series_refused`) == 0 })
	require.Contains(t, get(t, s.url+"/metrics").body, `prometheus_guard_series_over_limit_total{limit="a-s",mode="observe"}`)
	require.NoError(t, os.WriteFile(limits, nil, 0o644))
	require.Equal(t, http.StatusOK, reload().code)
}

func TestEmptyFilesStartAServer(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty.yml")
	require.NoError(t, os.WriteFile(empty, []byte("# nothing yet\n"), 0o644))
	s := prometheus(t, t.TempDir(), emptyConfig, "--guard.series-limits="+empty, "--guard.drop-rules="+empty, "--web.enable-lifecycle")
	require.Equal(t, http.StatusOK, post(t, s.url+"/-/reload", "").code)
}

// TestSendersAreToldOfRefusedSeriesByTheirProtocol has a head that is full after the
// first series.
func TestSendersAreToldOfRefusedSeriesByTheirProtocol(t *testing.T) {
	t.Parallel()
	s := prometheus(t, t.TempDir(), emptyConfig, "--guard.max-head-series=1", "--guard.drop-rules=off",
		"--web.enable-remote-write-receiver", "--web.enable-otlp-receiver")
	sendWrite(t, s.url, "old")
	post := func(path, contentType, body string, headers ...string) answer {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+path, strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Content-Type", contentType)
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		return do(t, req)
	}
	stored := func() float64 { return scalarOf(t, s, `count_over_time(old[5m] offset -1m)`) }
	require.EqualValues(t, 1, stored())
	now := time.Now().UnixMilli() + 1000
	label := prompb.Label{Name: "path", Value: "remote-write"}

	v1 := &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{
		{Labels: []prompb.Label{{Name: "__name__", Value: "new"}, label}, Samples: []prompb.Sample{{Value: 1, Timestamp: now}}, Exemplars: []prompb.Exemplar{{Value: 1, Timestamp: now}}},
		{Labels: []prompb.Label{{Name: "__name__", Value: "old"}, label}, Samples: []prompb.Sample{{Value: 1, Timestamp: now}}},
	}}
	a := post("/api/v1/write", "application/x-protobuf", snappy(t, v1), "Content-Encoding", "snappy")
	require.Equal(t, http.StatusBadRequest, a.code, "the sender does not try it again")
	require.Equal(t, `1 samples and 0 histograms of new series were refused, the others are stored. The first: {__name__="new", path="remote-write"}: new series refused: the head has 1 series, the most that --guard.max-head-series allows`, strings.TrimSpace(a.body))
	require.EqualValues(t, 2, stored())

	v2 := &writev2.Request{Symbols: []string{"", "__name__", "new", "old", "path", "remote-write"}, Timeseries: []writev2.TimeSeries{
		{LabelsRefs: []uint32{1, 2, 4, 5}, Samples: []writev2.Sample{{Value: 1, Timestamp: now + 1}, {Value: 2, Timestamp: now + 2}}, Exemplars: []writev2.Exemplar{{Value: 1, Timestamp: now + 1}}},
		{LabelsRefs: []uint32{1, 3, 4, 5}, Samples: []writev2.Sample{{Value: 1, Timestamp: now + 1}}},
	}}
	a = post("/api/v1/write", "application/x-protobuf;proto=io.prometheus.write.v2.Request", snappy(t, v2), "Content-Encoding", "snappy")
	require.Equal(t, http.StatusBadRequest, a.code)
	require.Contains(t, a.body, "2 samples and 0 histograms of new series were refused")
	require.Equal(t, "1", a.header.Get("X-Prometheus-Remote-Write-Samples-Written"))
	require.Equal(t, "0", a.header.Get("X-Prometheus-Remote-Write-Histograms-Written"))
	require.Equal(t, "0", a.header.Get("X-Prometheus-Remote-Write-Exemplars-Written"))
	require.EqualValues(t, 3, stored())

	otlp := fmt.Sprintf(`{"resourceMetrics":[{"scopeMetrics":[{"metrics":[
{"name":"h","histogram":{"aggregationTemporality":2,"dataPoints":[{"count":"3","sum":5,"bucketCounts":["1","1","1"],"explicitBounds":[1,2],"timeUnixNano":"%[1]d"}]}},
{"name":"old","gauge":{"dataPoints":[{"asDouble":1,"timeUnixNano":"%[1]d","attributes":[{"key":"path","value":{"stringValue":"remote-write"}}]}]}}]}]}]}`, (now+5)*1e6)
	a = post("/api/v1/otlp/v1/metrics", "application/json", otlp)
	require.Equal(t, http.StatusOK, a.code, a.body)
	var partial struct {
		PartialSuccess struct {
			RejectedDataPoints string
			ErrorMessage       string
		}
	}
	require.NoError(t, json.Unmarshal([]byte(a.body), &partial), a.body)
	require.Equal(t, "1", partial.PartialSuccess.RejectedDataPoints, "one histogram")
	require.Contains(t, partial.PartialSuccess.ErrorMessage, "5 samples and 0 histograms of new series were refused")
	require.EqualValues(t, 4, stored())
	require.EqualValues(t, 1, scalarOf(t, s, `count({__name__!=""})`))
}
