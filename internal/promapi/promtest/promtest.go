// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package promtest serves the part of Prometheus's API that promapi reads, on
// series in memory, with Prometheus's own query engine. It is for tests.
package promtest

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/stretchr/testify/require"
)

// Server is a Prometheus on series in memory.
type Server struct {
	*httptest.Server

	// Fail, if set, returns an error to answer a request with, and its status code.
	Fail func(r *http.Request) (code int, message string)
	// Config is the configuration that it shows.
	Config string

	head   *tsdb.Head
	engine *promql.Engine
	mu     sync.Mutex
	asked  []string
}

// New serves the series, with samples of now and, every interval, of the minutes
// before. The test's end closes it.
func New(t testing.TB, interval time.Duration, series ...labels.Labels) *Server {
	t.Helper()
	opts := tsdb.DefaultHeadOptions()
	opts.ChunkDirRoot = t.TempDir()
	head, err := tsdb.NewHead(nil, nil, nil, nil, opts, nil)
	require.NoError(t, err)
	require.NoError(t, head.Init(math.MinInt64))
	now := time.Now()
	for age := 10 * time.Minute; age >= 0; age -= interval {
		app := head.Appender(context.Background())
		for _, s := range series {
			_, err := app.Append(0, s, now.Add(-age).UnixMilli(), 1)
			require.NoError(t, err)
		}
		require.NoError(t, app.Commit())
	}
	s := &Server{head: head, Config: "global: {scrape_interval: " + interval.String() + "}\nscrape_configs: [{job_name: x}]\n"}
	s.engine = promql.NewEngine(promql.EngineOpts{MaxSamples: 50_000_000, Timeout: time.Hour, Parser: parser.NewParser(parser.Options{})})
	mux := http.NewServeMux()
	mux.HandleFunc("/api/v1/query", s.query)
	mux.HandleFunc("GET /api/v1/label/{name}/values", s.values)
	mux.HandleFunc("GET /api/v1/status/tsdb", s.status)
	mux.HandleFunc("GET /api/v1/status/config", s.config)
	s.Server = httptest.NewServer(s.refuseSome(mux))
	t.Cleanup(func() {
		s.Close()
		require.NoError(t, s.engine.Close())
		require.NoError(t, head.Close())
	})
	return s
}

// Asked returns what was asked: queries as they are, of others the path.
func (s *Server) Asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

func (s *Server) refuseSome(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		what := r.URL.Path
		if q := r.FormValue("query"); q != "" {
			what = q
		}
		s.mu.Lock()
		s.asked = append(s.asked, what)
		s.mu.Unlock()
		if s.Fail != nil {
			if code, message := s.Fail(r); code != 0 {
				answer(w, code, map[string]any{"status": "error", "errorType": "execution", "error": message})
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

func answer(w http.ResponseWriter, code int, body map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

func succeed(w http.ResponseWriter, data any, truncated bool) {
	body := map[string]any{"status": "success", "data": data}
	if truncated {
		body["warnings"] = []string{"results truncated due to limit"}
	}
	answer(w, http.StatusOK, body)
}

func failed(w http.ResponseWriter, err error) {
	answer(w, http.StatusUnprocessableEntity, map[string]any{"status": "error", "errorType": "execution", "error": err.Error()})
}

// Querier implements storage.Queryable.
func (s *Server) Querier(mint, maxt int64) (storage.Querier, error) {
	return tsdb.NewBlockQuerier(tsdb.NewRangeHead(s.head, mint, maxt), mint, maxt)
}

func (s *Server) query(w http.ResponseWriter, r *http.Request) {
	q, err := s.engine.NewInstantQuery(r.Context(), s, nil, r.FormValue("query"), time.Now())
	if err != nil {
		failed(w, err)
		return
	}
	defer q.Close()
	res := q.Exec(r.Context())
	vector, ok := res.Value.(promql.Vector)
	if res.Err != nil || !ok {
		failed(w, fmt.Errorf("no vector: %w", res.Err))
		return
	}
	rows := []map[string]any{}
	for _, sample := range vector {
		rows = append(rows, map[string]any{
			"metric": sample.Metric, "value": []any{float64(sample.T) / 1000, strconv.FormatFloat(sample.F, 'g', -1, 64)},
		})
	}
	limit, _ := strconv.Atoi(r.FormValue("limit"))
	rows, truncated := cut(rows, limit)
	succeed(w, map[string]any{"resultType": "vector", "result": rows}, truncated)
}

func cut[T any](all []T, limit int) ([]T, bool) {
	if limit > 0 && len(all) > limit {
		return all[:limit], true
	}
	return all, false
}

func (s *Server) values(w http.ResponseWriter, r *http.Request) {
	q, err := s.Querier(math.MinInt64, math.MaxInt64)
	if err != nil {
		failed(w, err)
		return
	}
	defer q.Close()
	var matchers []*labels.Matcher
	if m := r.FormValue("match[]"); m != "" {
		if matchers, err = parser.NewParser(parser.Options{}).ParseMetricSelector(m); err != nil {
			failed(w, err)
			return
		}
	}
	values, _, err := q.LabelValues(r.Context(), r.PathValue("name"), nil, matchers...)
	if err != nil {
		failed(w, err)
		return
	}
	if values == nil {
		values = []string{}
	}
	limit, _ := strconv.Atoi(r.FormValue("limit"))
	values, truncated := cut(values, limit)
	succeed(w, values, truncated)
}

func (s *Server) status(w http.ResponseWriter, r *http.Request) {
	limit, err := strconv.Atoi(r.FormValue("limit"))
	if err != nil {
		failed(w, err)
		return
	}
	stats := s.head.Stats(labels.MetricName, limit)
	var top []map[string]any
	for _, m := range stats.IndexPostingStats.CardinalityMetricsStats {
		top = append(top, map[string]any{"name": m.Name, "value": m.Count})
	}
	succeed(w, map[string]any{"headStats": map[string]any{"numSeries": stats.NumSeries}, "seriesCountByMetricName": top}, false)
}

func (s *Server) config(w http.ResponseWriter, _ *http.Request) {
	succeed(w, map[string]any{"yaml": s.Config}, false)
}
