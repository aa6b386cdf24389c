// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package canonical

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/proxy/upstream"
	"github.com/promguard/promguard/internal/querylimit"
)

// FuzzRequest compares the view here of a request with that of net/http,
// which Prometheus's handlers use: whatever is let through must look the same
// before and after it is written anew, in every parameter that a handler reads.
func FuzzRequest(f *testing.F) {
	for _, seed := range []struct {
		post             bool
		path, url, body  string
		encoding, header string
	}{
		{false, "/api/v1/query", "query=up&time=1", "", "", ""},
		{true, "/api/v1/query", "time=1", "query=up", "", FormType},
		{true, "/api/v1/series", "match[]=a&limit=1", "match[]=b&match%5b%5d=c", "", FormType + "; charset=utf-8"},
		{false, "/api/v1/label/a%20b/values", "match[]=a+b", "", "", ""},
		{true, "/api/v1/query", "query=a;b", "query=%zz&=x&&", "gzip", "multipart/form-data"},
		{false, "/api/v1/targets", "scrapePool=x&state=active&state=x", "", "", ""},
		{true, "/api/v1/query_range", "", "query=up&step=1e-9&start=-1e15&end=1970-01-01T00:00:00.123456789Z&limit=007&lookback_delta=1d", "", FormType},
		{false, "/api/v1/series", "match[]=up&start=1.5&end=-292273086-05-16T16:47:06Z&limit=0&timeout=1m", "", "", ""},
		{true, "/api/v1/query", "dedup=true&storeMatch[]=a&nocache=1", "query=up&storeMatch%5B%5D=b&max_source_resolution=5m&engine=thanos&partial_response=1", "", FormType},
		{false, "/api/v1/series", "match[]=up&dedup=1&dedup=0&replicaLabels[]=a&replicaLabels[]=b&extra_label=a%3Db", "", "", ""},
		{true, "/api/v1/query_range", "", "query=%00%ff&step=1&start=1&end=2", "", "Application/X-WWW-Form-Urlencoded"},
	} {
		f.Add(seed.post, seed.path, seed.url, seed.body, seed.encoding, seed.header)
	}
	routers := map[upstream.Kind]*Router{}
	for _, kind := range upstream.Kinds() {
		routers[upstream.Kind(kind)] = NewRouter(upstream.Kind(kind), "")
	}
	policy, err := querylimit.New(querylimit.DefaultOptions())
	require.NoError(f, err)
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
			e, label := rt.Find(r.URL)
			if e == nil || !e.Allows(r.Method) {
				return
			}
			if q, err := Read(r, e, label, policy); err == nil {
				requireSameView(t, build(), q)
			}
		}
	})
}

func requireSameView(t *testing.T, before *http.Request, q *Request) {
	t.Helper()
	after := httptest.NewRequest(q.Method, "/", nil)
	q.Write(after)
	require.Equal(t, before.URL.Path, after.URL.Path)
	for _, name := range q.Endpoint.scalars {
		want := before.FormValue(name)
		require.Equal(t, want, after.FormValue(name), name)
		require.Equal(t, want, q.Get(name), name)
		if q.Method == http.MethodGet { // Where handlers read the URL alone.
			require.Equal(t, before.URL.Query().Get(name), after.URL.Query().Get(name), name)
		}
	}
	for _, name := range q.Endpoint.lists {
		require.Equal(t, before.Form[name], after.Form[name], name)
		require.Equal(t, before.Form[name], q.all(name), name)
	}
}

func TestRulesKnowTheEndpointsThatAreOpen(t *testing.T) {
	var names []string
	for _, e := range endpoints(upstream.KindPrometheus) {
		names = append(names, e.Name)
	}
	require.Equal(t, querylimit.Endpoints(), names)
}
