// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/proxy/hostile"
	"github.com/promguard/promguard/internal/proxy/identity"
	"github.com/promguard/promguard/internal/querylimit"
)

// raw sends bytes as they are: a client library would tidy most of these.
func raw(t testing.TB, g *guard, text string) answer {
	t.Helper()
	a, err := (&hostile.Request{Request: text}).Send(g.Listener.Addr().String())
	require.NoError(t, err)
	return answer{a.Status, a.Header, a.Body}
}

func rawForm(path, header, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: %s\r\n%sContent-Length: %d\r\n\r\n%s",
		path, formType, header, len(body), body)
}

func rawGet(target string) string {
	return "GET " + target + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
}

// seen is what the server behind saw of a request.
type seen struct {
	method, target string
	params         url.Values
	header         http.Header
}

func TestHostileRequestsAreRefusedOrArriveCleaned(t *testing.T) {
	var got []seen
	upstream := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		target, _, _ := strings.Cut(r.RequestURI, "?")
		got = append(got, seen{r.Method, target, r.Form, r.Header.Clone()})
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, "{}")
	})
	g := newGuard(t, upstream.URL, func(o *querylimit.Options) { o.ParametersMax, o.RequestBytesMax = 20, 1000 }, func(o *Options) {
		o.Policy.Identity = identity.NewSource(nil, "") // Nobody is believed.
	})
	requests, err := hostile.Requests()
	require.NoError(t, err)
	require.Greater(t, len(requests), 150)
	names := map[string]bool{}
	for _, tc := range requests {
		require.False(t, names[tc.Name], tc.Name)
		names[tc.Name] = true
		t.Run(tc.Name, func(t *testing.T) {
			got = nil
			a, err := tc.Send(g.Listener.Addr().String())
			require.NoError(t, err)
			require.Equal(t, tc.Status, a.Status, a.Body)
			require.Contains(t, a.Body, tc.Says)
			if tc.Sees == nil {
				require.Empty(t, got, "it reached the server behind")
				requireRefused(t, &tc, answer{a.Status, a.Header, a.Body})
				return
			}
			require.Len(t, got, 1)
			require.Equal(t, tc.Sees.Method, got[0].method)
			require.Equal(t, tc.Sees.Target, got[0].target)
			require.Equal(t, url.Values(tc.Sees.Params), got[0].params)
			require.Equal(t, []string{"127.0.0.1"}, got[0].header["X-Forwarded-For"])
			for _, name := range tc.Lacks {
				require.Empty(t, got[0].header.Values(name), name)
			}
		})
	}
}

func requireRefused(t *testing.T, tc *hostile.Request, a answer) {
	t.Helper()
	if a.code == http.StatusMethodNotAllowed {
		require.NotEmpty(t, a.header.Get("Allow"))
	}
	if !tc.NetHTTP && a.body != "" { // HEAD has none.
		requireEnvelope(t, a, map[int]string{400: typeBadData, 404: typeNotFound, 405: typeBadData, 415: typeBadData, 422: typeExecution}[a.code])
	}
}

// What is let through arrives written anew.
func TestServerBehindSeesOnlyTheCanonicalRequest(t *testing.T) {
	var got *http.Request
	var form url.Values
	upstream := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		got, form = r.Clone(r.Context()), r.Form
		io.WriteString(w, "{}")
	})
	g := newGuard(t, upstream.URL, nil)

	a := raw(t, g, rawForm("/api/v1/series?start=1&match[]=b&junk=1",
		"Authorization: Bearer secret\r\nX-Grafana-Id: jwt\r\nX-Scope-OrgID: team\r\nIdempotency-Key: 1\r\nX-Forwarded-For: 6.6.6.6\r\n"+
			"Forwarded: for=6.6.6.6\r\nX-HTTP-Method-Override: DELETE\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\nTe: trailers\r\n",
		"match%5B%5D=a&end=%32&nonsense=1"))
	require.Equal(t, 200, a.code, a.body)
	require.Equal(t, http.MethodPost, got.Method)
	require.Equal(t, "/api/v1/series", got.RequestURI, "everything is in the body")
	require.Equal(t, url.Values{"match[]": {"a", "b"}, "start": {"1"}, "end": {"2"}}, form)
	require.Equal(t, upstream.Listener.Addr().String(), got.Host)
	require.Equal(t, "Bearer secret", got.Header.Get("Authorization"))
	require.Equal(t, "team", got.Header.Get("X-Scope-Orgid"))
	require.Equal(t, []string{"127.0.0.1"}, got.Header["X-Forwarded-For"])
	for _, name := range []string{"X-Grafana-Id", "Idempotency-Key", "Forwarded", "X-Http-Method-Override", "Upgrade", "Http2-Settings", "Connection"} {
		require.Empty(t, got.Header.Values(name), name)
	}

	a = raw(t, g, rawGet("/api/v1/label/%5f_n%61me/values?limit=3&junk=%20"))
	require.Equal(t, 200, a.code, a.body)
	require.Equal(t, "/api/v1/label/__name/values?limit=3", got.RequestURI)
	require.Empty(t, got.Header.Get("Content-Type"))

	a = raw(t, g, "OPTIONS /api/v1/query?query={ HTTP/1.1\r\nHost: x\r\nOrigin: http://o\r\nConnection: close\r\n\r\n")
	require.Equal(t, 200, a.code, a.body)
	require.Equal(t, "OPTIONS /api/v1/query", got.Method+" "+got.RequestURI)
	require.Equal(t, "http://o", got.Header.Get("Origin"))
}

