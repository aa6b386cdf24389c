// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/hostile"
	"github.com/promguard/promguard/internal/proxy/canonical"
	"github.com/promguard/promguard/internal/proxy/identity"
	"github.com/promguard/promguard/internal/querylimit"
)

// raw sends bytes as they are: a client library would tidy most of these.
func raw(t testing.TB, g *testProxy, text string) answer {
	t.Helper()
	a, err := (&hostile.Request{Request: text}).Send(g.Listener.Addr().String())
	require.NoError(t, err)
	return answer{a.Status, a.Header, a.Body}
}

func rawForm(path, header, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: %s\r\n%sContent-Length: %d\r\n\r\n%s",
		path, canonical.FormType, header, len(body), body)
}

func rawGet(target string) string {
	return "GET " + target + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
}

// seen is what the upstream server saw of a request.
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
	g := newProxy(t, upstream.URL, func(o *querylimit.Options) { o.ParametersMax, o.RequestBytesMax = 20, 1000 }, func(o *Options) {
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
				require.Empty(t, got, "it reached the upstream server")
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
	g := newProxy(t, upstream.URL, nil)

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
