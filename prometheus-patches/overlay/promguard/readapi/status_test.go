// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package readapi

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/common/route"
	"github.com/stretchr/testify/require"
)

func TestTheStateIsToldWithoutAnyLimitAndNothingIsLimited(t *testing.T) {
	h := limited(t, Options{Status: func() any { return map[string]int{"newSeries": 7} }})
	isLimited := true
	router := route.New().WithInstrumentation(h.API)
	router.Get("/series", func(w http.ResponseWriter, _ *http.Request) {
		_, isLimited = w.(*writer)
	})
	h.Register(router)
	s := httptest.NewServer(router)
	t.Cleanup(s.Close)
	resp, body := get(t, s.URL+statusRoute)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.JSONEq(t, `{"status": "success", "data": {"newSeries": 7}}`, body)
	resp, _ = get(t, s.URL+"/series")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.False(t, isLimited)
}
