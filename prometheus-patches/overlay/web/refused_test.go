// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package web

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/route"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/promguard/readapi"
	"github.com/prometheus/prometheus/promguard/reads"
	"github.com/prometheus/prometheus/tsdb"
)

// TestEveryRefusalOnEveryRouteSaysWhenToComeAgain asks all routes that are limited while
// they are refused, or stopped, for each reason: those for which others are to blame ask
// the client to come again, those that would go the same way again do not.
func TestEveryRefusalOnEveryRouteSaysWhenToComeAgain(t *testing.T) {
	limits := readapi.New(readapi.Options{Timeout: time.Minute, MetadataConcurrency: 1, BulkConcurrency: 1, QueryConcurrency: 1}, prometheus.NewRegistry())
	db, err := tsdb.Open(t.TempDir(), nil, nil, nil, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	h := New(nil, &Options{
		LocalStorage: &dbAdapter{db},
		Reads:        limits, RoutePrefix: "/", ExternalURL: &url.URL{Scheme: "http", Host: "localhost"}, Version: &PrometheusVersion{},
		Gatherer: prometheus.NewRegistry(), Registerer: prometheus.NewRegistry(), EnableSearch: true, ListenAddresses: []string{"localhost:0"},
	})
	h.config = &config.Config{}
	var stop *reads.Stop // What ends each read as soon as it runs, unless it is nil.
	routes := map[string]http.HandlerFunc{}
	add := func(limited func(string, http.HandlerFunc) http.HandlerFunc) func(string, http.HandlerFunc) http.HandlerFunc {
		return func(name string, next http.HandlerFunc) http.HandlerFunc {
			routes[name] = limited(name, func(w http.ResponseWriter, r *http.Request) {
				read := reads.FromContext(r.Context())
				if read == nil {
					delete(routes, name) // Has no limits.
					return
				}
				if stop != nil {
					read.Stop(stop)
					http.Error(w, "canceled", http.StatusUnprocessableEntity)
					return
				}
				next(w, r)
			})
			return next
		}
	}
	h.apiV1.Register(route.New().WithInstrumentation(add(limits.API)))
	root := route.New().WithInstrumentation(add(limits.Root))
	root.Get("/federate", h.testReady(h.federation))
	root.Get("/consoles/*filepath", h.testReady(h.consoles))
	ask := func(name string) *http.Response {
		rec := httptest.NewRecorder()
		routes[name](rec, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
		return rec.Result()
	}

	h.SetReady(NotReady)
	for name := range routes {
		if ask(name).StatusCode == http.StatusOK {
			delete(routes, name) // Does not wait for the database.
		}
	}
	require.Greater(t, len(routes), 30)
	for _, name := range []string{"/query", "/series", "/read", "/rules", "/federate", "/consoles/*filepath", "/search/label_names"} {
		require.Contains(t, routes, name)
	}
	refused := func(what string, code int, retry string) {
		for name := range routes {
			resp := ask(name)
			body, _ := io.ReadAll(resp.Body)
			require.Equal(t, code, resp.StatusCode, "%s: %s: %s", what, name, body)
			require.Equal(t, retry, resp.Header.Get("Retry-After"), "%s: %s", what, name)
		}
	}
	refused("it starts", http.StatusServiceUnavailable, "5")
	h.SetReady(Stopping)
	refused("it ends", http.StatusServiceUnavailable, "5")
	h.SetReady(Ready)
	for reason, want := range map[reads.Reason]struct {
		code  int
		retry string
	}{
		reads.ReasonMemory:   {http.StatusServiceUnavailable, "5"},
		reads.ReasonQueue:    {http.StatusServiceUnavailable, "5"},
		reads.ReasonShutdown: {http.StatusServiceUnavailable, "5"},
		reads.ReasonDeadline: {http.StatusServiceUnavailable, ""},
		reads.ReasonOperator: {http.StatusServiceUnavailable, ""},
		reads.ReasonTooLarge: {http.StatusUnprocessableEntity, ""},
		reads.ReasonText:     {http.StatusUnprocessableEntity, ""},
	} {
		stop = &reads.Stop{Reason: reason, Text: "Try again: " + string(reason)}
		refused(string(reason), want.code, want.retry)
	}
}
