// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/gogo/protobuf/proto"
	gosnappy "github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
	"github.com/stretchr/testify/require"
)

// The configuration of both builds: samples may come hours late.
const rollbackConfig = `
storage:
  tsdb: {out_of_order_time_window: 12h}
  exemplars: {max_exemplars: 10000}
`

const (
	rollbackStep   = 30 * time.Second
	rollbackChunk  = 40 * time.Minute // What one round writes, in order.
	rollbackSeries = 4
)

// An operator tries the patched build on a data directory of upstream's release,
// goes back, and comes again, with clean stops and with kills. Each build finds
// every sample that the other wrote: floats, native histograms of every kind,
// exemplars, samples out of order and deletions, in the head's chunks, the WAL and
// the WBL. All of it is too young for a block, as a checkpoint would rightly drop
// exemplars; blocks change hands in TestTheBuildAnswersAsUpstreamDoes.
func TestOneDataDirectoryGoesBackAndForthBetweenTheBuilds(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	begin := time.Now().Add(-4 * time.Hour).Truncate(time.Minute)
	var last []string
	for i, round := range []struct {
		binary string
		end    syscall.Signal
	}{
		{"stock/prometheus", syscall.SIGTERM},
		{"prometheus", syscall.SIGTERM},
		{"stock/prometheus", syscall.SIGKILL},
		{"prometheus", syscall.SIGKILL},
		{"stock/prometheus", syscall.SIGTERM},
	} {
		s := startOn(t, round.binary, data)
		if last != nil {
			require.Equal(t, last, seen(t, s, begin), "round %d: %s sees something else than the build before it", i, round.binary)
		}
		writeRound(t, s, begin, i)
		last = seen(t, s, begin)
		requireRound(t, s, begin, i)
		require.NoError(t, s.cmd.Process.Signal(round.end))
		<-s.exited
	}
}

// startOn starts a build on the data directory, with no flag but upstream's.
func startOn(t *testing.T, name, data string) *server {
	t.Helper()
	config := filepath.Join(t.TempDir(), "prometheus.yml")
	require.NoError(t, os.WriteFile(config, []byte(rollbackConfig), 0o644))
	address := freeAddress(t)
	return start(t, address, name, "--config.file="+config, "--storage.tsdb.path="+data, "--web.listen-address="+address,
		"--storage.tsdb.retention.time=100y", "--web.enable-remote-write-receiver", "--web.enable-admin-api",
		"--enable-feature=exemplar-storage")
}

// writeRound writes what the n-th round has to say: a stretch of every kind of
// sample after that of the round before, late samples in between those of all
// rounds, and, from the second on, a deletion.
func writeRound(t *testing.T, s *server, begin time.Time, n int) {
	t.Helper()
	from := begin.Add(time.Duration(n) * rollbackChunk)
	for at := from; at.Before(from.Add(rollbackChunk)); at = at.Add(rollbackStep) {
		remoteWrite(t, s, at.UnixMilli(), int64(at.Sub(begin)/rollbackStep), true)
	}
	for at := begin.Add(time.Duration(n+1) * time.Second); at.Before(from); at = at.Add(20 * rollbackStep) {
		remoteWrite(t, s, at.UnixMilli(), int64(n), false)
	}
	if n > 0 {
		match := fmt.Sprintf(`roundtrip_value{series="%d"}`, n%rollbackSeries)
		deleted := url.Values{"match[]": {match}, "start": {seconds(from)}, "end": {seconds(from.Add(time.Minute))}}
		require.Equal(t, http.StatusNoContent, post(t, s.url+"/api/v1/admin/tsdb/delete_series", deleted.Encode()).code)
	}
}

