// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/route"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/accounttest"
	"github.com/prometheus/prometheus/util/teststorage"
)

// exposing is a target with metadata.
type exposing struct{ metadata []scrape.MetricMetadata }

func (e exposing) ListMetadata() []scrape.MetricMetadata { return e.metadata }
func (exposing) SizeMetadata() int                       { return 0 }
func (exposing) LengthMetadata() int                     { return 0 }
func (exposing) GetMetadata(string) (scrape.MetricMetadata, bool) {
	return scrape.MetricMetadata{}, false
}

type exposingTargets struct {
	*testTargetRetriever
	targets []*scrape.Target
}

func (e exposingTargets) TargetsActive() map[string][]*scrape.Target {
	return map[string][]*scrape.Target{"pool": e.targets}
}

func listsOf(api *API) *route.Router {
	r := route.New()
	for path, f := range map[string]apiFunc{
		"/labels": api.labelNames, "/label/:name/values": api.labelValues, "/metadata": api.metricMetadata, "/targets/metadata": api.targetMetadata,
	} {
		r.Get(path, func(w http.ResponseWriter, r *http.Request) {
			result := f(r)
			if result.finalizer != nil {
				defer result.finalizer()
			}
			if result.err != nil {
				api.respondError(w, result.err, result.data)
				return
			}
			api.respond(w, r, result.data, result.warnings, "")
		})
	}
	return r
}

func askList(ctx context.Context, api *API, path string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	listsOf(api).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, http.NoBody).WithContext(ctx))
	return rec
}

// TestListsAreUpstreamsOrRefused compares lists with those that upstream's code makes, and
// finds the memory that they need in their account.
func TestListsAreUpstreamsOrRefused(t *testing.T) {
	const n = 5000
	store := teststorage.New(t)
	app := store.Appender(t.Context())
	var metadata []scrape.MetricMetadata
	for i := range n {
		_, err := app.Append(0, labels.FromStrings("__name__", []string{"even", "odd"}[i%2], fmt.Sprintf("name_%d", i), "x", "pod", fmt.Sprintf("pod\"%d", n-i)), 1, 1)
		require.NoError(t, err)
		metadata = append(metadata, scrape.MetricMetadata{MetricFamily: fmt.Sprintf("m%d", i), Type: model.MetricTypeGauge, Help: "some <help>"})
	}
	require.NoError(t, app.Commit())
	var targets []*scrape.Target
	for range 3 {
		target := scrape.NewTarget(labels.FromStrings("job", "api"), &config.DefaultScrapeConfig, nil, nil)
		target.SetMetadataStore(exposing{metadata})
		targets = append(targets, target)
	}
	api := seriesAPI(t, 1)
	api.Queryable = store
	api.targetRetriever = func(context.Context) TargetRetriever { return exposingTargets{targets: targets} }
	for path, least := range map[string]int64{
		"/labels":                                    n * storage.ListElementBytes,
		"/labels?match[]=even&match[]=odd":           n * nameInSetBytes,
		"/label/pod/values":                          n * storage.ListElementBytes,
		"/label/pod/values?match[]=even&match[]=odd": n * nameInSetBytes,
		"/metadata":                                  n * metricBytes,
		"/targets/metadata":                          3 * n * targetMetricBytes,
	} {
		want := askList(t.Context(), api, path)
		require.Equal(t, http.StatusOK, want.Code, want.Body)
		account, ctx := accounttest.New(t.Context(), storage.ReadBounds{})
		got := askList(ctx, api, path)
		require.Equal(t, want.Code, got.Code)
		require.Equal(t, want.Body.String(), got.Body.String(), path)
		require.GreaterOrEqual(t, account.Peak, least, path)
		require.Less(t, account.Peak, 3*least, path)

		account, ctx = accounttest.New(t.Context(), storage.ReadBounds{})
		account.MaxUsed = least / 2
		_ = askList(ctx, api, path)
		require.ErrorIs(t, context.Cause(ctx), accounttest.ErrRefused, "%s: the read ends, and its answer with it", path)
	}
}

// mergedStores are queried as blocks are.
type mergedStores struct {
	storage.SampleAndChunkQueryable
	stores []storage.Queryable
}

func (m mergedStores) Querier(from, to int64) (storage.Querier, error) {
	var list []storage.Querier
	for _, s := range m.stores {
		q, err := s.Querier(from, to)
		if err != nil {
			return nil, err
		}
		list = append(list, q)
	}
	return storage.NewMergeQuerier(list, nil, storage.ChainedSeriesMerge), nil
}

// TestAccountsOfListsAreWhatTheyHold has five blocks with values of their own, and five with
// the same.
func TestAccountsOfListsAreWhatTheyHold(t *testing.T) {
	const blocks, n = 5, 20_000
	stores := make([]storage.Queryable, blocks)
	for b := range stores {
		store := teststorage.New(t)
		app := store.Appender(t.Context())
		for i := range n {
			_, err := app.Append(0, labels.FromStrings("__name__", []string{"even", "odd"}[i%2], "own", fmt.Sprintf("pod-%d-%06d", b, i), "same", fmt.Sprintf("pod-%06d", i)), 1, 1)
			require.NoError(t, err)
		}
		require.NoError(t, app.Commit())
		stores[b] = store
	}
	api := seriesAPI(t, 1)
	api.Queryable = mergedStores{SampleAndChunkQueryable: api.Queryable, stores: stores}
	r := listsOf(api)
	for _, path := range []string{
		"/label/own/values", "/label/own/values?match[]=even", "/label/own/values?match[]=even&match[]=odd",
		"/label/same/values", "/label/same/values?match[]=even", "/label/same/values?match[]=even&match[]=odd",
	} {
		account, held, code := measured(t, r, path)
		require.Equal(t, http.StatusOK, code)
		ratio := float64(account.Peak+accountFloor) / float64(held+accountFloor)
		t.Logf("%5.2f %7.2f MiB accounted %7.2f MiB held  %s", ratio, float64(account.Peak)/(1<<20), float64(held)/(1<<20), path)
		require.Greater(t, ratio, 0.5, path)
		require.Less(t, ratio, 3.0, path)
	}
}
