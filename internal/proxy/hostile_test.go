// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/querylimit"
)

// raw sends bytes as they are: a client library would tidy most of these.
func raw(t testing.TB, g *guard, text string) answer {
	t.Helper()
	conn, err := net.Dial("tcp", g.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, text)
	require.NoError(t, err)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return answer{res.StatusCode, res.Header, string(body)}
}

func rawForm(path, header, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: %s\r\n%sContent-Length: %d\r\n\r\n%s",
		path, formType, header, len(body), body)
}

func rawGet(target string) string {
	return "GET " + target + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
}

// What is told here never reaches the server behind.
func TestHostileRequestsAreRefused(t *testing.T) {
	const bad = `%7Ble!%3D%22%22%7D` // {le!=""}
	upstream := newUpstream(t, func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("reached the server behind: %s %s", r.Method, r.URL)
	})
	g := newGuard(t, upstream.URL, func(o *querylimit.Options) { o.ParametersMax, o.RequestBytesMax = 20, 1000 })
	for _, tc := range []struct {
		name, request string
		code          int
		text          string
	}{
		{"escaped letter in the path", rawGet("/api/v1/serie%73?match[]=" + bad), 422, "selectivity"},
		{"absolute form", rawGet("http://other/api/v1/series?match[]=" + bad), 422, "selectivity"},
		{"label name escaped", rawGet("/api/v1/label/%5f_name__/values?match[]=" + bad), 422, "selectivity"},
		{"double slash", rawGet("//api/v1/labels"), 404, "not open"},
		{"double slash inside", rawGet("/api/v1//labels"), 404, "not open"},
		{"dot segment", rawGet("/api/v1/x/../labels"), 404, "not open"},
		{"single dot", rawGet("/api/v1/./labels"), 404, "not open"},
		{"escaped dots", rawGet("/api/v1/%2e%2e/v1/labels"), 404, "not open"},
		{"escaped dots as a label", rawGet("/api/v1/label/%2e%2e/values"), 404, "not open"},
		{"escaped slash", rawGet("/api/v1%2flabels"), 404, "not open"},
		{"escaped slash in a label", rawGet("/api/v1/label/a%2Fb/values"), 404, "not open"},
		{"slash in a label", rawGet("/api/v1/label/a/b/values"), 404, "not open"},
		{"no label", rawGet("/api/v1/label//values"), 404, "not open"},
		{"trailing slash", rawGet("/api/v1/labels/"), 404, "not open"},
		{"other case", rawGet("/API/v1/labels"), 404, "not open"},
		{"backslash", rawGet(`/api/v1\labels`), 404, "not open"},
		{"root", rawGet("/"), 404, "not open"},
		{"metrics", rawGet("/metrics"), 404, "not open"},
		{"federate", rawGet("/federate?match[]=up"), 404, "not open"},
		{"admin", rawForm("/api/v1/admin/tsdb/delete_series", "", "match[]=up"), 404, "not open"},
		{"remote read", rawForm("/api/v1/read", "", ""), 404, "not open"},
		{"remote write", rawForm("/api/v1/write", "", ""), 404, "not open"},
		{"OTLP", rawForm("/api/v1/otlp/v1/metrics", "", ""), 404, "not open"},
		{"search", rawGet("/api/v1/search/metric_names"), 404, "not open"},
		{"quit", rawForm("/-/quit", "", ""), 404, "not open"},
		{"pprof", rawGet("/debug/pprof/heap"), 404, "not open"},
		{"OPTIONS *", "OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 200, ""}, // net/http itself
		{"query in URL and body", rawForm("/api/v1/query?query=up", "", "query="+bad), 400, "more than once"},
		{"limit in URL and body", rawForm("/api/v1/series?limit=5", "", "match[]=up&limit=0"), 400, "more than once"},
		{"limit twice", rawGet("/api/v1/series?match[]=up&limit=5&limit=0"), 400, "more than once"},
		{"the same twice, escaped", rawGet("/api/v1/series?match[]=up&limit=5&li%6Dit=5"), 400, "more than once"},
		{"selectors in URL and body", rawForm("/api/v1/series?match[]=up", "", "match[]="+bad), 422, "selectivity"},
		{"empty query in the body", rawForm("/api/v1/query?query=up", "", "query="), 400, "more than once"},
		{"multipart", strings.Replace(rawForm("/api/v1/query", "", "query=up"), formType, "multipart/form-data; boundary=x", 1), 415, formType},
		{"no content type", strings.Replace(rawForm("/api/v1/query", "", "query=up"), "Content-Type: "+formType+"\r\n", "", 1), 415, formType},
		{"broken content type", strings.Replace(rawForm("/api/v1/query", "", "query=up"), formType, formType+";;=", 1), 415, formType},
		{"gzip body", rawForm("/api/v1/query", "Content-Encoding: gzip\r\n", "query=up"), 415, "encoding"},
		{"body of a GET", strings.Replace(rawForm("/api/v1/query?query=up", "", "x=y"), "POST", "GET", 1), 400, "must not have a body"},
		{"bad escape", rawGet("/api/v1/query?query=up&time=%zz"), 400, "invalid URL escape"},
		{"bad escape in a name", rawGet("/api/v1/query?query=up&%zz=1"), 400, "invalid URL escape"},
		{"semicolon", rawGet("/api/v1/query?query=up;query=" + bad), 400, "semicolon"},
		{"semicolon in the body", rawForm("/api/v1/query", "", "query=up;x=y"), 400, "semicolon"},
		{"too many parameters", rawGet("/api/v1/query?query=up" + strings.Repeat("&a=b", 20)), 422, "limit parameters"},
		{"too many parts", rawForm("/api/v1/query?query=up", "", strings.Repeat("a=b&", 20)), 422, "limit parameters"},
		{"long query string", rawGet("/api/v1/query?query=up&a=" + strings.Repeat("a", 1000)), 422, "limit request_bytes"},
		{"long body", rawForm("/api/v1/query", "", "query=up&a="+strings.Repeat("a", 1000)), 422, "limit request_bytes"},
		{"long together", rawForm("/api/v1/query?a="+strings.Repeat("a", 500), "", "query=up&a="+strings.Repeat("a", 500)), 422, "limit request_bytes"},
		{"long chunked body", "POST /api/v1/query HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: " + formType +
			"\r\nTransfer-Encoding: chunked\r\n\r\n800\r\n" + strings.Repeat("a", 0x800) + "\r\n0\r\n\r\n", 422, "limit request_bytes"},
		{"HEAD", strings.Replace(rawGet("/api/v1/labels"), "GET", "PUT", 1), 405, "method PUT"},
		{"PATCH", strings.Replace(rawForm("/api/v1/query", "", "query=up"), "POST", "PATCH", 1), 405, "method PATCH"},
		{"QUERY", strings.Replace(rawForm("/api/v1/query", "", "query=up"), "POST", "QUERY", 1), 405, "method QUERY"},
		{"POST where Prometheus has only GET", rawForm("/api/v1/label/a/values", "", ""), 405, "GET, OPTIONS"},
		{"method override", strings.Replace(rawForm("/api/v1/label/a/values", "X-HTTP-Method-Override: GET\r\n", ""), "POST", "DELETE", 1), 405, "method DELETE"},
		{"timeout not a number", rawGet("/api/v1/query?query=up&timeout=NaN"), 400, "timeout"},
		{"timeout negative", rawGet("/api/v1/query?query=up&timeout=-1s"), 400, "timeout"},
		{"timeout zero", rawGet("/api/v1/labels?timeout=0"), 400, "timeout"},
		{"timeout overflow", rawGet("/api/v1/query?query=up&timeout=1e300"), 400, "overflows"},
		{"time not a number", rawGet("/api/v1/query?query=up&time=NaN"), 400, "valid timestamp"},
		{"time infinite", rawGet("/api/v1/query?query=up&time=Inf"), 400, "valid timestamp"},
		{"time that overflows", rawGet("/api/v1/query?query=up&time=1e18"), 400, "valid timestamp"},
		{"start that overflows", rawGet("/api/v1/series?match[]=up&start=-9.3e15"), 400, "valid timestamp"},
		{"hexadecimal step", rawGet("/api/v1/query_range?query=up&start=0&end=1&step=0x1p-1074"), 400, "query resolution step"},
		{"step not a number", rawGet("/api/v1/query_range?query=up&start=0&end=1&step=NaN"), 400, "overflows"},
		{"lookback not a number", rawGet("/api/v1/query?query=up&lookback_delta=NaN"), 400, "lookback delta"},
		{"limit with a sign", rawGet("/api/v1/series?match[]=up&limit=-0x1"), 400, "invalid syntax"},
		{"what does not parse", rawGet("/api/v1/query?query=up)"), 400, `invalid parameter \"query\"`},
		{"selector hidden in a subquery", rawGet("/api/v1/query?query=max_over_time(" + bad + "[1h:])"), 422, "selectivity"},
		{"exemplars", rawGet("/api/v1/query_exemplars?query=" + bad), 422, "selectivity"},
		{"expensive to parse", rawGet("/api/v1/query?query=" + strings.Repeat("(", 900)), 400, "parse error"},
		{"upgrade", "GET /api/v1/admin HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, close\r\nUpgrade: h2c\r\n\r\n", 404, "not open"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := raw(t, g, tc.request)
			require.Equal(t, tc.code, a.code, a.body)
			require.Contains(t, a.body, tc.text)
			if tc.code != 200 {
				requireEnvelope(t, a, map[int]string{400: typeBadData, 404: typeNotFound, 405: typeBadData, 415: typeBadData, 422: typeExecution}[tc.code])
			}
			if tc.code == http.StatusMethodNotAllowed {
				require.NotEmpty(t, a.header.Get("Allow"))
			}
		})
	}
}

func TestHeadIsNoOpenMethod(t *testing.T) {
	upstream := newUpstream(t, func(http.ResponseWriter, *http.Request) { t.Error("reached the server behind") })
	g := newGuard(t, upstream.URL, nil)
	req, err := http.NewRequest(http.MethodHead, g.URL+"/api/v1/query?query=up", nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusMethodNotAllowed, do(t, g.Client(), req).code)
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
