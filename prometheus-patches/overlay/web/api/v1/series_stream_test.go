// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/common/route"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/accounttest"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/prometheus/prometheus/util/teststorage"
)

// seriesAPI returns the API over a storage with n series.
func seriesAPI(t testing.TB, n int) *API {
	t.Helper()
	store := teststorage.New(t)
	app := store.Appender(t.Context())
	for i := range n {
		_, err := app.Append(0, labels.FromStrings("__name__", fmt.Sprint("m", i%3), "i", strconv.Itoa(i), "even", strconv.FormatBool(i%2 == 0)), int64(i), 1)
		require.NoError(t, err)
	}
	require.NoError(t, app.Commit())
	api := &API{
		Queryable: store,
		now:       time.Now,
		config:    func() config.Config { return config.Config{} },
		ready:     func(f http.HandlerFunc) http.HandlerFunc { return f },
		parser:    parser.NewParser(parser.Options{}),
	}
	api.InstallCodec(JSONCodec{})
	return api
}

type seriesAnswer struct {
	Status   string
	Data     []map[string]string
	Warnings []string
}

// getSeries asks for series in the given context.
func getSeries(t *testing.T, ctx context.Context, api *API, query string) seriesAnswer {
	t.Helper()
	r := route.New()
	r.Get("/series", func(w http.ResponseWriter, req *http.Request) {
		result := api.series(req)
		require.Nil(t, result.err) //nolint:testifylint // It runs in the test's own goroutine.
		defer result.finalizer()
		api.respond(w, req, result.data, result.warnings, "")
	})
	rec := httptest.NewRecorder()
	r.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/series?"+query, http.NoBody).WithContext(ctx))
	require.Equal(t, http.StatusOK, rec.Code)
	require.Equal(t, "application/json", rec.Header().Get("Content-Type"))
	var a seriesAnswer
	require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &a), rec.Body.String())
	return a
}

func sorted(series []map[string]string) []string {
	var out []string
	for _, l := range series {
		out = append(out, labels.FromMap(l).String())
	}
	slices.Sort(out)
	return out
}

func TestStreamedSeriesAreUpstreams(t *testing.T) {
	api := seriesAPI(t, 3000)
	for _, query := range []url.Values{
		{"match[]": {`m1`}},
		{"match[]": {`{even!=""}`}},
		{"match[]": {`nothing`}},
		{"match[]": {`m1`, `m2`}},
		{"match[]": {`m1{even="true"}`, `{even="true"}`, `{i=~"1.*"}`, `m0`}},
		{"match[]": {`m1`, `m1`}},
		{"match[]": {`m1`}, "limit": {"10"}},
		{"match[]": {`m1`}, "limit": {"1000"}},
		{"match[]": {`{even="true"}`, `m1`}, "limit": {"2000"}},
		{"match[]": {`{i=~".+"}`}, "start": {"1"}, "end": {"2"}},
	} {
		t.Run(query.Encode(), func(t *testing.T) {
			want := getSeries(t, t.Context(), api, query.Encode())
			_, ctx := counted(t, storage.ReadBounds{}, time.Minute)
			got := getSeries(t, ctx, api, query.Encode())
			require.Equal(t, sorted(want.Data), sorted(got.Data))
			require.Equal(t, want.Warnings, got.Warnings)
			if len(query["match[]"]) == 1 {
				require.Equal(t, want, got, "one selector keeps the order")
			}
		})
	}
}

func TestStreamedSeriesOfSeveralSelectorsFillTheirLimit(t *testing.T) {
	_, ctx := counted(t, storage.ReadBounds{}, time.Minute)
	got := getSeries(t, ctx, seriesAPI(t, 3000), "match[]=m1&match[]={even!=\"\"}&limit=2500")
	require.Len(t, got.Data, 2500)
	require.Len(t, slices.Compact(sorted(got.Data)), 2500, "none comes twice")
	require.Equal(t, []string{errLimit.Error()}, got.Warnings)
}

func TestStreamedSeriesAreWholeHoweverManyThereAre(t *testing.T) {
	account, ctx := counted(t, storage.ReadBounds{ResponseBytes: 1000}, time.Minute)
	account.MaxUsed = 1 << 20
	got := getSeries(t, ctx, seriesAPI(t, 260_001), `match[]={even!="",__name__!~"^container_.*"}`)
	require.Len(t, got.Data, 260_001)
	require.Empty(t, got.Warnings)
}

// remoteQuerier answers as remote storage may: otherwise for one selector than
// for another that selects the same series.
type remoteQuerier struct {
	storage.Querier
	answers map[string]*oneSeries // By the name in the first matcher.
}

// Select fails as storage's secondary querier does.
func (q remoteQuerier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	for _, a := range q.answers {
		if a.read {
			panic("Select after the first Next")
		}
	}
	return q.answers[matchers[0].Name]
}

