// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/proxy"
)

func TestNoOtherSiteChangesOrReadsAnything(t *testing.T) {
	h := telemetryHandler(&proxy.Proxy{}, &reloader{}, prometheus.NewRegistry())
	ask := func(method, target string) *httptest.ResponseRecorder {
		r, w := httptest.NewRequest(method, target, http.NoBody), httptest.NewRecorder()
		r.Header.Set("Origin", "https://other.example")
		h.ServeHTTP(w, r)
		require.Empty(t, w.Header().Get("Access-Control-Allow-Origin"))
		return w
	}
	for method, target := range map[string]string{"POST": "/-/reload", "PUT": "/-/reload", "DELETE": "/api/v1/promguard/queries?id=1"} {
		require.Equal(t, http.StatusForbidden, ask(method, target).Code, target)
	}
	require.Equal(t, http.StatusOK, ask("GET", "/-/healthy").Code)
}
