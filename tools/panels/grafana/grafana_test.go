// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package grafana

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStepsAreThoseOfGrafana(t *testing.T) {
	for _, c := range []struct {
		shown, scrape, step, rate time.Duration
		points                    int
	}{
		{3 * time.Hour, 30 * time.Second, 30 * time.Second, 2 * time.Minute, 533},
		{3 * time.Hour, 15 * time.Second, 20 * time.Second, time.Minute, 533},
		{24 * time.Hour, 30 * time.Second, 2 * time.Minute, 150 * time.Second, 533},
		{7 * 24 * time.Hour, 30 * time.Second, 20 * time.Minute, 1230 * time.Second, 533},
		// Prometheus gives no more than 11,000 points.
		{24 * time.Hour, time.Second, 10 * time.Second, 11 * time.Second, 100_000},
	} {
		s := step(c.shown, c.scrape, c.points)
		require.Equal(t, c.step, s, "%v", c)
		require.Equal(t, c.rate, rateInterval(s, c.scrape), "%v", c)
	}
}

func TestVariablesAreFilledInAndUnknownOnesAreErrors(t *testing.T) {
	filled, err := fill(`rate(a{pod=~"$pod"}[$__rate_interval]) + ${pod}`, map[string]string{"pod": ".*", "__rate_interval": "2m"})
	require.NoError(t, err)
	require.Equal(t, `rate(a{pod=~".*"}[2m]) + .*`, filled)
	_, err = fill("$nothing", nil)
	require.ErrorContains(t, err, "$nothing")
}

func TestAQueryIsAskedAsGrafanaAsksIt(t *testing.T) {
	var asked *http.Request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		asked = r
		_, _ = w.Write([]byte(`{"status":"success","warnings":["slow"],"data":{"resultType":"matrix","result":[` +
			`{"metric":{"pod":"b"},"values":[[30,"1"],[60,"NaN"],[90,"+Inf"]]},{"metric":{"pod":"a"},"values":[[30,"2"]]}]}}`))
	}))
	defer server.Close()
	s := Source{URL: server.URL, ScrapeInterval: 30 * time.Second, Timeout: "60s", From: time.Unix(100, 0), To: time.Unix(10_900, 0)}
	panel := Panel{ID: 7}
	panel.GridPos.W = 8
	r, err := s.Ask(t.Context(), &Dashboard{UID: "board"}, panel, Target{RefID: "A", Expr: "rate(x[$__rate_interval])", LegendFormat: "pod {{pod}}"}, map[string]string{})
	require.NoError(t, err)

	require.Equal(t, "/api/v1/query_range", asked.URL.Path)
	require.Equal(t, "query=rate%28x%5B2m%5D%29&start=90&end=10890&step=30&timeout=60s", "query="+url.QueryEscape(asked.Form.Get("query"))+
		"&start="+asked.Form.Get("start")+"&end="+asked.Form.Get("end")+"&step="+asked.Form.Get("step")+"&timeout="+asked.Form.Get("timeout"))
	require.Equal(t, "board", asked.Header.Get("X-Dashboard-Uid"))
	require.Equal(t, "7", asked.Header.Get("X-Panel-Id"))

	require.Equal(t, []string{"slow"}, r.Warnings)
	require.Equal(t, "pod a", r.Frames[0].Schema.Fields[1].Config.DisplayName)
	text, err := json.Marshal(r.Frames[1].Data)
	require.NoError(t, err)
	require.JSONEq(t, `{"values":[[30000,60000,90000],[1,null,null]],"entities":[{},{"NaN":[1],"Inf":[2]}]}`, string(text))
}
