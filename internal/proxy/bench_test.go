// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/proxy/canonical"
)

// BenchmarkServeQueryRange sends the same small POST straight to a server, through
// httputil.ReverseProxy alone and through the guard. The differences in time and
// allocations are what each adds; client and server are in all three.
func BenchmarkServeQueryRange(b *testing.B) {
	body := `{"status":"success","data":{"resultType":"matrix","result":[` + strings.Repeat(`{"metric":{"job":"api"},"values":[[1,"1"]]},`, 20) + `{}]}}`
	upstream := newUpstream(b, func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, body)
	})
	u, err := url.Parse(upstream.URL)
	require.NoError(b, err)
	bare := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:    func(pr *httputil.ProxyRequest) { pr.SetURL(u); pr.SetXForwarded() },
		Transport:  NewTransport(),
		BufferPool: &bufferPool{},
	})
	b.Cleanup(bare.Close)
	g := newGuard(b, upstream.URL, nil, func(o *Options) { o.Policy.Collapse = true })
	form := url.Values{
		"query": {`sum by (job) (rate(http_requests_total{job="api",code=~"5.."}[5m]))`},
		"start": {"1700000000"}, "end": {"1700003600"}, "step": {"15"},
	}.Encode()
	for _, target := range []struct{ name, url string }{
		{"direct", upstream.URL}, {"bare", bare.URL}, {"guard", g.URL},
	} {
		b.Run(target.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				res, err := http.Post(target.url+"/api/v1/query_range", canonical.FormType, strings.NewReader(form))
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != http.StatusOK {
					b.Fatal(res.Status, err)
				}
				res.Body.Close()
			}
		})
	}
	http.DefaultClient.CloseIdleConnections()
}