type oneSeries struct {
	labels labels.Labels // None: no series.
	read   bool
}

func (s *oneSeries) Next() bool                      { first := !s.read; s.read = true; return first && !s.labels.IsEmpty() }
func (s *oneSeries) At() storage.Series              { return storage.NewListSeries(s.labels, nil) }
func (*oneSeries) Err() error                        { return nil }
func (*oneSeries) Warnings() annotations.Annotations { return nil }

func TestStreamedSeriesAreTheSameOnlyIfTheirLabelsAre(t *testing.T) {
	series := func(l labels.Labels) *oneSeries { return &oneSeries{labels: l} }
	stripped, named := labels.FromStrings("__name__", "up", "job", "x"), labels.FromStrings("__name__", "up", "job", "x", "replica", "a")
	for name, tc := range map[string]struct {
		answers map[string]*oneSeries
		want    []string
	}{
		"remote storage failed for the first selector": {
			map[string]*oneSeries{"job": {}, "replica": series(named)},
			[]string{named.String()},
		},
		"external labels stay only where a selector names them": {
			map[string]*oneSeries{"job": series(stripped), "replica": series(named)},
			[]string{stripped.String(), named.String()},
		},
		"both selectors give the series": {
			map[string]*oneSeries{"job": series(named), "replica": series(named)},
			[]string{named.String()},
		},
	} {
		t.Run(name, func(t *testing.T) {
			api := seriesAPI(t, 0)
			sets := [][]*labels.Matcher{
				{labels.MustNewMatcher(labels.MatchEqual, "job", "x")}, {labels.MustNewMatcher(labels.MatchEqual, "replica", "a")},
			}
			_, ctx := counted(t, storage.ReadBounds{}, time.Minute)
			stream := api.streamSeries(ctx, remoteQuerier{answers: tc.answers}, &storage.SelectHints{}, sets, 0)
			var got []string
			_, err := stream.(*seriesStream).each(func(l labels.Labels) bool { got = append(got, l.String()); return true })
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
}

// brokenQuerier fails after some series.
type brokenQuerier struct {
	storage.Querier
	series int
}

func (q brokenQuerier) Select(context.Context, bool, *storage.SelectHints, ...*labels.Matcher) storage.SeriesSet {
	return &brokenSet{left: q.series}
}

type brokenSet struct {
	storage.SeriesSet
	left int
}

func (s *brokenSet) Next() bool { s.left--; return s.left >= 0 }
func (*brokenSet) At() storage.Series {
	return storage.NewListSeries(labels.FromStrings("a_long_label_name", "a_long_label_value"), nil)
}
func (*brokenSet) Err() error                        { return errors.New("a broken block") }
func (*brokenSet) Warnings() annotations.Annotations { return nil }

func TestSelectionThatFailsGivesAnErrorOrABrokenAnswer(t *testing.T) {
	api := seriesAPI(t, 0)
	for _, tc := range []struct {
		series int
		code   int
	}{{series: 3, code: http.StatusUnprocessableEntity}, {series: 100000, code: http.StatusOK}} {
		account, ctx := counted(t, storage.ReadBounds{}, time.Minute)
		data := api.streamSeries(ctx, brokenQuerier{series: tc.series}, &storage.SelectHints{}, [][]*labels.Matcher{{}}, 0)
		rec := httptest.NewRecorder()
		api.respond(rec, httptest.NewRequest(http.MethodGet, "/", http.NoBody).WithContext(ctx), data, nil, "")
		require.Equal(t, tc.code, rec.Code)
		if tc.code == http.StatusOK {
			require.Error(t, account.BrokenBy, "the connection must break")
			require.False(t, json.Valid(rec.Body.Bytes()))
			continue
		}
		require.Contains(t, rec.Body.String(), `"errorType":"execution","error":"a broken block"`)
	}
}

// What a limited request pays for a query that is far from every limit.
func BenchmarkQueryWithinLimits(b *testing.B) {
	api := seriesAPI(b, 20000)
	api.QueryEngine = promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Hour, Parser: api.parser})
	target := "/query_range?" + url.Values{"query": {`sum by (even) (m1)`}, "start": {"0"}, "end": {"60"}, "step": {"1"}}.Encode()
	for _, name := range []string{"off", "on"} {
		b.Run("limits="+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ctx := b.Context()
				if name == "on" {
					_, ctx = accounttest.New(ctx, storage.ReadBounds{SeriesBytes: 1, ResponseBytes: 1 << 30})
				}
				req := httptest.NewRequest(http.MethodGet, target, http.NoBody).WithContext(ctx)
				result := api.queryRange(req)
				if result.err != nil {
					b.Fatal(result.err.err)
				}
				api.respond(httptest.NewRecorder(), req, result.data, result.warnings, "")
				result.finalizer()
			}
		})
	}
}
