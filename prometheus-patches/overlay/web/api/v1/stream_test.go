// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/accounttest"
	"github.com/prometheus/prometheus/util/stats"
	"github.com/prometheus/prometheus/util/teststorage"
)

// counted returns the context of a read with the given bounds and deadline.
func counted(t testing.TB, bounds storage.ReadBounds, timeout time.Duration) (*accounttest.Account, context.Context) {
	t.Helper()
	account, ctx := accounttest.New(t.Context(), bounds)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	t.Cleanup(cancel)
	return account, ctx
}

// stream encodes resp in the given context.
func stream(ctx context.Context, resp *Response) (string, error) {
	rec := httptest.NewRecorder()
	err := newStreamEncoder(ctx, storage.ReadAccountFrom(ctx), rec).encode(resp)
	return rec.Body.String(), err
}

func manySeries(n int) []labels.Labels {
	out := make([]labels.Labels, 0, n)
	for i := range n {
		out = append(out, labels.FromStrings("__name__", "m", "path", fmt.Sprintf("/<%d>&\"\\\u2028é", i)))
	}
	return out
}

func TestStreamGivesUpstreamsBytes(t *testing.T) {
	lset := labels.FromStrings("__name__", "m", "html", "<a href=\"x\">&</a>")
	vector := promql.Vector{
		{Metric: lset, T: 1234, F: math.Inf(1)},
		{Metric: labels.EmptyLabels(), T: -1, F: math.NaN()},
		{Metric: lset, T: 0, H: histogramOf()},
	}
	matrix := promql.Matrix{
		{Metric: lset, Floats: []promql.FPoint{{T: 1, F: 1e300}, {T: 2, F: math.Copysign(0, -1)}}},
		{Metric: lset, Histograms: []promql.HPoint{{T: 5, H: histogramOf()}}},
		{Metric: lset, Floats: []promql.FPoint{{T: 1, F: 1}}, Histograms: []promql.HPoint{{T: 5, H: histogramOf()}, {T: 6, H: histogramOf()}}},
		{Metric: labels.EmptyLabels()},
	}
	query := func(v parser.Value) *QueryData { return &QueryData{ResultType: v.Type(), Result: v} }
	withStats := query(vector)
	withStats.Stats = stats.NewQueryStats(&stats.Statistics{Timers: stats.NewQueryTimers(), Samples: stats.NewQuerySamples(true)})

	withAll := query(matrix)
	withAll.Stats, withAll.Cost = withStats.Stats, &QueryCostComparison{Estimated: CostEstimate{SeriesTouched: 1}, Actual: CostEstimate{SamplesRead: 2}}
	for i := range reflect.TypeFor[QueryData]().NumField() {
		require.False(t, reflect.ValueOf(*withAll).Field(i).IsZero(), "a field that is new in upstream: give it a value here")
	}

	for name, data := range map[string]any{
		"matrix with all":   withAll,
		"no data":           nil,
		"labels":            manySeries(3),
		"labels in pieces":  manySeries(20000),
		"strings":           []string{"a", "<b>", "", "\xff\u2029"},
		"no strings":        []string{},
		"null strings":      []string(nil),
		"vector":            query(vector),
		"empty vector":      query(promql.Vector{}),
		"null vector":       query(promql.Vector(nil)),
		"matrix":            query(matrix),
		"empty matrix":      query(promql.Matrix{}),
		"series in pieces":  query(promql.Matrix{{Metric: lset, Floats: make([]promql.FPoint, 20000)}, {Metric: lset}}),
		"scalar":            query(promql.Scalar{T: 1, V: 2}),
		"string":            query(promql.String{T: 1, V: "<x>"}),
		"vector with stats": withStats,
		"something else":    map[string]any{"b": 1, "a": []int{1, 2}, "html": "<>"},
		"targets": &TargetDiscovery{
			ActiveTargets:       []*Target{{Labels: lset, ScrapePool: "a<b"}, {Health: "up"}},
			DroppedTargetCounts: map[string]int{"b": 2, "a": 1},
		},
		"no targets":         &TargetDiscovery{DroppedTargets: []*DroppedTarget{}},
		"rules":              &RuleDiscovery{RuleGroups: []*RuleGroup{{Name: "g", Rules: []Rule{&RecordingRule{Name: "r", Labels: lset}}}}},
		"empty lists":        &TargetDiscovery{ActiveTargets: []*Target{}, DroppedTargetCounts: map[string]int{}},
		"rules by pages":     &RuleDiscovery{RuleGroups: []*RuleGroup{}, GroupNextToken: "<next>"},
		"metadata":           map[string][]metadata.Metadata{"m": {{Type: "counter", Help: "<h>"}}, "a": nil, "<": {}},
		"exemplars":          []exemplar.QueryResult{{SeriesLabels: lset, Exemplars: []exemplar.Exemplar{{Labels: lset, Value: 1, Ts: 2, HasTs: true}}}},
		"bytes":              []byte("x"),
		"a large other":      map[string][]labels.Labels{"x": manySeries(100)},
		"a pointer to a set": &struct{ A *int }{},
	} {
		t.Run(name, func(t *testing.T) {
			resp := &Response{Status: statusSuccess, Data: data, Warnings: []string{"w <1>"}, Infos: []string{"i"}}
			for _, r := range []*Response{resp, {Status: statusSuccess, Data: data}} {
				want, err := JSONCodec{}.Encode(r)
				require.NoError(t, err)
				_, ctx := counted(t, storage.ReadBounds{}, time.Minute)
				got, err := stream(ctx, r)
				require.NoError(t, err)
				require.Equal(t, string(want), got)
			}
		})
	}
}

