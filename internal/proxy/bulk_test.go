// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gogo/protobuf/proto"
	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/proxy/admission"
	"github.com/promguard/promguard/internal/proxy/canonical"
	"github.com/promguard/promguard/internal/querylimit"
)

func opened(o *Options) {
	o.Policy.Open = []string{querylimit.EndpointFederate, querylimit.EndpointRead}
}

// readBody is a remote read with a query for each list of matchers, from a second
// to two.
func readBody(t testing.TB, queries ...[]*prompb.LabelMatcher) []byte {
	t.Helper()
	r := &prompb.ReadRequest{AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{prompb.ReadRequest_STREAMED_XOR_CHUNKS}}
	for _, ms := range queries {
		r.Queries = append(r.Queries, &prompb.Query{StartTimestampMs: 1000, EndTimestampMs: 2000, Matchers: ms})
	}
	b, err := proto.Marshal(r)
	require.NoError(t, err)
	return snappy.Encode(nil, b)
}

func equal(name, value string) []*prompb.LabelMatcher {
	return []*prompb.LabelMatcher{{Name: name, Value: value}}
}

func newRead(t testing.TB, root string, body []byte) *http.Request {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, root+"/api/v1/read?timeout=7s&x=y", bytes.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", canonical.ProtobufType)
	req.Header.Set("Content-Encoding", canonical.SnappyEncoding)
	req.Header.Set("X-Prometheus-Remote-Read-Version", "0.1.0")
	return req
}

func TestFederationAndRemoteReadAreOpenOnlyWhereNamed(t *testing.T) {
	upstream := newUpstream(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.Path) })
	for _, open := range [][]string{nil, {querylimit.EndpointFederate}, {querylimit.EndpointRead}} {
		g := newProxy(t, upstream.URL, nil, func(o *Options) { o.Policy.Open = open; o.RoutePrefix = "/prom" })
		federate := g.get(t, "/prom/federate?match[]=up")
		read := do(t, g.Client(), newRead(t, g.URL+"/prom", readBody(t, equal("__name__", "up"))))
		for name, a := range map[string]answer{querylimit.EndpointFederate: federate, querylimit.EndpointRead: read} {
			if len(open) > 0 && name == open[0] {
				require.Equal(t, 200, a.code, a.body)
				continue
			}
			require.Equal(t, 404, a.code)
			requireEnvelope(t, a, typeNotFound, "open: ["+name+"]")
		}
		require.Equal(t, 404, g.get(t, "/prom/api/v1/federate?match[]=up").code)
		require.Equal(t, 404, do(t, g.Client(), newRequest(t, http.MethodPost, g.URL+"/prom", "write", "")).code)
		require.Equal(t, http.StatusMethodNotAllowed, g.get(t, "/prom/api/v1/read").code)
	}
}

func TestServerReadsOfARemoteReadWhatPromguardJudged(t *testing.T) {
	var got *prompb.ReadRequest
	var decodeErr error
	var header http.Header
	var query string
	upstream := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		got, decodeErr = remote.DecodeReadRequest(r)
		header, query = r.Header, r.URL.RawQuery
		w.Header().Set("Content-Type", "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse")
		fmt.Fprint(w, "chunks\x00")
	})
	g := newProxy(t, upstream.URL, nil, opened)
	body := readBody(t, append(equal("__name__", "up"), &prompb.LabelMatcher{Type: prompb.LabelMatcher_NRE, Name: "a.b", Value: "c|d"}), equal("__name__", "down"))
	a := do(t, g.Client(), newRead(t, g.URL, body))
	require.Equal(t, 200, a.code, a.body)
	require.NoError(t, decodeErr)
	require.Equal(t, "chunks\x00", a.body)
	require.Equal(t, "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse", a.header.Get("Content-Type"))
	want, err := remote.DecodeReadRequest(newRead(t, "", body))
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Equal(t, canonical.ProtobufType, header.Get("Content-Type"))
	require.Equal(t, canonical.SnappyEncoding, header.Get("Content-Encoding"))
	require.Equal(t, "0.1.0", header.Get("X-Prometheus-Remote-Read-Version"))
	require.Equal(t, "timeout=7s", query)
}

