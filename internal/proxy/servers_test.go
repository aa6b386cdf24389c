// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/promslog"
	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/proxy/admission"
	"github.com/promguard/promguard/internal/proxy/upstream"
	"github.com/promguard/promguard/internal/querylimit"
)

func TestAlertLiftsNoBoundOfFederation(t *testing.T) {
	const sent, most = 10, 4
	held, began := make(chan struct{}), make(chan struct{}, sent)
	behind := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		began <- struct{}{}
		<-held
		fmt.Fprint(w, "x")
	})
	g := newProxy(t, behind.URL, nil, opened, func(o *Options) {
		o.Policy.Admission = admission.DefaultOptions()
		o.Policy.Admission.Queue = 0
	})
	codes := make(chan int, sent)
	for i := range sent {
		go func() {
			req, err := http.NewRequest(http.MethodGet, g.URL+fmt.Sprintf("/federate?match[]=up%d", i), nil)
			if err != nil {
				codes <- 0
				return
			}
			req.Header.Set("FromAlert", "true")
			res, err := g.Client().Do(req)
			if err != nil {
				codes <- 0
				return
			}
			res.Body.Close()
			codes <- res.StatusCode
		}()
	}
	got, ended := map[int]int{}, 0
	for range sent { // Each is refused or gets to the server, where it stays.
		select {
		case <-began:
		case code := <-codes:
			got[code]++
			ended++
		}
	}
	close(held)
	for range sent - ended {
		got[<-codes]++
	}
	require.Equal(t, map[int]int{http.StatusOK: most, http.StatusServiceUnavailable: sent - most}, got)
}

// serveRaw answers one request by text, and closes the connection.
func serveRaw(t *testing.T, text string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			_, _ = io.WriteString(c, text)
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return "http://" + l.Addr().String()
}

func TestAnswerThatOnlyTheConnectionEndsIsRefused(t *testing.T) {
	const part = "Content-Type: text/plain\r\n\r\nup{job=\"a\"} 1\nup{job=\"b\"} "
	for name, tc := range map[string]struct {
		head, target string
		code         int
	}{
		"HTTP/1.0":                {"HTTP/1.0 200 OK\r\n", "/federate?match[]=up", 503},
		"HTTP/1.1":                {"HTTP/1.1 200 OK\r\nConnection: close\r\n", "/federate?match[]=up", 503},
		"HTTP/1.0, with a length": {"HTTP/1.0 200 OK\r\nContent-Length: 26\r\n", "/federate?match[]=up", 200},
		"a query":                 {"HTTP/1.0 200 OK\r\n", "/api/v1/query?query=up", 503},
		"a list":                  {"HTTP/1.1 200 OK\r\nConnection: close\r\n", "/api/v1/labels", 503},
		"an error, of HAProxy":    {"HTTP/1.0 504 Gateway Time-out\r\nConnection: close\r\n", "/api/v1/query?query=up", 504},
	} {
		t.Run(name, func(t *testing.T) {
			g := newProxy(t, serveRaw(t, tc.head+part), nil, opened)
			a := g.get(t, tc.target)
			require.Equal(t, tc.code, a.code)
			if tc.code == 503 {
				requireEnvelope(t, a, "unavailable", "a part would look whole")
				require.Equal(t, 1.0, g.value(t, "promguard_upstream_errors_total", reasonTruncated))
			}
		})
	}
}

func TestCompressionAroundARemoteReadHidesNothingFromItsLimit(t *testing.T) {
	for _, encoding := range []string{"gzip", "br"} {
		t.Run(encoding, func(t *testing.T) {
			var accepted string
			behind := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
				accepted = r.Header.Get("Accept-Encoding")
				w.Header().Set("Content-Type", "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse")
				w.Header().Set("Content-Encoding", encoding)
				z := gzip.NewWriter(w)
				_, _ = z.Write(make([]byte, 1<<20))
				_ = z.Close()
			})
			g := newProxy(t, behind.URL, func(o *querylimit.Options) {
				o.Responses.Mode = querylimit.ModeEnforce
				o.Responses.Classes[querylimit.ClassBulk] = querylimit.ResponseLimit{Max: 10_000}
			}, opened)
			res, err := g.Client().Do(newRead(t, g.URL, readBody(t, equal("__name__", "up"))))
			require.NoError(t, err)
			defer res.Body.Close()
			body, err := io.ReadAll(res.Body)
			require.Equal(t, "identity", accepted)
			if encoding == "gzip" { // It is decoded, and its bytes count.
				require.ErrorIs(t, err, io.ErrUnexpectedEOF)
				require.LessOrEqual(t, len(body), 10_000)
				return
			}
			require.NoError(t, err)
			require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
			require.Contains(t, string(body), "compressed an answer")
		})
	}
}

