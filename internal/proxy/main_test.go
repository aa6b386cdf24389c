// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/promslog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/promguard/promguard/internal/querylimit"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Started by init functions of packages behind Prometheus's API.
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"),
	)
}

// guard is a Proxy on a real listener.
type guard struct {
	*httptest.Server

	proxy *Proxy
	reg   *prometheus.Registry
}

func newPolicy(t testing.TB, change func(*querylimit.Options)) *querylimit.Policy {
	t.Helper()
	opts := querylimit.DefaultOptions()
	if change != nil {
		change(&opts)
	}
	policy, err := querylimit.New(opts)
	require.NoError(t, err)
	return policy
}

func newGuard(t testing.TB, upstream string, change func(*querylimit.Options), with ...func(*Options)) *guard {
	t.Helper()
	u, err := ParseUpstream(upstream)
	require.NoError(t, err)
	transport := NewTransport()
	reg := prometheus.NewRegistry()
	opts := Options{Upstream: u, Policy: newPolicy(t, change), Registerer: reg, Logger: promslog.NewNopLogger(), Transport: transport}
	for _, w := range with {
		w(&opts)
	}
	p := New(opts)
	srv := httptest.NewServer(p)
	t.Cleanup(func() {
		srv.Close()
		transport.CloseIdleConnections()
	})
	return &guard{srv, p, reg}
}

// newUpstream serves h and counts nothing; it stands for what is behind.
func newUpstream(t testing.TB, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv
}

// answer is a whole answer.
type answer struct {
	code   int
	header http.Header
	body   string
}

// do sends req without following redirects and reads the answer.
func do(t testing.TB, client *http.Client, req *http.Request) answer {
	t.Helper()
	c := *client
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	res, err := c.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return answer{res.StatusCode, res.Header, string(body)}
}

func (g *guard) get(t testing.TB, pathAndQuery string) answer {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, g.URL+pathAndQuery, nil)
	require.NoError(t, err)
	return do(t, g.Client(), req)
}

func (g *guard) post(t testing.TB, path string, form url.Values) answer {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, g.URL+path, strings.NewReader(form.Encode()))
	require.NoError(t, err)
	req.Header.Set("Content-Type", formType)
	return do(t, g.Client(), req)
}

// value returns the value of a counter or gauge with these labels, in order of
// their names.
func (g *guard) value(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	families, err := g.reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	metrics:
		for _, m := range f.GetMetric() {
			for i, l := range m.GetLabel() {
				if l.GetValue() != labels[i] {
					continue metrics
				}
			}
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	t.Fatalf("no series %s%v", name, labels)
	return 0
}
