// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/promslog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/promguard/promguard/internal/proxy/canonical"
	"github.com/promguard/promguard/internal/proxy/identity"
	"github.com/promguard/promguard/internal/querylimit"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// guard is a Proxy on a real listener.
type guard struct {
	*httptest.Server

	proxy *Proxy
	reg   *prometheus.Registry
}

// newPolicy believes peers on the loopback interface.
func newPolicy(t testing.TB, change func(*querylimit.Options), rules ...querylimit.Rule) Policy {
	t.Helper()
	opts := querylimit.DefaultOptions()
	if change != nil {
		change(&opts)
	}
	set, err := querylimit.NewRuleset(querylimit.RulesetOptions{Global: opts, Rules: rules})
	require.NoError(t, err)
	return Policy{Rules: set, Identity: identity.NewSource([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, "")}
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

// malformed tells a request that is no request of this API, of which there is no more
// to say than what is wrong, in Prometheus's words where it has some.
var malformed = regexp.MustCompile(`^(invalid parameter|error parsing|parameters?|reading the body|remote read)\b`)

// requireEnvelope checks that a is an error as Prometheus writes it and that its
// text has all parts.
func requireEnvelope(t testing.TB, a answer, errorType string, parts ...string) {
	t.Helper()
	require.Equal(t, "application/json", a.header.Get("Content-Type"))
	var got map[string]any
	require.NoError(t, json.Unmarshal([]byte(a.body), &got), a.body)
	require.Equal(t, "error", got["status"])
	require.Equal(t, errorType, got["errorType"])
	require.Len(t, got, 3, "no data key: it would hide the message in Grafana")
	if !malformed.MatchString(got["error"].(string)) {
		require.Regexp(t, "^[A-Z]", got["error"], "what to do comes first: Grafana shows two lines")
	}
	for _, part := range parts {
		require.Contains(t, got["error"], part)
	}
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

func newRequest(t testing.TB, method, root, path, params string) *http.Request {
	t.Helper()
	target, body := root+"/api/v1/"+path+"?"+params, ""
	if method == http.MethodPost {
		target, body = root+"/api/v1/"+path, params
	}
	req, err := http.NewRequest(method, target, strings.NewReader(body))
	require.NoError(t, err)
	if method == http.MethodPost {
		req.Header.Set("Content-Type", canonical.FormType)
	}
	return req
}
