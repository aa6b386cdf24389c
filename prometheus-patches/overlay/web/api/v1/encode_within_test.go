// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promguard/deadline"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/stats"
	"github.com/prometheus/prometheus/util/teststorage"
)

// boundContext returns the context of a request with a deadline.
func boundContext(t testing.TB, timeout time.Duration) context.Context {
	t.Helper()
	ctx, cancel := deadline.Bind(t.Context(), &deadline.ExceededError{Timeout: timeout, Source: deadline.Flag})
	t.Cleanup(cancel)
	return ctx
}

func manySeries(n int) []labels.Labels {
	out := make([]labels.Labels, 0, n)
	for i := range n {
		out = append(out, labels.FromStrings("__name__", "m", "path", fmt.Sprintf("/<%d>&\"\\\u2028é", i)))
	}
	return out
}

func TestEncodeWithinGivesUpstreamsBytes(t *testing.T) {
	lset := labels.FromStrings("__name__", "m", "html", "<a href=\"x\">&</a>")
	vector := promql.Vector{
		{Metric: lset, T: 1234, F: math.Inf(1)},
		{Metric: labels.EmptyLabels(), T: -1, F: math.NaN()},
		{Metric: lset, T: 0, H: histogramOf()},
	}
	matrix := promql.Matrix{
		{Metric: lset, Floats: []promql.FPoint{{T: 1, F: 1e300}, {T: 2, F: -0.0}}},
		{Metric: lset, Histograms: []promql.HPoint{{T: 5, H: histogramOf()}}},
		{Metric: labels.EmptyLabels()},
	}
	query := func(v parser.Value) *QueryData { return &QueryData{ResultType: v.Type(), Result: v} }
	withStats := query(vector)
	withStats.Stats = stats.NewQueryStats(&stats.Statistics{Timers: stats.NewQueryTimers(), Samples: stats.NewQuerySamples(true)})

	for name, data := range map[string]any{
		"no data":            nil,
		"no series":          []labels.Labels{},
		"null series":        []labels.Labels(nil),
		"series":             manySeries(3),
		"series in pieces":   manySeries(20000),
		"strings":            []string{"a", "<b>", "", "\xff\u2029"},
		"no strings":         []string{},
		"null strings":       []string(nil),
		"vector":             query(vector),
		"empty vector":       query(promql.Vector{}),
		"null vector":        query(promql.Vector(nil)),
		"matrix":             query(matrix),
		"empty matrix":       query(promql.Matrix{}),
		"scalar":             query(promql.Scalar{T: 1, V: 2}),
		"string":             query(promql.String{T: 1, V: "<x>"}),
		"vector with stats":  withStats,
		"something else":     map[string]any{"b": 1, "a": []int{1, 2}, "html": "<>"},
		"a large other":      map[string][]labels.Labels{"x": manySeries(100)},
		"a pointer to a set": &struct{ A *int }{},
	} {
		t.Run(name, func(t *testing.T) {
			resp := &Response{Status: statusSuccess, Data: data, Warnings: []string{"w <1>"}, Infos: []string{"i"}}
			for _, r := range []*Response{resp, {Status: statusSuccess, Data: data}} {
				want, err := JSONCodec{}.Encode(r)
				require.NoError(t, err)
				got, err := encodeWithin(boundContext(t, time.Minute), JSONCodec{}, r)
				require.NoError(t, err)
				var buf bytes.Buffer
				_, err = got.WriteTo(&buf)
				require.NoError(t, err)
				require.Equal(t, string(want), buf.String())
			}
		})
	}
}

func histogramOf() *histogram.FloatHistogram {
	return &histogram.FloatHistogram{
		Schema: 1, Count: 3, Sum: 4.5, ZeroThreshold: 0.001, ZeroCount: 1,
		PositiveSpans:   []histogram.Span{{Offset: 0, Length: 2}},
		PositiveBuckets: []float64{1, 1},
	}
}

func TestEncodeWithinStopsAtTheDeadline(t *testing.T) {
	ctx := boundContext(t, time.Nanosecond)
	_, err := encodeWithin(ctx, JSONCodec{}, &Response{Status: statusSuccess, Data: manySeries(100000)})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, deadline.Flag)
}

func TestEncodeWithinUsesTheCodecWithoutADeadline(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got, err := encodeWithin(ctx, JSONCodec{}, &Response{Status: statusSuccess, Data: manySeries(100000)})
	require.NoError(t, err)
	require.Len(t, got, 1)
}

func BenchmarkEncodeWithin(b *testing.B) {
	resp := &Response{Status: statusSuccess, Data: manySeries(100000)}
	for name, ctx := range map[string]context.Context{"codec": b.Context(), "bound": boundContext(b, time.Minute)} {
		b.Run("encoder="+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := encodeWithin(ctx, JSONCodec{}, resp); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Selections of a request whose deadline has passed end with its cause.
func TestSelectionWithinADeadlineEndsWithItsCause(t *testing.T) {
	store := teststorage.New(t)
	app := store.Appender(t.Context())
	for i := range 5000 {
		_, err := app.Append(0, labels.FromStrings("__name__", "m", "i", fmt.Sprint(i)), 1, 1)
		require.NoError(t, err)
	}
	require.NoError(t, app.Commit())
	q, err := store.Querier(0, 10)
	require.NoError(t, err)
	defer q.Close()
	for _, sorted := range []bool{true, false} {
		set := q.Select(boundContext(t, time.Nanosecond), sorted, nil, labels.MustNewMatcher(labels.MatchNotEqual, "i", ""))
		for set.Next() {
			t.Fatal("a series after the deadline")
		}
		require.ErrorIs(t, set.Err(), context.DeadlineExceeded)
	}
}
