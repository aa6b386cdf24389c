// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package web

import (
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/promguard/readapi"
)

func TestAServerWithoutItsUISaysSoAndWhatToOpenAndOnlyWithLimits(t *testing.T) {
	rec := httptest.NewRecorder()
	require.False(t, (&Handler{options: &Options{}}).withoutUI(rec))
	require.Empty(t, rec.Body.String())

	h := &Handler{options: &Options{Reads: &readapi.Handlers{}, ExternalURL: &url.URL{Path: "/prom"}}}
	require.True(t, h.withoutUI(rec))
	require.Equal(t, 200, rec.Code)
	require.Equal(t, "text/html; charset=utf-8", rec.Header().Get("Content-Type"))
	for _, text := range []string{"make prometheus UI=1", `href="/prom/metrics"`, `href="/prom/api/v1/query?query=up"`, `href="/prom/api/v1/status/guard/queries"`} {
		require.Contains(t, rec.Body.String(), text)
	}
}