// remoteWrite sends one moment's samples.
func remoteWrite(t *testing.T, s *server, at, n int64, exemplars bool) {
	t.Helper()
	var request prompb.WriteRequest
	add := func(name string, series int) *prompb.TimeSeries {
		request.Timeseries = append(request.Timeseries, prompb.TimeSeries{Labels: []prompb.Label{
			{Name: "__name__", Value: name}, {Name: "series", Value: strconv.Itoa(series)},
		}})
		return &request.Timeseries[len(request.Timeseries)-1]
	}
	for i := range rollbackSeries {
		value := add("roundtrip_value", i)
		value.Samples = []prompb.Sample{{Value: float64(n*100) + float64(i) + 0.25, Timestamp: at}}
		if exemplars && n%10 == 0 {
			value.Exemplars = []prompb.Exemplar{{
				Labels: []prompb.Label{{Name: "trace_id", Value: fmt.Sprintf("%d-%d", n, i)}}, Value: float64(n), Timestamp: at,
			}}
		}
		add("roundtrip_native", i).Histograms = []prompb.Histogram{prompb.FromIntHistogram(at, tsdbutil.GenerateTestHistogram(n))}
		add("roundtrip_native_float", i).Histograms = []prompb.Histogram{prompb.FromFloatHistogram(at, tsdbutil.GenerateTestFloatHistogram(n))}
		add("roundtrip_native_custom", i).Histograms = []prompb.Histogram{prompb.FromIntHistogram(at, tsdbutil.GenerateTestCustomBucketsHistogram(n))}
	}
	body, err := proto.Marshal(&request)
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/api/v1/write", bytes.NewReader(gosnappy.Encode(nil, body)))
	require.NoError(t, err)
	req.Header.Set("Content-Encoding", "snappy")
	req.Header.Set("Content-Type", "application/x-protobuf")
	answer := do(t, req)
	require.Equal(t, http.StatusNoContent, answer.code, answer.body)
}

// seen is all that queries see: every sample as it was written, what is
// computed from them, every exemplar, and the names.
func seen(t *testing.T, s *server, begin time.Time) []string {
	t.Helper()
	end := begin.Add(5 * time.Hour)
	times := url.Values{"start": {seconds(begin)}, "end": {seconds(end)}}
	with := func(key, value string) string {
		v := url.Values{key: {value}}
		for k := range times {
			v.Set(k, times.Get(k))
		}
		return v.Encode()
	}
	var out []string
	for _, path := range []string{
		"/api/v1/query?" + url.Values{"query": {`{__name__=~"roundtrip_.+"}[6h]`}, "time": {seconds(end)}}.Encode(),
		"/api/v1/query_range?step=60&" + with("query", `sum by (series) (rate(roundtrip_value[5m]))`),
		"/api/v1/query_range?step=300&" + with("query", `histogram_quantile(0.9, sum(rate(roundtrip_native[10m])))`),
		"/api/v1/query_range?step=300&" + with("query", `histogram_sum(sum(roundtrip_native_float)) + histogram_count(sum(roundtrip_native_custom))`),
		"/api/v1/query_exemplars?" + with("query", "roundtrip_value"),
		"/api/v1/series?" + with("match[]", `{__name__=~"roundtrip_.+"}`),
		"/api/v1/labels?" + times.Encode(),
		"/api/v1/label/series/values?" + times.Encode(),
	} {
		answer := get(t, s.url+path)
		require.Equal(t, http.StatusOK, answer.code, "%s: %s", path, answer.body)
		out = append(out, answer.body)
	}
	return out
}

// requireRound checks that the answers that are compared hold what was written:
// the number of samples of a series after the n-th round, without those deleted.
func requireRound(t *testing.T, s *server, begin time.Time, n int) {
	t.Helper()
	perRound := int(rollbackChunk / rollbackStep)
	want := (n + 1) * perRound
	for round := 1; round <= n; round++ {
		span := time.Duration(round)*rollbackChunk - time.Duration(round+1)*time.Second
		want += int((span + 20*rollbackStep - 1) / (20 * rollbackStep)) // Late ones.
	}
	query := url.Values{"query": {`count_over_time(roundtrip_native{series="0"}[6h])`}, "time": {seconds(begin.Add(5 * time.Hour))}}
	require.Contains(t, get(t, s.url+"/api/v1/query?"+query.Encode()).body, fmt.Sprintf(`"%d"]`, want))
	exemplars := get(t, s.url+"/api/v1/query_exemplars?"+url.Values{
		"query": {`roundtrip_value{series="1"}`}, "start": {seconds(begin)}, "end": {seconds(begin.Add(5 * time.Hour))},
	}.Encode()).body
	require.Contains(t, exemplars, fmt.Sprintf(`"trace_id":"%d-1"`, n*perRound))
}

func seconds(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) }
