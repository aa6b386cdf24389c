// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMetricsAreReadByWholeNames(t *testing.T) {
	collections := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.String() {
		case "/metrics":
			fmt.Fprint(w, "# TYPE a gauge\nab 1\na 2e+06\nc{d=\"e\"} 3\nf x\n")
		case "/debug/pprof/heap?gc=1":
			collections++
			fmt.Fprint(w, collections)
		default:
			http.Error(w, "no such thing", http.StatusNotFound)
		}
	}))
	defer s.Close()
	values, err := Metrics(t.Context(), s.URL, "a", "ab")
	require.NoError(t, err)
	require.Equal(t, []float64{2e6, 1}, values)
	_, err = Metrics(t.Context(), s.URL, "c")
	require.ErrorContains(t, err, "has no c")
	_, err = Metrics(t.Context(), s.URL, "f")
	require.ErrorContains(t, err, "invalid syntax")
	_, err = Get(t.Context(), s.URL+"/other")
	require.EqualError(t, err, "/other: 404 Not Found: no such thing\n")
	profile, err := Collect(t.Context(), s.URL)
	require.NoError(t, err)
	require.Equal(t, "2", string(profile))
}
