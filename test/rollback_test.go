// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
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
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	modelvalue "github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
	"github.com/prometheus/prometheus/tsdb/wlog"
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
	rollbackChunk  = 35 * time.Minute // What one round writes, in order: five are too short for a block.
	rollbackSeries = 4
)

// rollbackFeatures are upstream's flags that change what is written.
var rollbackFeatures = []string{
	"--enable-feature=st-storage,xor2-encoding,histograms-st-encoding,metadata-wal-records,memory-snapshot-on-shutdown",
	"--enable-feature=use-start-timestamps", // To see them in answers.
	"--storage.tsdb.wal-compression-type=zstd",
}

// An operator tries the patched build on a data directory of upstream's release,
// goes back, and comes again, with clean stops and with kills. Each build finds
// every sample that the other wrote: floats and stale markers, native histograms
// of every kind, start timestamps, exemplars, samples out of order and deletions,
// in the head's chunks, its snapshot, the WAL and the WBL. All of it is too young
// for a block, as a checkpoint would rightly drop exemplars; blocks change hands
// in TestTheBuildAnswersAsUpstreamDoes.
func TestOneDataDirectoryGoesBackAndForthBetweenTheBuilds(t *testing.T) {
	t.Parallel()
	t.Run("as it is written by default", func(t *testing.T) {
		t.Parallel()
		written := goBackAndForth(t, false)
		require.NotZero(t, written[record.Samples])
		require.Zero(t, written[record.SamplesV2])
	})
	t.Run("with every feature that changes what is written", func(t *testing.T) {
		t.Parallel()
		written := goBackAndForth(t, true, rollbackFeatures...)
		for _, typ := range []record.Type{record.Series, record.SamplesV2, record.HistogramSamplesV2, record.FloatHistogramSamplesV2, record.Metadata, record.Exemplars, record.Tombstones} {
			require.NotZero(t, written[typ], "records of %s", typ)
		}
	})
}

// The same with the release of upstream that was patched before, which make
// test-previous builds.
func TestOneDataDirectoryGoesBackToTheReleaseBefore(t *testing.T) {
	const previous = "previous/prometheus"
	if _, err := os.Stat(filepath.Join(os.Getenv("PROMGUARD_BIN"), previous)); err != nil {
		t.Skip("make test-previous builds the release before")
	}
	rounds := []rollbackRound{
		{previous, syscall.SIGTERM},
		{"prometheus", syscall.SIGKILL},
		{previous, syscall.SIGKILL},
		{"stock/prometheus", syscall.SIGTERM},
		{previous, syscall.SIGTERM},
		{"prometheus", syscall.SIGTERM},
	}
	t.Run("as it is written by default", func(t *testing.T) {
		t.Parallel()
		goThrough(t, rounds, false)
	})
	t.Run("with every feature that changes what is written", func(t *testing.T) {
		t.Parallel()
		goThrough(t, rounds, true, rollbackFeatures...)
	})
}

// rollbackRound is a build that has the data directory for a while, and how it ends.
type rollbackRound struct {
	binary string
	end    syscall.Signal
}

func goBackAndForth(t *testing.T, startTimes bool, args ...string) map[record.Type]int {
	return goThrough(t, []rollbackRound{
		{"stock/prometheus", syscall.SIGTERM},
		{"prometheus", syscall.SIGTERM},
		{"stock/prometheus", syscall.SIGKILL},
		{"prometheus", syscall.SIGKILL},
		{"stock/prometheus", syscall.SIGTERM},
	}, startTimes, args...)
}

// goThrough writes with one build after the other, and returns how many
// records of each type the WAL has in the end. startTimes says that start
// timestamps are stored.
func goThrough(t *testing.T, rounds []rollbackRound, startTimes bool, args ...string) map[record.Type]int {
	t.Helper()
	data := filepath.Join(t.TempDir(), "data")
	begin := time.Now().Add(-4 * time.Hour).Truncate(time.Minute)
	var last []string
	for i, round := range rounds {
		s := startOn(t, round.binary, data, args...)
		if last != nil {
			require.Equal(t, last, seen(t, s, begin), "round %d: %s sees something else than the build before it", i, round.binary)
		}
		writeRound(t, s, begin, i)
		last = seen(t, s, begin)
		requireRound(t, s, begin, i)
		requireResets(t, s, begin, i, startTimes)
		require.NoError(t, s.cmd.Process.Signal(round.end))
		<-s.exited
	}
	return walRecords(t, filepath.Join(data, "wal"))
}

// walRecords counts the records of the WAL by their type.
func walRecords(t *testing.T, dir string) map[record.Type]int {
	t.Helper()
	segments, err := wlog.NewSegmentsReader(dir)
	require.NoError(t, err)
	defer segments.Close()
	dec := record.NewDecoder(nil, promslog.NewNopLogger())
	counts := map[record.Type]int{}
	r := wlog.NewReader(segments)
	for r.Next() {
		counts[dec.Type(r.Record())]++
	}
	require.NoError(t, r.Err())
	return counts
}

