// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package evaluate

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/promapi"
)

// testServer answers what it is asked, be it a path or a query.
func testServer(t *testing.T, answers map[string]string) *promapi.Client {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.URL.Path
		if q := r.FormValue("query"); q != "" {
			key = q
		}
		answer, ok := answers[key]
		if !ok {
			t.Errorf("unexpected request %s", key)
		}
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(srv.Close)
	c, err := promapi.New(srv.URL, srv.Client().Transport, promapi.Budget{Requests: 9, Total: time.Minute, Timeout: time.Minute, Series: 3, Bytes: 1 << 20})
	require.NoError(t, err)
	return c
}

func TestSmallMetricsOfAServerAreReadTogether(t *testing.T) {
	answers := map[string]string{
		"/api/v1/label/__name__/values": `{"status":"success","data":["a:b","not_wanted","requests","size.x","large"]}`,
		"/api/v1/metadata":              `{"status":"success","data":{"requests":[{"type":"counter"}]}}`,
		"/api/v1/status/tsdb":           `{"status":"success","data":{"seriesCountByMetricName":[{"name":"large","value":3},{"name":"requests","value":2},{"name":"size.x","value":1}]}}`,
		`{__name__="large"}`:            `{"status":"success","data":{"result":[]}}`,
		`{__name__=~"requests|size\\.x"}`: `{"status":"success","data":{"resultType":"vector","result":[
			{"metric":{"__name__":"requests","a":"b"},"value":[1,"7"]},{"metric":{},"histogram":[]},{"metric":{"__name__":"size.x"},"value":[1,"NaN"]}]}}`,
	}
	wanted := func(name string) bool { return name != "not_wanted" }
	api := testServer(t, answers)
	series, err := ReadLive(context.Background(), api, wanted)
	require.NoError(t, err)
	require.Len(t, series, 2)
	require.Equal(t, Series{labels.FromStrings("__name__", "requests", "a", "b"), 7, true}, series[0])
	require.False(t, series[1].Counter)
	require.Equal(t, 5, api.Requests())

	// What is too large is not read, and nothing before it.
	answers["/api/v1/status/tsdb"] = `{"status":"success","data":{"seriesCountByMetricName":[{"name":"large","value":4}]}}`
	_, err = ReadLive(context.Background(), testServer(t, answers), wanted)
	require.ErrorContains(t, err, "large has up to 4 series, more than the 3 that one query may read: give a scrape with --exposition, or a higher --max-series")
}

func TestServerThatDoesNotSayHowLargeMetricsAreIsReadNameByName(t *testing.T) {
	series, err := ReadLive(context.Background(), testServer(t, map[string]string{
		"/api/v1/label/__name__/values": `{"status":"success","data":["a","b"]}`,
		"/api/v1/metadata":              `{"status":"success","data":{}}`,
		"/api/v1/status/tsdb":           `not found`,
		`{__name__="a"}`:                `{"status":"success","data":{"result":[{"metric":{"__name__":"a"},"value":[1,"7"]}]}}`,
		`{__name__="b"}`:                `{"status":"success","data":{"result":[{"metric":{"__name__":"b"},"value":[1,"8"]}]}}`,
	}), func(string) bool { return true })
	require.NoError(t, err)
	require.Len(t, series, 2)
}

func TestSeriesThatCouldNotBeReadAreAnError(t *testing.T) {
	answers := map[string]string{
		"/api/v1/label/__name__/values": `{"status":"success","data":["a","b"]}`,
		"/api/v1/metadata":              `{"status":"success","data":{}}`,
		"/api/v1/status/tsdb":           `{"status":"success","data":{}}`,
		`{__name__=~"a|b"}`:             `{"status":"error","error":"query timed out"}`,
	}
	all := func(string) bool { return true }
	_, err := ReadLive(context.Background(), testServer(t, answers), all)
	require.ErrorContains(t, err, "the series of a and others could not be read")
	require.ErrorContains(t, err, "query timed out")
	answers["/api/v1/metadata"] = `<html>`
	_, err = ReadLive(context.Background(), testServer(t, answers), all)
	require.ErrorContains(t, err, "/api/v1/metadata: 200 OK, and a web page is not an answer")
}
