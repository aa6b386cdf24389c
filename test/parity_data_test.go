// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
	"github.com/stretchr/testify/require"
)

// dataset is a data directory with every kind of sample, in two blocks and a
// head, written by upstream's own packages. Its newest sample is younger than
// the lookback, so that federation finds it, and its head is too short for a
// compaction, so that nothing changes under a test.
type dataset struct {
	dir string
	// start and end are the first and the last sample's time; edge is where the
	// blocks end and the head begins.
	start, edge, end time.Time
}

const (
	blockRange  = 2 * time.Hour
	blockStep   = 2 * time.Minute
	headStep    = 30 * time.Second
	parityPods  = 6
	parityPaths = 8
)

var classicBounds = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, math.Inf(1)}

func makeDataset(t *testing.T) dataset {
	t.Helper()
	end := time.Now().Truncate(time.Minute).Add(-time.Minute)
	edge := end.Add(-30 * time.Minute).Truncate(blockRange)
	d := dataset{dir: filepath.Join(t.TempDir(), "data"), start: edge.Add(-2 * blockRange), edge: edge, end: end}
	logger := promslog.NewNopLogger()

	for from := d.start; from.Before(edge); from = from.Add(blockRange) {
		w, err := tsdb.NewBlockWriter(logger, d.dir, blockRange.Milliseconds())
		require.NoError(t, err)
		for at := from; at.Before(from.Add(blockRange)); at = at.Add(blockStep) {
			appendScrape(t, w.AppenderV2(t.Context()), d, at)
		}
		_, err = w.Flush(t.Context())
		require.NoError(t, err)
		require.NoError(t, w.Close())
	}

	opts := tsdb.DefaultOptions()
	opts.EnableExemplarStorage = true
	opts.MaxExemplars = 10_000
	db, err := tsdb.Open(d.dir, logger, nil, opts, nil)
	require.NoError(t, err)
	db.DisableCompactions()
	for at := edge; !at.After(end); at = at.Add(headStep) {
		appendScrape(t, db.AppenderV2(t.Context()), d, at)
	}
	require.NoError(t, db.Close())
	return d
}

// copyTo makes a server's own copy of the data directory.
func (d dataset) copyTo(t *testing.T, dir string) {
	t.Helper()
	require.NoError(t, os.CopyFS(dir, os.DirFS(d.dir)))
}

// scrapeAppender appends the samples of one moment.
type scrapeAppender struct {
	storage.AppenderV2
	t  *testing.T
	at int64
}

func (a scrapeAppender) float(v float64, opts storage.AppendV2Options, ls ...string) {
	_, err := a.Append(0, labels.FromStrings(ls...), 0, a.at, v, nil, nil, opts)
	require.NoError(a.t, err)
}

func (a scrapeAppender) native(h *histogram.Histogram, fh *histogram.FloatHistogram, ls ...string) {
	_, err := a.Append(0, labels.FromStrings(ls...), 0, a.at, 0, h, fh, storage.AppendV2Options{})
	require.NoError(a.t, err)
}

// appendScrape appends what all pods expose at one moment. Values depend on the
// time alone.
func appendScrape(t *testing.T, app storage.AppenderV2, d dataset, at time.Time) {
	t.Helper()
	a := scrapeAppender{AppenderV2: app, t: t, at: at.UnixMilli()}
	n := at.Sub(d.start).Seconds() / headStep.Seconds() // Moments since the start.
	none := storage.AppendV2Options{}
	for pod := range parityPods {
		// A counter starts again from zero now and then, at another time in each pod.
		n := math.Mod(n, float64(150+7*pod))
		a.counters(pod, n)
		a.classicHistogram(pod, n)
		a.nativeHistograms(pod, int64(n))
		instance := fmt.Sprintf("10.0.0.%d:8080", pod)
		a.float(20+5*math.Sin(n/20)+float64(pod), none, labels.MetricName, "app_temperature_celsius", "job", "app", "instance", instance)
		if pod%3 == 0 {
			a.float(staleAfter(n), none, labels.MetricName, "app_gone", "job", "app", "instance", instance)
		}
	}
	a.oddities(n)
	for i := range 60 {
		a.float(n, none, labels.MetricName, fmt.Sprintf("app_%03d_total", i), "job", "app", "instance", "10.0.0.0:8080")
	}
	require.NoError(t, a.Commit())
}