// largest knows the largest piece that it was given.
type largest struct {
	http.ResponseWriter
	piece int
}

func (w *largest) Write(p []byte) (int, error) {
	w.piece = max(w.piece, len(p))
	return len(p), nil
}

func TestOneLongSeriesIsSentInPieces(t *testing.T) {
	_, ctx := counted(t, storage.ReadBounds{}, time.Minute)
	w := &largest{ResponseWriter: httptest.NewRecorder()}
	long := promql.Matrix{{Floats: make([]promql.FPoint, 1_000_000)}}
	e := newStreamEncoder(ctx, storage.ReadAccountFrom(ctx), w)
	require.NoError(t, e.encode(&Response{Status: statusSuccess, Data: &QueryData{Result: long}}))
	require.Greater(t, e.sent, int64(8_000_000))
	require.Less(t, w.piece, 2*streamPiece)
}

func histogramOf() *histogram.FloatHistogram {
	return &histogram.FloatHistogram{
		Schema: 1, Count: 3, Sum: 4.5, ZeroThreshold: 0.001, ZeroCount: 1,
		PositiveSpans:   []histogram.Span{{Offset: 0, Length: 2}},
		PositiveBuckets: []float64{1, 1},
	}
}

func TestStreamStopsAtTheDeadline(t *testing.T) {
	_, ctx := counted(t, storage.ReadBounds{}, time.Nanosecond)
	<-ctx.Done()
	for name, data := range map[string]any{
		"strings":   make([]string, 100000),
		"exemplars": make([]exemplar.QueryResult, 100000),
		"vector":    &QueryData{Result: make(promql.Vector, 100000)},
		"points":    &QueryData{Result: promql.Matrix{{Floats: make([]promql.FPoint, 100000)}}},
		"targets":   &TargetDiscovery{ActiveTargets: make([]*Target, 100000)},
	} {
		t.Run(name, func(t *testing.T) {
			body, err := stream(ctx, &Response{Status: statusSuccess, Data: data})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Empty(t, body)
		})
	}
}

func TestAnswerThatIsTooLargeIsRefusedBeforeItsFirstByte(t *testing.T) {
	lset := labels.FromStrings("__name__", "m", "pod", "a-pod-of-some-deployment-5d8c7b6f4-abcde", "namespace", "monitoring")
	for name, data := range map[string]any{
		"vector":     &QueryData{Result: promql.Vector{{Metric: lset}, {Metric: lset}, {Metric: lset}}},
		"histograms": &QueryData{Result: promql.Vector{{H: histogramOf()}, {H: histogramOf()}, {H: histogramOf()}}},
		"matrix":     &QueryData{Result: promql.Matrix{{Metric: lset, Floats: make([]promql.FPoint, 20)}}},
		"exemplars":  []exemplar.QueryResult{{SeriesLabels: lset, Exemplars: make([]exemplar.Exemplar, 5)}},
		"names":      strings.Split(strings.Repeat("a-name ", 40), " "),
		"metadata":   map[string][]metadata.Metadata{"m": make([]metadata.Metadata, 10), "n": make([]metadata.Metadata, 10)},
		"targets":    []metricMetadata{{Target: lset, Help: "some help"}, {Target: lset, Help: "some help"}, {Target: lset}},
	} {
		t.Run(name, func(t *testing.T) {
			resp := &Response{Status: statusSuccess, Data: data}
			_, ctx := counted(t, storage.ReadBounds{ResponseBytes: 1000}, time.Minute)
			whole, err := stream(ctx, resp)
			require.NoError(t, err)
			require.Greater(t, len(whole), 300)
			_, ctx = counted(t, storage.ReadBounds{ResponseBytes: 200}, time.Minute)
			body, err := stream(ctx, resp)
			require.ErrorIs(t, err, accounttest.ErrRefused)
			require.Empty(t, body)
		})
	}
}

func BenchmarkStream(b *testing.B) {
	vector := make(promql.Vector, 0, 100000)
	for _, l := range manySeries(cap(vector)) {
		vector = append(vector, promql.Sample{Metric: l, T: 1, F: 1.5})
	}
	resp := &Response{Status: statusSuccess, Data: &QueryData{ResultType: parser.ValueTypeVector, Result: vector}}
	b.Run("encoder=codec", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := (JSONCodec{}).Encode(resp); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encoder=stream", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := newStreamEncoder(b.Context(), &accounttest.Account{}, discard{}).encode(resp); err != nil {
				b.Fatal(err)
			}
		}
	})
}

type discard struct{ http.ResponseWriter }

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// Selections of a request whose deadline has passed end with its cause.
func TestSelectionWithinADeadlineEndsWithItsCause(t *testing.T) {
	store := teststorage.New(t)
	app := store.Appender(t.Context())
	for i := range 5000 {
		_, err := app.Append(0, labels.FromStrings("__name__", "m", "i", strconv.Itoa(i)), 1, 1)
		require.NoError(t, err)
	}
	require.NoError(t, app.Commit())
	q, err := store.Querier(0, 10)
	require.NoError(t, err)
	defer q.Close()
	for _, sorted := range []bool{true, false} {
		_, ctx := counted(t, storage.ReadBounds{}, time.Nanosecond)
		set := q.Select(ctx, sorted, nil, labels.MustNewMatcher(labels.MatchNotEqual, "i", ""))
		for set.Next() {
			t.Fatal("a series after the deadline")
		}
		require.ErrorIs(t, set.Err(), context.DeadlineExceeded)
	}
}
