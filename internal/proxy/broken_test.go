// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"

	"github.com/promguard/promguard/internal/proxy/querylog"
	"github.com/promguard/promguard/internal/querylimit"
)

// dying sends a part of an answer and then closes the connection.
func dying(t *testing.T, part string) string {
	return newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, part)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}).URL
}

// getPart asks for an answer that is broken off, and returns what came of it.
func (g *testProxy) getPart(t *testing.T, path string) []byte {
	t.Helper()
	res, err := g.Client().Get(g.URL + path)
	require.NoError(t, err)
	defer res.Body.Close()
	require.Equal(t, http.StatusOK, res.StatusCode)
	part, err := io.ReadAll(res.Body)
	require.Error(t, err, "a part must not look like the whole")
	return part
}

// begun asks with longer and longer deadlines until an answer has begun, and returns it
// with the number of requests.
func (g *testProxy) begun(t *testing.T, path string, timeout time.Duration) (res *http.Response, asked int) {
	t.Helper()
	for ; ; timeout *= 2 {
		res, err := g.Client().Get(g.URL + path + "&timeout=" + timeout.String())
		require.NoError(t, err)
		asked++
		if res.StatusCode == http.StatusOK {
			return res, asked
		}
		res.Body.Close()
		require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
		require.Less(t, timeout, time.Minute, "no answer begins")
	}
}

// logTo makes promguard write all of a kind that is worth remembering to a file, and
// returns what reads it.
func logTo(t *testing.T) (set func(*Options), entries func() []*querylog.Entry) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "query.log")
	log, err := querylog.Open(querylog.Options{File: path, SlowerThan: time.Hour}, func(error) { t.Error("an entry is lost") })
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, log.Close()) })
	return func(o *Options) { o.Policy.Log = log }, func() (all []*querylog.Entry) {
		f, err := os.Open(path)
		require.NoError(t, err)
		defer f.Close()
		_, err = querylog.Read(f, func(e *querylog.Entry) { all = append(all, e) })
		require.NoError(t, err)
		return all
	}
}

func TestAnswerThatBreaksAfterItsHeadersIsRememberedAsFailed(t *testing.T) {
	set, entries := logTo(t)
	g := newTraced(t, dying(t, matrix(4000)[:100_000]), set)
	g.getPart(t, "/api/v1/query?query=up")
	require.Equal(t, 1, g.top(t, "", 1).Queries[0].Failed)
	require.Eventually(t, func() bool { return len(entries()) == 1 }, time.Minute, time.Millisecond)
	e := entries()[0]
	require.Equal(t, 200, e.Code)
	require.Equal(t, querylog.AbortedUpstream, e.Aborted)
	root := g.wait(t, 3)["GET /api/v1/query"]
	require.Equal(t, codes.Error, root.Status().Code)
	require.Equal(t, "upstream", attributesOf(root)["promguard.aborted"])
}

func TestWhoEndedAnAnswerIsRemembered(t *testing.T) {
	body := matrix(4000)
	upstream := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, body)
		_ = http.NewResponseController(w).Flush()
		if r.FormValue("query") != "down" {
			<-r.Context().Done()
		}
	})
	for reason, tc := range map[string]struct {
		max     int64
		query   string
		timeout time.Duration
	}{
		querylog.AbortedClient: {1 << 30, "up", time.Minute},
		"response_bytes":       {1000, "down", time.Minute},
		"deadline":             {1 << 30, "up", 100 * time.Millisecond},
	} {
		t.Run(reason, func(t *testing.T) {
			set, entries := logTo(t)
			g := newProxy(t, upstream.URL, enforceMax(tc.max), set)
			res, asked := g.begun(t, "/api/v1/query?query="+tc.query, tc.timeout)
			if reason != querylog.AbortedClient {
				_, err := io.ReadAll(res.Body)
				require.Error(t, err)
			}
			require.NoError(t, res.Body.Close())
			require.Eventually(t, func() bool { return len(entries()) == asked }, time.Minute, time.Millisecond)
			e := entries()[asked-1]
			if reason == querylog.AbortedClient {
				require.Equal(t, reason, e.Aborted)
				require.Empty(t, e.Limits)
				return
			}
			require.Equal(t, querylog.AbortedLimit, e.Aborted)
			require.Equal(t, []string{reason + ":enforce"}, e.Limits)
		})
	}
}