// startOn starts a build on the data directory, with no flag but upstream's.
func startOn(t *testing.T, name, data string, args ...string) *server {
	t.Helper()
	config := filepath.Join(t.TempDir(), "prometheus.yml")
	require.NoError(t, os.WriteFile(config, []byte(rollbackConfig), 0o644))
	address := freeAddress(t)
	return start(t, address, name, append([]string{
		"--config.file=" + config, "--storage.tsdb.path=" + data, "--web.listen-address=" + address,
		"--storage.tsdb.retention.time=100y", "--web.enable-remote-write-receiver", "--web.enable-otlp-receiver", "--web.enable-admin-api",
		"--enable-feature=exemplar-storage",
	}, args...)...)
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
	writeStarted(t, s, begin, n)
	writeMetadata(t, s, from)
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
	add("roundtrip_native_gauge", 0).Histograms = []prompb.Histogram{prompb.FromIntHistogram(at, tsdbutil.GenerateTestGaugeHistogram(n))}
	add("roundtrip_native_custom_float", 0).Histograms = []prompb.Histogram{prompb.FromFloatHistogram(at, tsdbutil.GenerateTestCustomBucketsFloatHistogram(n))}
	comesAndGoes := float64(n)
	if n%10 == 9 {
		comesAndGoes = math.Float64frombits(modelvalue.StaleNaN)
	}
	add("roundtrip_comes_and_goes", 0).Samples = []prompb.Sample{{Value: comesAndGoes, Timestamp: at}}
	body, err := proto.Marshal(&request)
	require.NoError(t, err)
	write(t, s, "application/x-protobuf", body)
}

// writeMetadata sends a sample with metadata, which only remote write 2.0 has.
func writeMetadata(t *testing.T, s *server, at time.Time) {
	t.Helper()
	symbols := writev2.NewSymbolTable()
	series := writev2.TimeSeries{
		LabelsRefs: symbols.SymbolizeLabels(labels.FromStrings("__name__", "roundtrip_described_seconds"), nil),
		Samples:    []writev2.Sample{{Value: 1, Timestamp: at.UnixMilli()}},
		Metadata: writev2.Metadata{
			Type: writev2.Metadata_METRIC_TYPE_GAUGE, HelpRef: symbols.Symbolize("What it is."), UnitRef: symbols.Symbolize("seconds"),
		},
	}
	request := writev2.Request{Timeseries: []writev2.TimeSeries{series}, Symbols: symbols.Symbols()}
	body, err := request.Marshal()
	require.NoError(t, err)
	write(t, s, "application/x-protobuf;proto=io.prometheus.write.v2.Request", body)
}

func write(t *testing.T, s *server, contentType string, body []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/api/v1/write", bytes.NewReader(gosnappy.Encode(nil, body)))
	require.NoError(t, err)
	req.Header.Set("Content-Encoding", "snappy")
	req.Header.Set("Content-Type", contentType)
	answer := do(t, req)
	require.Equal(t, http.StatusNoContent, answer.code, answer.body)
}

// writeStarted sends what has a start timestamp, which OTLP has of all that is
// cumulative: a counter and a histogram that began anew with the n-th round, but
// went on counting.
func writeStarted(t *testing.T, s *server, begin time.Time, n int) {
	t.Helper()
	from := begin.Add(time.Duration(n) * rollbackChunk)
	type object = map[string]any
	var counted, distributed []object
	for at := from; at.Before(from.Add(rollbackChunk)); at = at.Add(rollbackStep) {
		step := int(at.Sub(begin)/rollbackStep) + 1
		point := func() object {
			return object{"startTimeUnixNano": strconv.FormatInt(from.Add(-time.Second).UnixNano(), 10), "timeUnixNano": strconv.FormatInt(at.UnixNano(), 10)}
		}
		counter, histogram := point(), point()
		counter["asDouble"] = float64(step)
		histogram["count"], histogram["sum"], histogram["scale"] = strconv.Itoa(step), float64(step), 0
		histogram["positive"] = object{"offset": 0, "bucketCounts": []string{strconv.Itoa(step)}}
		counted, distributed = append(counted, counter), append(distributed, histogram)
	}
	const cumulative = 2
	body, err := json.Marshal(object{"resourceMetrics": []object{{"scopeMetrics": []object{{"metrics": []object{
		{"name": "roundtrip_started", "sum": object{"aggregationTemporality": cumulative, "isMonotonic": true, "dataPoints": counted}},
		{"name": "roundtrip_started_native", "exponentialHistogram": object{"aggregationTemporality": cumulative, "dataPoints": distributed}},
	}}}}}})
	require.NoError(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/api/v1/otlp/v1/metrics", bytes.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	answer := do(t, req)
	require.Equal(t, http.StatusOK, answer.code, answer.body)
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
		"/api/v1/query_range?step=30&" + with("query", `roundtrip_comes_and_goes`),
		"/api/v1/query_range?step=300&" + with("query", `avg_over_time(roundtrip_native_gauge[10m])`),
		"/api/v1/query_range?step=300&" + with("query", `rate(roundtrip_started_total[1h]) + histogram_sum(rate(roundtrip_started_native[1h]))`),
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

// requireResets checks that what was written with start timestamps is seen to
// have begun anew with each round, if they are stored: its values only grow.
func requireResets(t *testing.T, s *server, begin time.Time, n int, startTimes bool) {
	t.Helper()
	want := 0
	if startTimes {
		want = n
	}
	for _, name := range []string{"roundtrip_started_total", "roundtrip_started_native"} {
		query := url.Values{"query": {"resets(" + name + "[6h])"}, "time": {seconds(begin.Add(5 * time.Hour))}}
		require.Contains(t, get(t, s.url+"/api/v1/query?"+query.Encode()).body, fmt.Sprintf(`"%d"]`, want), "%s after round %d", name, n)
	}
}

func seconds(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) }
