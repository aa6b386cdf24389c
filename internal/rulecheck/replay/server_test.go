// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
)

func testServer(t *testing.T, answers map[string]string) Server {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.URL.Path
		if q := r.FormValue("query"); q != "" {
			key = q
		}
		answer, ok := answers[key]
		if !ok {
			t.Errorf("unexpected request %s", r.URL)
		}
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(srv.Close)
	return Server{URL: srv.URL + "/", MaxSeries: 2, Client: srv.Client()}
}

func TestServerIsReadNameByName(t *testing.T) {
	answers := map[string]string{
		"/api/v1/label/__name__/values": `{"status":"success","data":["a:b","not_wanted","requests","size.x"]}`,
		"/api/v1/metadata":              `{"status":"success","data":{"requests":[{"type":"counter"}]}}`,
		"requests":                      `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"__name__":"requests","a":"b"},"value":[1,"7"]},{"metric":{},"histogram":[]}]}}`,
		`{"size.x"}`:                    `{"status":"success","data":{"result":[{"metric":{"__name__":"size.x"},"value":[1,"NaN"]}]}}`,
	}
	s := testServer(t, answers)
	wanted := func(name string) bool { return name != "not_wanted" }
	series, err := s.Read(context.Background(), wanted)
	require.NoError(t, err)
	require.Len(t, series, 2)
	require.Equal(t, Series{labels.FromStrings("__name__", "requests", "a", "b"), 7, true}, series[0])
	require.False(t, series[1].Counter)

	s.MaxSeries = 1
	_, err = s.Read(context.Background(), wanted)
	require.ErrorContains(t, err, "more than 1 series")
}

func TestServerThatDoesNotAnswerAsPrometheusIsAnError(t *testing.T) {
	for name, answer := range map[string]string{
		"is it a proxy": `<html>`,
		"refused":       `{"status":"error","error":"limit selectivity"}`,
		"other shape":   `{"status":"success","data":{}}`,
	} {
		s := testServer(t, map[string]string{"/api/v1/label/__name__/values": answer})
		_, err := s.Read(context.Background(), func(string) bool { return true })
		require.ErrorContains(t, err, "/api/v1/label/__name__/values", name)
	}
	_, err := Server{URL: "http://user:secret@127.0.0.1:1"}.Read(context.Background(), nil)
	require.Error(t, err)
	require.NotContains(t, err.Error(), "secret")
}