func TestHostileFederationAndRemoteReadAreRefused(t *testing.T) {
	upstream := newUpstream(t, func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("reached the upstream server: %s %s", r.Method, r.URL)
	})
	g := newProxy(t, upstream.URL, func(o *querylimit.Options) {
		o.RequestBytesMax = 10_000
		o.Oldest = querylimit.Bound{Mode: querylimit.ModeEnforce, Max: int(365 * 24 * time.Hour)}
	}, opened)
	up := equal("__name__", "up")
	read := func(change func(*http.Request), queries ...[]*prompb.LabelMatcher) func(*testing.T) answer {
		return func(t *testing.T) answer {
			req := newRead(t, g.URL, readBody(t, queries...))
			if change != nil {
				change(req)
			}
			return do(t, g.Client(), req)
		}
	}
	body := func(b []byte) func(*http.Request) {
		return func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
		}
	}
	federate := func(query string) func(*testing.T) answer {
		return func(t *testing.T) answer { return g.get(t, "/federate?"+query) }
	}
	for name, tc := range map[string]struct {
		ask  func(*testing.T) answer
		code int
		text string
	}{
		"federation of everything":       {federate("match[]=up&match[]=%7Ble!%3D%22%22%7D"), 422, "Limit selectivity"},
		"federation by an empty label":   {federate("match[]=%7Bjob%3D%22%22%7D"), 400, "non-empty matcher"},
		"federation over HTTP/1.0":       {func(t *testing.T) answer { return raw(t, g, "GET /federate?match[]=up HTTP/1.0\r\nHost: x\r\n\r\n") }, 400, "HTTP/1.1"},
		"read of everything":             {read(nil, up, []*prompb.LabelMatcher{{Type: prompb.LabelMatcher_NEQ, Name: "le"}}), 422, "Limit selectivity: the selector {le!="},
		"read without matchers":          {read(nil, nil), 400, "non-empty matcher"},
		"read by an external label":      {read(nil, equal("cluster", "eu1")), 422, "Limit selectivity"},
		"read by a costly expression":    {read(nil, append(up, &prompb.LabelMatcher{Type: prompb.LabelMatcher_RE, Name: "a", Value: "(" + strings.Repeat("ab", 75) + "){1000}"})), 422, "Limit regex_size"},
		"read by a broken expression":    {read(nil, append(up, &prompb.LabelMatcher{Type: prompb.LabelMatcher_RE, Name: "a", Value: "("})), 400, "missing closing"},
		"read of long ago":               {read(nil, up), 422, "Limit oldest"},
		"no snappy":                      {read(body([]byte("plain")), up), 400, "snappy"},
		"more than it may be":            {read(body(snappy.Encode(nil, make([]byte, 10_001))), up), 422, "Limit request_bytes"},
		"a body that is too long":        {read(body(make([]byte, 10_001)), up), 422, "Limit request_bytes"},
		"a form":                         {read(func(r *http.Request) { r.Header.Set("Content-Type", canonical.FormType) }, up), 415, canonical.ProtobufType},
		"no encoding":                    {read(func(r *http.Request) { r.Header.Del("Content-Encoding") }, up), 415, canonical.SnappyEncoding},
		"remote write's content type":    {read(func(r *http.Request) { r.Header.Set("Content-Type", canonical.ProtobufType+";;") }, up), 415, canonical.ProtobufType},
		"a parameter that is no timeout": {read(func(r *http.Request) { r.URL.RawQuery = "timeout=NaN" }, up), 400, "timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			a := tc.ask(t)
			require.Equal(t, tc.code, a.code, a.body)
			require.Contains(t, strings.ReplaceAll(a.body, `\u003c`, "<"), tc.text)
		})
	}
}

func TestAnswerThatIsCutOffIsNoWholeAnswer(t *testing.T) {
	upstream := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		for range 100 {
			fmt.Fprintln(w, strings.Repeat("a", 99)+" 1")
			_ = http.NewResponseController(w).Flush()
		}
	})
	g := newProxy(t, upstream.URL, func(o *querylimit.Options) {
		o.Responses.Mode = querylimit.ModeEnforce
		o.Responses.Classes[querylimit.ClassBulk] = querylimit.ResponseLimit{Max: 5000}
	}, opened)
	conn, err := net.Dial("tcp", g.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, rawGet("/federate?match[]=up"))
	require.NoError(t, err)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	require.Error(t, err, "a scraper must see that this is not all")
	require.Eventually(t, func() bool {
		return g.value(t, "promguard_refused_total", querylimit.LimitResponseBytes) == 1
	}, time.Minute, 10*time.Millisecond)
}

func TestCompressedSamplesOfARemoteReadAreAnAnswer(t *testing.T) {
	upstream := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", canonical.ProtobufType)
		w.Header().Set("Content-Encoding", canonical.SnappyEncoding)
		fmt.Fprint(w, "samples")
	})
	for limit, code := range map[int64]int{7: 200, 6: 422} {
		g := newProxy(t, upstream.URL, func(o *querylimit.Options) {
			o.Responses.Mode = querylimit.ModeEnforce
			o.Responses.Classes[querylimit.ClassBulk] = querylimit.ResponseLimit{Max: limit}
		}, opened)
		require.Equal(t, code, do(t, g.Client(), newRead(t, g.URL, readBody(t, equal("__name__", "up")))).code)
	}
}

func TestFederationWaitsForPermitsOfItsOwn(t *testing.T) {
	held := make(chan struct{})
	began := make(chan struct{}, 10)
	upstream := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/federate" {
			began <- struct{}{}
			<-held
		}
		fmt.Fprint(w, "{}")
	})
	g := newProxy(t, upstream.URL, nil, opened, func(o *Options) {
		o.Policy.Admission = admission.DefaultOptions()
		o.Policy.Admission.Queue = 0
	})
	done := make(chan int, 4)
	for i := range 4 {
		go func() {
			res, err := g.Client().Get(g.URL + fmt.Sprintf("/federate?match[]=up%d", i))
			if err != nil {
				done <- 0
				return
			}
			_ = res.Body.Close()
			done <- res.StatusCode
		}()
		<-began
	}
	a := g.get(t, "/federate?match[]=up")
	require.Equal(t, 503, a.code)
	requireEnvelope(t, a, typeUnavailable, "the class bulk has 4 requests in flight", "admission.classes.bulk.max")
	require.Equal(t, 200, g.get(t, "/api/v1/query?query=up").code, "others do not wait")
	close(held)
	for range 4 {
		require.Equal(t, 200, <-done)
	}
}
