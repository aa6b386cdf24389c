// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gogo/protobuf/proto"
	"github.com/golang/snappy"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/common/route"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/model/timestamp"
	"github.com/prometheus/prometheus/promguard/readapi"
	"github.com/prometheus/prometheus/promguard/reads"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/util/httputil"
)

// answersDB has enough series for answers of several pieces.
func answersDB(t *testing.T) *tsdb.DB {
	opts := tsdb.DefaultOptions()
	opts.EnableExemplarStorage, opts.MaxExemplars = true, 2000
	db, err := tsdb.Open(t.TempDir(), nil, nil, opts, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	app, now := db.Appender(t.Context()), timestamp.FromTime(time.Now())
	for i := range 2000 {
		l := labels.FromStrings("__name__", fmt.Sprintf("metric_%04d", i), "job", "api", "pod", fmt.Sprintf("a-pod-of-some-deployment-%04d", i))
		ref, err := app.Append(0, l, now, float64(i))
		require.NoError(t, err)
		_, err = app.AppendExemplar(ref, l, exemplar.Exemplar{Labels: labels.FromStrings("trace_id", strconv.Itoa(i)), Value: 1, Ts: now, HasTs: true})
		require.NoError(t, err)
	}
	require.NoError(t, app.Commit())
	return db
}

// stopper stops its read after left bytes of the answer.
type stopper struct {
	http.ResponseWriter
	read *reads.Read
	left int64
}

func (s *stopper) Write(p []byte) (int, error) {
	n, err := s.ResponseWriter.Write(p)
	if s.left -= int64(n); s.left <= 0 {
		s.read.Stop(&reads.Stop{Reason: reads.ReasonOperator, Text: "stopped"})
	}
	return n, err
}

func (s *stopper) Flush() { s.ResponseWriter.(http.Flusher).Flush() }

// parseJSON parses as a client that reads no warnings.
func parseJSON(body []byte) error {
	var envelope struct{ Status string }
	if err := json.Unmarshal(body, &envelope); err != nil {
		return err
	}
	if envelope.Status != "success" {
		return errors.New(string(body))
	}
	return nil
}

func parseLines(body []byte) error {
	lines := strings.Split(strings.TrimSuffix(string(body), "\n"), "\n")
	return parseJSON([]byte(lines[len(lines)-1])) // The trailer.
}

func parseText(body []byte) error {
	p, err := textparse.New(body, "text/plain", labels.NewSymbolTable(), textparse.ParserOptions{})
	for err == nil {
		_, err = p.Next()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func parseChunks(body []byte) error {
	r := remote.NewChunkedReader(bytes.NewReader(body), 1<<30, nil)
	for {
		if err := r.NextProto(&prompb.ChunkedReadResponse{}); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

func parseSamples(body []byte) error {
	plain, err := snappy.Decode(nil, body)
	if err != nil {
		return err
	}
	return proto.Unmarshal(plain, &prompb.ReadResponse{})
}

// TestAReadThatIsStoppedIsWholeOrAnError stops requests to all routes that read, before and
// after their first byte. A client that reads to the end, decompresses and parses gets the
// whole answer or an error, over all protocols.
func TestAReadThatIsStoppedIsWholeOrAnError(t *testing.T) {
	limits := readapi.New(readapi.Options{Timeout: time.Minute}, prometheus.NewRegistry())
	db, gatherer := answersDB(t), prometheus.NewRegistry()
	for i := range 1000 {
		gatherer.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: fmt.Sprintf("own_metric_%d", i)}))
	}
	logger := promslog.NewNopLogger()
	p := parser.NewParser(parser.Options{})
	h := New(nil, &Options{
		LocalStorage: &dbAdapter{db}, Storage: db, ExemplarStorage: db, Parser: p,
		ScrapeManager: &scrape.Manager{}, RuleManager: rules.NewManager(&rules.ManagerOptions{Logger: logger}),
		QueryEngine: promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, Parser: p, Logger: logger}),
		Reads:       limits, RoutePrefix: "/", ExternalURL: &url.URL{Scheme: "http", Host: "localhost"}, Version: &PrometheusVersion{},
		Gatherer: gatherer, Registerer: prometheus.NewRegistry(), EnableSearch: true, ListenAddresses: []string{"localhost:0"}, LookbackDelta: 5 * time.Minute,
		RemoteReadConcurrencyLimit: 10, RemoteReadBytesInFrame: 10_000,
	})
	h.config = &config.Config{}
	h.SetReady(Ready)
	var after atomic.Int64
	after.Store(1 << 40)
	stopping := func(next http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			s := &stopper{w, reads.FromContext(r.Context()), after.Load()}
			switch {
			case s.read == nil: // The route has no limits.
				next(w, r)
				return
			case s.left == 0:
				s.read.Stop(&reads.Stop{Reason: reads.ReasonOperator, Text: "stopped"})
			}
			next(s, r)
		}
	}
	v1, root := route.New(), route.New()
	h.apiV1.Register(v1.WithInstrumentation(func(name string, next http.HandlerFunc) http.HandlerFunc {
		return limits.API(name, stopping(next))
	}))
	root.Get("/federate", limits.Root("/federate", stopping(h.testReady(httputil.CompressionHandler{Handler: http.HandlerFunc(h.federation)}.ServeHTTP))))
	mux := http.NewServeMux()
	mux.Handle("/api/v1/", http.StripPrefix("/api/v1", v1))
	mux.Handle("/", root)
	plain, h2 := httptest.NewServer(mux), httptest.NewUnstartedServer(mux)
	h2.EnableHTTP2 = true
	h2.StartTLS()
	defer plain.Close()
	defer h2.Close()

	get := func(path string) *http.Request { return httptest.NewRequest(http.MethodGet, path, http.NoBody) }
	remoteRead := func(kinds ...prompb.ReadRequest_ResponseType) *http.Request {
		q := &prompb.Query{EndTimestampMs: timestamp.FromTime(time.Now().Add(time.Hour)), Matchers: []*prompb.LabelMatcher{{Name: "job", Value: "api"}}}
		message, err := proto.Marshal(&prompb.ReadRequest{Queries: []*prompb.Query{q}, AcceptedResponseTypes: kinds})
		require.NoError(t, err)
		body := snappy.Encode(nil, message)
		r := httptest.NewRequest(http.MethodPost, "/api/v1/read", bytes.NewReader(body))
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		return r
	}
	const selector = "match[]=%7Bjob%3D%22api%22%7D"
	query := url.Values{"query": {`{job="api"}`}, "start": {strconv.FormatInt(time.Now().Add(-time.Minute).Unix(), 10)}, "end": {strconv.FormatInt(time.Now().Add(time.Minute).Unix(), 10)}, "step": {"15"}}.Encode()
	type request struct {
		*http.Request
		parse func([]byte) error
	}
	requests := []request{
		{get("/federate?" + selector), parseText},
		{remoteRead(), parseSamples},
		{remoteRead(prompb.ReadRequest_STREAMED_XOR_CHUNKS), parseChunks},
		{get("/api/v1/search/metric_names?limit=2000"), parseLines},
		{get("/api/v1/search/label_values?label=pod&limit=2000"), parseLines},
	}
	for _, path := range []string{
		"/series?" + selector, "/series?" + selector + "&" + selector, "/labels", "/labels?" + selector, "/label/pod/values", "/label/pod/values?" + selector,
		"/label/pod/values?" + selector + "&match[]=x", "/metadata", "/targets", "/targets/metadata", "/rules", "/alerts", "/status/tsdb?limit=1000", "/status/self_metrics",
		"/query?" + query, "/query_range?" + query, "/query_exemplars?" + query,
	} {
		requests = append(requests, request{get("/api/v1" + path), parseJSON})
	}

	// ask returns what a client makes of the answer, and how long it was.
	ask := func(r request, proto, encoding string) (body []byte, sent int, err error) {
		req := r.Clone(t.Context())
		req.RequestURI = ""
		if r.GetBody != nil {
			req.Body, _ = r.GetBody()
		}
		req.Header.Set("Accept-Encoding", encoding)
		server := plain
		if proto == "HTTP/2.0" {
			server = h2
		}
		req.URL.Scheme, req.URL.Host, _ = strings.Cut(server.URL, "://")
		var resp *http.Response
		if proto == "HTTP/1.0" {
			conn, err := net.Dial("tcp", req.URL.Host)
			require.NoError(t, err)
			defer conn.Close()
			var wire bytes.Buffer
			require.NoError(t, req.Write(&wire))
			_, err = conn.Write(bytes.Replace(wire.Bytes(), []byte(" HTTP/1.1\r\n"), []byte(" HTTP/1.0\r\n"), 1))
			require.NoError(t, err)
			resp, err = http.ReadResponse(bufio.NewReader(conn), req)
			if err != nil {
				return nil, 0, err
			}
		} else if resp, err = server.Client().Do(req); err != nil {
			return nil, 0, err
		}
		defer resp.Body.Close()
		require.Equal(t, proto, resp.Proto)
		if body, err = io.ReadAll(resp.Body); err != nil {
			return nil, 0, err
		}
		sent = len(body)
		if resp.StatusCode != http.StatusOK {
			return nil, sent, fmt.Errorf("%d %s", resp.StatusCode, body)
		}
		if resp.Header.Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(bytes.NewReader(body))
			if err != nil {
				return nil, sent, err
			}
			if body, err = io.ReadAll(z); err != nil {
				return nil, sent, err
			}
		}
		return body, sent, r.parse(body)
	}
	stopped := 0
	for _, r := range requests {
		for _, proto := range []string{"HTTP/1.0", "HTTP/1.1", "HTTP/2.0"} {
			for _, encoding := range []string{"identity", "gzip"} {
				name := proto + " " + encoding + " " + r.URL.String()
				after.Store(1 << 40)
				whole, sent, err := ask(r, proto, encoding)
				require.NoError(t, err, name)
				stops := []int64{0, 1, int64(sent / 2), int64(sent - 1), int64(sent)}
				for i := range 40 {
					if strings.HasPrefix(r.URL.Path, "/federate") { // Cut in a number, text is valid.
						stops = append(stops, int64(sent*i/40))
					}
				}
				for _, stop := range stops {
					after.Store(stop)
					body, _, err := ask(r, proto, encoding)
					if err != nil {
						stopped++
						continue
					}
					require.Len(t, body, len(whole), "a part for the whole, after %d of %d bytes: %s", stop, sent, name)
				}
			}
		}
	}
	require.Greater(t, stopped, len(requests)*6*2, "most are stopped")
}