// FuzzRequest compares the guard's view of a request with that of net/http,
// which Prometheus's handlers use: whatever is let through must look the same
// before and after it is written anew, in every parameter that a handler reads.
func FuzzRequest(f *testing.F) {
	for _, seed := range []struct {
		post             bool
		path, url, body  string
		encoding, header string
	}{
		{false, "/api/v1/query", "query=up&time=1", "", "", ""},
		{true, "/api/v1/query", "time=1", "query=up", "", formType},
		{true, "/api/v1/series", "match[]=a&limit=1", "match[]=b&match%5b%5d=c", "", formType + "; charset=utf-8"},
		{false, "/api/v1/label/a%20b/values", "match[]=a+b", "", "", ""},
		{true, "/api/v1/query", "query=a;b", "query=%zz&=x&&", "gzip", "multipart/form-data"},
		{false, "/api/v1/targets", "scrapePool=x&state=active&state=x", "", "", ""},
		{true, "/api/v1/query_range", "", "query=up&step=1e-9&start=-1e15&end=1970-01-01T00:00:00.123456789Z&limit=007&lookback_delta=1d", "", formType},
		{false, "/api/v1/series", "match[]=up&start=1.5&end=-292273086-05-16T16:47:06Z&limit=0&timeout=1m", "", "", ""},
		{true, "/api/v1/query", "dedup=true&storeMatch[]=a&nocache=1", "query=up&storeMatch%5B%5D=b&max_source_resolution=5m&engine=thanos&partial_response=1", "", formType},
		{false, "/api/v1/series", "match[]=up&dedup=1&dedup=0&replicaLabels[]=a&replicaLabels[]=b&extra_label=a%3Db", "", "", ""},
		{true, "/api/v1/query_range", "", "query=%00%ff&step=1&start=1&end=2", "", "Application/X-WWW-Form-Urlencoded"},
	} {
		f.Add(seed.post, seed.path, seed.url, seed.body, seed.encoding, seed.header)
	}
	routers := map[Kind]*router{}
	for _, kind := range Kinds() {
		routers[Kind(kind)] = newRouter(Kind(kind))
	}
	policy := newPolicy(f, nil).Rules.Tenant("")
	f.Fuzz(func(t *testing.T, post bool, path, query, body, encoding, contentType string) {
		build := func() *http.Request {
			method := http.MethodGet
			if post {
				method = http.MethodPost
			}
			u, err := url.ParseRequestURI(path)
			if err != nil || strings.ContainsAny(query, "#") {
				return nil
			}
			u.RawQuery = query
			r := httptest.NewRequest(method, "/", strings.NewReader(body))
			r.URL = u
			r.Header.Set("Content-Encoding", encoding)
			r.Header.Set("Content-Type", contentType)
			return r
		}
		r := build()
		if r == nil {
			return
		}
		for _, rt := range routers {
			r := build()
			e, label := rt.find(r.URL)
			if e == nil || !e.allows(r.Method) {
				return
			}
			if q, err := readRequest(r, e, label, policy); err == nil {
				requireSameView(t, build(), q)
			}
		}
	})
}

func requireSameView(t *testing.T, before *http.Request, q *request) {
	t.Helper()
	decoded, _ := q.path()
	require.Equal(t, before.URL.Path, decoded)
	after := httptest.NewRequest(q.method, "/", nil)
	if q.method == http.MethodPost {
		after = httptest.NewRequest(q.method, "/", strings.NewReader(q.encode()))
		after.Header.Set("Content-Type", formType)
	} else {
		after.URL.RawQuery = q.encode()
	}
	for _, name := range q.endpoint.scalars {
		want := before.FormValue(name)
		require.Equal(t, want, after.FormValue(name), name)
		require.Equal(t, want, q.get(name), name)
		if q.method == http.MethodGet { // Where handlers read the URL alone.
			require.Equal(t, before.URL.Query().Get(name), after.URL.Query().Get(name), name)
		}
	}
	for _, name := range q.endpoint.lists {
		require.Equal(t, before.Form[name], after.Form[name], name)
		require.Equal(t, before.Form[name], q.all(name), name)
	}
}

func TestRulesKnowTheEndpointsThatAreOpen(t *testing.T) {
	var names []string
	for _, e := range endpoints(KindPrometheus) {
		names = append(names, e.Name)
	}
	require.Equal(t, querylimit.Endpoints(), names)
}

func TestEveryLimitHasItsPageAndEveryPageItsLimit(t *testing.T) {
	index, err := os.ReadFile(filepath.Join("..", "..", "docs", "limits", "README.md"))
	require.NoError(t, err)
	var pages []string
	for _, limit := range querylimit.Limits() {
		page := (&querylimit.Refusal{Limit: limit}).Doc()
		path := filepath.Join("..", "..", "docs", "limits", filepath.Base(page))
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(text), "# "+limit+"\n"), path)
		require.Contains(t, string(text), "**Change it**: `", "%s says how to change the limit", path)
		require.Contains(t, string(index), "| `"+limit+"` |", "the list of limits has it")
		pages = append(pages, filepath.Base(page))
	}
	files, err := filepath.Glob(filepath.Join("..", "..", "docs", "limits", "*.md"))
	require.NoError(t, err)
	for _, path := range files {
		if name := filepath.Base(path); name != "README.md" {
			require.Contains(t, pages, name, "a page of a limit that does not exist")
		}
	}
}
