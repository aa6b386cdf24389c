// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/proxy/querylog"
	"github.com/promguard/promguard/internal/proxy/upstream"
	"github.com/promguard/promguard/internal/querylimit"
)

func TestPartialAnswersOfThanosPassAndAreCounted(t *testing.T) {
	const (
		vector = `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"warnings":"["},"value":[1,"1"]}]}`
		lost   = `fetch series for {prometheus_replica=\"k8s-0\"} Addr: 10.0.0.1:10901: rpc error: code = Unavailable`
		annot  = `PromQL info: metric might not be a counter, name does not end in _total: \"x\" (1:6)`
	)
	for name, c := range map[string]struct {
		warnings, contentType string
		kind                  upstream.Kind
		want                  float64
	}{
		"a server is gone":         {`["` + lost + `"]`, "application/json", upstream.KindThanos, 1},
		"and PromQL says more":     {`["` + annot + `","` + lost + `"]`, "application/json; charset=utf-8", upstream.KindThanos, 1},
		"a warning of PromQL":      {`["` + annot + `"]`, "application/json", upstream.KindThanos, 0},
		"labels that nobody has":   {`["No StoreAPIs matched for this query"]`, "application/json", upstream.KindThanos, 0},
		"a list that was cut":      {`["results truncated due to limit"]`, "application/json", upstream.KindThanos, 0},
		"no warning":               {`[]`, "application/json", upstream.KindThanos, 0},
		"not JSON":                 {`["` + lost + `"]`, "text/plain", upstream.KindThanos, 0},
		"Prometheus has no shards": {`["` + lost + `"]`, "application/json", upstream.KindPrometheus, 0},
	} {
		t.Run(name, func(t *testing.T) {
			body := vector + `,"warnings":` + c.warnings + "}"
			u := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
				if c.kind == upstream.KindThanos && r.Header.Get("Accept-Encoding") != "identity" {
					http.Error(w, "compressed answers are not looked into", http.StatusInternalServerError)
					return
				}
				w.Header().Set("Content-Type", c.contentType)
				io.WriteString(w, body)
			})
			file := filepath.Join(t.TempDir(), "queries.log")
			log, err := querylog.Open(querylog.Options{File: file, SlowerThan: 1 << 62}, func(error) {})
			require.NoError(t, err)
			p := newProxy(t, u.URL, nil, func(o *Options) { o.Kind, o.Policy.Log = c.kind, log })
			got := p.get(t, "/api/v1/query?query=up")
			require.Equal(t, http.StatusOK, got.code)
			require.Equal(t, body, got.body)
			require.InDelta(t, c.want, p.value(t, "promguard_partial_answers_total", querylimit.ClassQuery.String()), 0)
			p.Close() // What is logged is, once a request is over.
			require.NoError(t, log.Close())
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			if c.want == 0 {
				require.Empty(t, text)
			} else {
				require.Contains(t, string(text), `"partial":true`)
			}
		})
	}
}