// The server knows guess() and the clause hence, and promguard does not.
func TestQueryThatOnlyTheServerKnowsIsRefusedOrPassedUnjudged(t *testing.T) {
	behind := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/api/v1/features" {
			fmt.Fprint(w, `{"status":"success","data":{"promql_functions":{"guess":true},"promql":{"hence":true}}}`)
			return
		}
		fmt.Fprint(w, `{"status":"success","data":{"version":"3.99.0","revision":"a","goVersion":"b"}}`)
	})
	root, err := url.Parse(behind.URL)
	require.NoError(t, err)
	for mode, want := range map[querylimit.Mode]int{querylimit.ModeEnforce: 422, querylimit.ModeWarn: 200, querylimit.ModeObserve: 200, querylimit.ModeOff: 200} {
		g := newProxy(t, behind.URL, func(o *querylimit.Options) { o.UnknownPromQL = mode }, func(o *Options) {
			o.Pool = upstream.NewPool(upstream.Options{
				URLs: []*url.URL{root}, Probe: upstream.ProbeRequire, Transport: o.Transport, Registerer: prometheus.NewRegistry(), Logger: promslog.NewNopLogger(),
			})
		})
		require.NoError(t, g.proxy.Probe(t.Context()), "it ends no start")
		for _, query := range []string{"guess(up[5m])", "sum(up) hence", "guess({le!=\"\"})"} {
			for _, path := range []string{"query", "query_range", "query_exemplars", "parse_query"} {
				a := do(t, g.Client(), newRequest(t, http.MethodGet, g.URL, path, url.Values{"query": {query}, "start": {"0"}, "end": {"60"}, "step": {"15"}}.Encode()))
				require.Equal(t, want, a.code, "%s: %s", mode, a.body)
				switch mode {
				case querylimit.ModeEnforce:
					requireEnvelope(t, a, typeExecution, "Limit unknown_promql: a query with ", "cannot be judged")
				case querylimit.ModeWarn:
					require.Contains(t, a.body, "Limit unknown_promql")
				}
			}
		}
		if mode != querylimit.ModeOff {
			require.InDelta(t, 12, g.value(t, "promguard_limit_exceeded_total", "unknown_promql", mode.String()), 0)
		}
		require.Equal(t, 400, g.get(t, "/api/v1/query?query=other(up)").code, "nobody knows it")
		require.Equal(t, 400, g.get(t, "/api/v1/series?match[]=guess(up)").code, "no selector has it")
		require.Equal(t, 422, g.get(t, "/api/v1/query?query=sum({le!=%22%22})").code)
	}
}

func TestSubqueryTakesTheStepThatTheServerGivesIt(t *testing.T) {
	for kind, want := range map[upstream.Kind]int{upstream.KindPrometheus: 200, upstream.KindVictoriaMetrics: 422} {
		behind := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"status":"success"}`) })
		root, err := url.Parse(behind.URL)
		require.NoError(t, err)
		g := newProxy(t, behind.URL, func(o *querylimit.Options) { o.Samples.Max = 200 }, func(o *Options) {
			o.Kind = kind
			o.Pool = upstream.NewPool(upstream.Options{
				URLs: []*url.URL{root}, Kind: kind, Transport: o.Transport, Registerer: prometheus.NewRegistry(), Logger: promslog.NewNopLogger(),
			})
		})
		at := func(step time.Duration) int {
			return g.get(t, "/api/v1/query_range?start=0&end=1&query=max_over_time(up[1h:])&step="+fmt.Sprint(step.Seconds())).code
		}
		require.Equal(t, 200, at(time.Minute), kind)
		require.Equal(t, want, at(time.Second), kind)
		require.Equal(t, 200, g.get(t, "/api/v1/query?query=max_over_time(up[1h:])").code, kind)
	}
}
