// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package readapi

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/grafana/regexp"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/common/route"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/internal/screen"
	"github.com/prometheus/prometheus/promguard/memory"
	"github.com/prometheus/prometheus/promguard/newseries"
)

func TestTheStateSaysWhatIsOnAndNoMore(t *testing.T) {
	ask := func(opts Options) map[string]map[string]any {
		h, router := limited(t, opts), route.New()
		h.Register(router)
		s := httptest.NewServer(router)
		defer s.Close()
		_, body := get(t, s.URL+statusRoute)
		var answer struct{ Data map[string]map[string]any }
		require.NoError(t, json.Unmarshal([]byte(body), &answer))
		return answer.Data
	}
	on := ask(Options{Memory: memory.NewMonitor(memory.Auto), NewSeries: newseries.New()})
	require.Equal(t, "ok", on["memory"]["state"])
	require.Equal(t, []any{}, on["newSeries"]["culprits"])
	require.Empty(t, ask(Options{CheckText: true}))
}

func TestNoOtherSiteReadsWhoAsks(t *testing.T) {
	h, router := limited(t, Options{CheckText: true, EnableStop: true, CORSOrigin: regexp.MustCompile("^(?:.*)$")}), route.New()
	h.Register(router)
	h.RegisterPage(router, promslog.NewNopLogger())
	for _, target := range []string{"", "/queries", "/top", "/queries/1", "/queries/x"} {
		for _, method := range []string{http.MethodGet, http.MethodDelete} {
			r, w := httptest.NewRequest(method, statusRoute+target, http.NoBody), httptest.NewRecorder()
			r.Header.Set("Origin", "https://other.example")
			router.ServeHTTP(w, r)
			require.Empty(t, w.Header().Get("Access-Control-Allow-Origin"), "%s %s", method, target)
		}
	}
	for _, target := range []string{"", "/state", "/now"} {
		r, w := httptest.NewRequest(http.MethodGet, screen.Route+target, http.NoBody), httptest.NewRecorder()
		r.Header.Set("Origin", "https://other.example")
		router.ServeHTTP(w, r)
		require.Empty(t, w.Header().Get("Access-Control-Allow-Origin"), target)
	}
	r, w := httptest.NewRequest(http.MethodPost, screen.Route+"/stop", http.NoBody), httptest.NewRecorder()
	r.Header.Set("Origin", "https://other.example")
	router.ServeHTTP(w, r)
	require.Equal(t, http.StatusForbidden, w.Code, "a form of another site stops nothing")
}
