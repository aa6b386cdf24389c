// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package paritytest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"
	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/querylimit"
)

// Prometheus's own tests of PromQL, every expression of them on the data that they
// load, are answered alike, byte for byte, with promguard in between.
func TestUpstreamsPromQLTestsAreAnsweredAsWithoutPromguard(t *testing.T) {
	c := &comparingEngine{QueryEngine: promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)}
	c.prom = servePrometheus(t, c.QueryEngine, func() storage.SampleAndChunkQueryable { return currentStore{c} }, promqltest.TestParserOpts)
	c.proxy = newProxy(t, c.prom.URL, wideOpen)
	promqltest.RunBuiltinTests(t, c)
	require.Greater(t, c.answered, 3000, "answers compared")
	require.Greater(t, c.failed, 20, "errors compared")
}

// wideOpen switches off every limit that can be.
func wideOpen(o *querylimit.Options) {
	o.Selectivity = querylimit.ModeOff
	o.Deadlines = [len(o.Deadlines)]time.Duration{}
	for _, c := range querylimit.Counts() {
		c.Of(o).Mode = querylimit.ModeOff
	}
}

// comparingEngine gives a query to the API of Prometheus, and to promguard in
// front of it, before the test runs it itself. Tests run one after another.
type comparingEngine struct {
	promql.QueryEngine

	prom, proxy      *httptest.Server
	store            storage.Queryable // of the test that runs
	answered, failed int
	// seen has the queries on this store: the test evaluates each at many times,
	// and with all of them written into it.
	seen map[string]bool
}

// NewInstantQuery implements promql.QueryEngine.
func (c *comparingEngine) NewInstantQuery(ctx context.Context, q storage.Queryable, opts promql.QueryOpts, text string, ts time.Time) (promql.Query, error) {
	if err := c.compare(q, "query", url.Values{"query": {text}, "time": {seconds(ts)}}); err != nil {
		return nil, err
	}
	return c.QueryEngine.NewInstantQuery(ctx, q, opts, text, ts)
}

// NewRangeQuery implements promql.QueryEngine.
func (c *comparingEngine) NewRangeQuery(ctx context.Context, q storage.Queryable, opts promql.QueryOpts, text string, start, end time.Time, step time.Duration) (promql.Query, error) {
	params := url.Values{"query": {text}, "start": {seconds(start)}, "end": {seconds(end)}, "step": {strconv.FormatFloat(step.Seconds(), 'f', -1, 64)}}
	if err := c.compare(q, "query_range", params); err != nil {
		return nil, err
	}
	return c.QueryEngine.NewRangeQuery(ctx, q, opts, text, start, end, step)
}

func seconds(t time.Time) string {
	return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', -1, 64)
}

// compare returns an error that says how the answers differ.
func (c *comparingEngine) compare(q storage.Queryable, endpoint string, params url.Values) error {
	if c.store != q {
		c.store, c.seen = q, map[string]bool{}
	}
	key := endpoint + " " + params.Get("query")
	if c.seen[key] {
		return nil
	}
	c.seen[key] = true
	direct, err := post(c.prom, endpoint, params)
	if err != nil {
		return err
	}
	proxied, err := post(c.proxy, endpoint, params)
	if err != nil {
		return err
	}
	if direct.code == http.StatusOK {
		c.answered++
	} else {
		c.failed++
	}
	if direct.code != proxied.code || direct.body != proxied.body && !reordered(direct.body, proxied.body) {
		return fmt.Errorf("%s?%s: without promguard %d %s, with it %d %s", endpoint, params.Encode(), direct.code, direct.body, proxied.code, proxied.body)
	}
	return nil
}

// reordered reports whether two vectors differ in their order only: Prometheus has
// none for what some aggregations make, nor for annotations.
func reordered(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	var answers [2]struct {
		Data            struct{ Result []json.RawMessage }
		Warnings, Infos []string
	}
	for i, text := range []string{a, b} {
		if json.Unmarshal([]byte(text), &answers[i]) != nil {
			return false
		}
		slices.SortFunc(answers[i].Data.Result, func(x, y json.RawMessage) int { return bytes.Compare(x, y) })
		slices.Sort(answers[i].Warnings)
		slices.Sort(answers[i].Infos)
	}
	return reflect.DeepEqual(answers[0], answers[1])
}

func post(srv *httptest.Server, endpoint string, params url.Values) (answer, error) {
	res, err := srv.Client().PostForm(srv.URL+"/api/v1/"+endpoint, params)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, string(body)}, err
}

// currentStore is that of the test that runs. PromQL reads samples only.
type currentStore struct{ engine *comparingEngine }

// Querier implements storage.Queryable.
func (s currentStore) Querier(mint, maxt int64) (storage.Querier, error) {
	return s.engine.store.Querier(mint, maxt)
}

// ChunkQuerier implements storage.ChunkQueryable.
func (currentStore) ChunkQuerier(int64, int64) (storage.ChunkQuerier, error) {
	return nil, errors.ErrUnsupported
}