// enforceMax bounds the answers of all classes.
func enforceMax(most int64) func(*querylimit.Options) {
	return func(o *querylimit.Options) {
		o.Responses.Mode = querylimit.ModeEnforce
		for _, c := range querylimit.Classes() {
			o.Responses.Classes[c] = querylimit.ResponseLimit{Max: most}
		}
	}
}

// HTTP/1.0 has no way to say that an answer was broken off.
func TestAnswerThatIsBrokenOffIsNoJSONOverHTTP10(t *testing.T) {
	upstream := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, matrix(4000))
	})
	for _, most := range []int64{1000, 100_000} {
		g := newProxy(t, upstream.URL, enforceMax(most))
		c, err := net.Dial("tcp", g.Listener.Addr().String())
		require.NoError(t, err)
		defer c.Close()
		_, err = fmt.Fprint(c, "GET /api/v1/query?query=up HTTP/1.0\r\nHost: x\r\n\r\n")
		require.NoError(t, err)
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err, "it does not look broken")
		require.False(t, json.Valid(body))
		require.Less(t, len(body), len(matrix(4000)))
	}
}

func TestAnswerWithoutABodyMaySayThatItIsCompressed(t *testing.T) {
	upstream := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip")
		switch r.FormValue("query") {
		case "none":
			w.WriteHeader(http.StatusNoContent)
		case "empty":
			w.Header().Set("Content-Length", "0")
		case "dead":
			io.WriteString(w, "\x1f\x8b\x08")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case "chunked":
			_ = http.NewResponseController(w).Flush()
		}
	})
	g := newProxy(t, upstream.URL, enforceMax(1<<20))
	for query, code := range map[string]int{"none": 204, "empty": 200, "chunked": 200} {
		a := g.get(t, "/api/v1/query?query="+query)
		require.Equal(t, code, a.code, query)
		require.Empty(t, a.body)
		require.Empty(t, a.header.Values("Content-Encoding"))
	}
	a := g.get(t, "/api/v1/query?query=dead")
	requireEnvelope(t, a, typeUnavailable, "did not answer (it closed the connection)")
	require.Equal(t, 1.0, g.value(t, "promguard_upstream_errors_total", reasonUnreachable))
	require.Zero(t, g.value(t, "promguard_upstream_errors_total", reasonEncoded))
}

func TestEncodingsOfSeveralLinesAddUp(t *testing.T) {
	const packed = "\x1f\x8bpacked"
	var encodings []string
	upstream := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header()["Content-Encoding"] = encodings
		io.WriteString(w, packed)
	})
	g := newProxy(t, upstream.URL, enforceMax(1<<20))
	req := newRequest(t, http.MethodGet, g.URL, "query", "query=up")
	req.Header.Set("Accept-Encoding", "gzip") // Set by hand, so the client does not decode it.
	for _, encodings = range [][]string{{"identity", "gzip"}, {"gzip", "gzip"}, {"gzip, gzip"}} {
		requireEnvelope(t, do(t, g.Client(), req), typeUnavailable, "compressed an answer")
	}
	for _, encodings = range [][]string{nil, {"identity"}, {"Identity", "identity"}} {
		require.Equal(t, packed, do(t, g.Client(), req).body)
	}
}

func TestWarningThatMeetsNoEnvelopeOrSeveralEncodingsIsCounted(t *testing.T) {
	var body string
	var encodings []string
	upstream := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header()["Content-Encoding"] = encodings
		io.WriteString(w, body)
	})
	for text, lost := range map[string]float64{
		`{"data":[]}`: 0, `{}`: 0, "\xef\xbb\xbf" + `{"data":[]}`: 1, `["a"]`: 1, "": 1, `{"data":[`: 1, `{"warnings":[]}`: 0,
	} {
		for _, encodings = range [][]string{nil, {"identity", "gzip"}} {
			body = text
			g := newProxy(t, upstream.URL, func(o *querylimit.Options) { o.Selectivity = querylimit.ModeWarn })
			req := newRequest(t, http.MethodGet, g.URL, "series", "match[]=%7Ble!%3D%22%22%7D")
			req.Header.Set("Accept-Encoding", "gzip")
			a := do(t, g.Client(), req)
			want := lost
			if encodings != nil {
				want = 1
			}
			require.Equal(t, want, g.value(t, "promguard_warnings_lost_total"), "%q", text)
			if want == 1 {
				require.Equal(t, text, a.body)
			} else {
				require.Contains(t, a.body, "Limit selectivity")
			}
		}
	}
}
