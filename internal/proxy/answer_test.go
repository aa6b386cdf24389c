// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/querylimit"
)

// matrix is an answer with n series.
func matrix(n int) string {
	return `{"status":"success","data":{"resultType":"matrix","result":[{}` + strings.Repeat(`,{"metric":{"job":"api"},"values":[[1,"1"],[2,"2"]]}`, n) + `]}}`
}

func TestAnswerThatIsTooLongIsRefusedOrBrokenOff(t *testing.T) {
	var encodings []string
	labels := `{"status":"success","data":["a"` + strings.Repeat(`,"label"`, 20_000) + `]}`
	upstream := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		encodings = append(encodings, r.Header.Get("Accept-Encoding"))
		w.Header().Set("Content-Type", "application/json")
		body := matrix(4000)
		if strings.HasSuffix(r.URL.Path, "/labels") {
			body = labels
		}
		if r.FormValue("time") == "1" {
			io.WriteString(w, `{"status":"success","data":[]}`)
			return
		}
		if r.FormValue("time") == "" {
			w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		}
		switch r.FormValue("time") {
		case "3":
			w.Header().Set("Content-Encoding", "gzip") // Or so it says.
		case "4", "5":
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			defer z.Close()
			if r.FormValue("time") == "4" {
				body = matrix(10)
			}
			io.WriteString(z, body)
			return
		}
		io.WriteString(w, body)
	})
	limits := func(mode querylimit.Mode) func(*querylimit.Options) {
		return func(o *querylimit.Options) {
			o.Responses.Mode = mode
			o.Responses.Classes[querylimit.ClassQuery] = querylimit.ResponseLimit{Max: 100_000}
			o.Responses.Classes[querylimit.ClassMetadata] = querylimit.ResponseLimit{Max: 100_000}
			o.Responses.Classes[querylimit.ClassStatus] = querylimit.ResponseLimit{WireMax: 100_000}
		}
	}
	g := newProxy(t, upstream.URL, limits(querylimit.ModeEnforce))
	require.Equal(t, 200, g.get(t, "/api/v1/query?query=up&time=1").code)
	a := g.get(t, "/api/v1/query?query=up")
	require.Equal(t, 422, a.code, "its length is known")
	requireEnvelope(t, a, typeExecution, "Limit response_bytes", "100000 bytes allowed", "limits.response_bytes.query.max", "docs/limits/response-bytes.md")
	res, err := g.Client().Get(g.URL + "/api/v1/query?query=up&time=2")
	require.NoError(t, err)
	_, err = io.ReadAll(res.Body)
	res.Body.Close()
	require.Error(t, err, "a part must not look like the whole")
	require.Equal(t, 2.0, g.value(t, "promguard_refused_total", "response_bytes"))
	require.Zero(t, g.value(t, "promguard_upstream_errors_total", "truncated"))
	a = g.get(t, "/api/v1/query?query=up&time=3")
	require.Equal(t, 503, a.code, "what it is when decoded nobody knows")
	requireEnvelope(t, a, typeUnavailable, "compressed an answer", "response_bytes")
	require.Equal(t, matrix(10), g.get(t, "/api/v1/query?query=up&time=4").body, "decoded")
	res, err = g.Client().Get(g.URL + "/api/v1/query?query=up&time=5")
	require.NoError(t, err)
	_, err = io.ReadAll(res.Body)
	res.Body.Close()
	require.Error(t, err, "what counts are the decoded bytes")
	require.Equal(t, 422, g.get(t, "/api/v1/rules").code)
	a = g.get(t, "/api/v1/labels")
	require.Equal(t, 422, a.code, "a list, too")
	requireEnvelope(t, a, typeExecution, "or give a limit. Limit response_bytes", "limits.response_bytes.metadata.max")
	require.Equal(t, 5.0, g.value(t, "promguard_limit_exceeded_total", "response_bytes", "enforce"))
	require.Equal(t, []string{"identity", "identity", "identity", "identity", "identity", "identity", "gzip", "identity"}, encodings)

	g = newProxy(t, upstream.URL, func(o *querylimit.Options) {
		limits(querylimit.ModeEnforce)(o)
		o.Responses.Classes[querylimit.ClassMetadata].WireMax = 60_000
	})
	require.Contains(t, g.get(t, "/api/v1/labels").body, "60000 bytes allowed", "the smaller bound counts")

	g = newProxy(t, upstream.URL, limits(querylimit.ModeObserve))
	require.Equal(t, labels, g.get(t, "/api/v1/labels").body)
	require.Equal(t, 1.0, g.value(t, "promguard_limit_exceeded_total", "response_bytes", "observe"))
}

func TestAnswerThatIsBrokenOffAtOnceIsNotAskedForAgain(t *testing.T) {
	var requests atomic.Int32
	upstream := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		w.Header().Set("Content-Type", "application/json")
		if r.FormValue("query") == "up" {
			io.WriteString(w, matrix(2))
			return
		}
		io.WriteString(w, matrix(4000)) // Its length is not known beforehand.
	})
	g := newProxy(t, upstream.URL, func(o *querylimit.Options) {
		o.Responses.Mode = querylimit.ModeEnforce
		o.Responses.Classes[querylimit.ClassQuery] = querylimit.ResponseLimit{Max: 1000}
	})
	require.Equal(t, 200, g.get(t, "/api/v1/query?query=up").code, "the connection is used again")
	res, err := g.Client().Get(g.URL + "/api/v1/query?query=down")
	require.NoError(t, err, "the headers come, or the client would take the connection for a stale one")
	defer res.Body.Close()
	_, err = io.ReadAll(res.Body)
	require.Error(t, err)
	require.EqualValues(t, 2, requests.Load())
}

func TestWarningThatCannotBeAddedIsCountedAndTheAnswerKept(t *testing.T) {
	body := []byte{0x1f, 0x8b, 1, 2, 3}
	upstream := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Accept-Encoding"); got != "identity" {
			t.Errorf("the upstream server was asked for encoding %q", got)
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Encoding", "gzip") // Although nobody asked.
		_, _ = w.Write(body)
	})
	g := newProxy(t, upstream.URL, func(o *querylimit.Options) { o.Selectivity = querylimit.ModeWarn })
	req := newRequest(t, http.MethodGet, g.URL, "series", "match[]=%7Ble!%3D%22%22%7D")
	req.Header.Set("Accept-Encoding", "gzip") // Set by hand, so the client does not decode it.
	a := do(t, g.Client(), req)
	require.True(t, bytes.Equal(body, []byte(a.body)))
	require.Equal(t, 1.0, g.value(t, "promguard_warnings_lost_total"))
}