func (a scrapeAppender) counters(pod int, n float64) {
	for p := range parityPaths {
		for c, code := range []string{"200", "404", "500"} {
			for m, method := range []string{"GET", "POST"} {
				opts := storage.AppendV2Options{}
				if pod == 0 && p < 3 && m == 0 {
					opts.Exemplars = []exemplar.Exemplar{{
						Labels: labels.FromStrings("trace_id", fmt.Sprintf("%d-%d-%d", p, c, a.at)),
						Value:  n / 10, Ts: a.at, HasTs: true,
					}}
				}
				a.float(n*float64(1+p+c+m), opts, labels.MetricName, "app_requests_total", "job", "app",
					"instance", fmt.Sprintf("10.0.0.%d:8080", pod), "path", fmt.Sprintf("/p/%d", p), "code", code, "method", method)
			}
		}
	}
}

func (a scrapeAppender) classicHistogram(pod int, n float64) {
	none := storage.AppendV2Options{}
	instance := fmt.Sprintf("10.0.0.%d:8080", pod)
	for p := range parityPaths {
		path := fmt.Sprintf("/p/%d", p)
		count := 0.0
		for i, bound := range classicBounds {
			count += math.Floor(n * float64(1+(i*p)%5))
			a.float(count, none, labels.MetricName, "app_latency_seconds_bucket", "job", "app", "instance", instance, "path", path,
				"le", labels.FormatOpenMetricsFloat(bound))
		}
		a.float(count, none, labels.MetricName, "app_latency_seconds_count", "job", "app", "instance", instance, "path", path)
		a.float(count/7, none, labels.MetricName, "app_latency_seconds_sum", "job", "app", "instance", instance, "path", path)
	}
}

func (a scrapeAppender) nativeHistograms(pod int, n int64) {
	instance := fmt.Sprintf("10.0.0.%d:8080", pod)
	a.native(tsdbutil.GenerateTestHistogram(n), nil, labels.MetricName, "app_native_seconds", "job", "app", "instance", instance)
	a.native(nil, tsdbutil.GenerateTestFloatHistogram(n), labels.MetricName, "app_native_float_seconds", "job", "app", "instance", instance)
	a.native(tsdbutil.GenerateTestGaugeHistogram(n), nil, labels.MetricName, "app_native_gauge", "job", "app", "instance", instance)
	a.native(tsdbutil.GenerateTestCustomBucketsHistogram(n), nil, labels.MetricName, "app_native_custom_seconds", "job", "app", "instance", instance)
}

// oddities are what encoders and parsers get wrong.
func (a scrapeAppender) oddities(n float64) {
	none := storage.AppendV2Options{}
	for name, v := range map[string]float64{
		"nan": math.NaN(), "inf": math.Inf(1), "minus inf": math.Inf(-1), "minus zero": math.Copysign(0, -1),
		"tiny": math.SmallestNonzeroFloat64, "huge": math.MaxFloat64, "integer": 1 << 53, "fraction": n / 3,
	} {
		a.float(v, none, labels.MetricName, "app_value", "job", "app", "kind", name)
	}
	for i, text := range []string{`<a href="x">&amp;</a>`, "line\nbreak\ttab\\", `"quoted"`, "日本語", "\u2028\u2029", "\x7f\x01", "é", "a,b;c d"} {
		a.float(float64(i), none, labels.MetricName, "app_text", "job", "app", "text", text)
	}
	a.float(1, none, labels.MetricName, "app.utf8 name", "job", "app", "my.label", "v", "ünï", "cödé")
	// A gap of several lookbacks, and a series that ends with a stale marker.
	if math.Mod(n, 100) < 60 {
		a.float(n, none, labels.MetricName, "app_gaps", "job", "app")
	}
}

// staleAfter is a value that becomes stale for a while.
func staleAfter(n float64) float64 {
	if math.Mod(n, 40) >= 20 {
		return math.Float64frombits(value.StaleNaN)
	}
	return n
}
