// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package readapi

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/route"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/internal/screen"
	"github.com/prometheus/prometheus/promguard/reads"
	"github.com/prometheus/prometheus/util/httputil"
)

// limited returns the handlers of opts.
func limited(_ *testing.T, opts Options) *Handlers { return New(opts, prometheus.NewRegistry()) }

// serve starts a server with one handler under a deadline on the given route.
func serve(t *testing.T, h *Handlers, route string, next http.HandlerFunc) *httptest.Server {
	t.Helper()
	bound := h.API(route, next)
	if route == "/federate" {
		bound = h.Root(route, next)
	}
	s := httptest.NewServer(bound)
	t.Cleanup(s.Close)
	return s
}

func get(t *testing.T, target string) (*http.Response, string) {
	t.Helper()
	resp, err := http.Get(target)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(body)
}

// waitThen answers as upstream's handlers do when their context ends: with a
// status of their own choice.
func waitThen(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		http.Error(w, r.Context().Err().Error(), code)
	}
}

func TestDeadlineIsAnsweredWith503AndTheFlagsName(t *testing.T) {
	for _, code := range []int{http.StatusUnprocessableEntity, http.StatusInternalServerError, http.StatusOK} {
		h := limited(t, Options{Timeout: 20 * time.Millisecond})
		s := serve(t, h, "/series", waitThen(code))
		resp, body := get(t, s.URL+"/api/v1/series")
		require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		require.Equal(t, "application/json", resp.Header.Get("Content-Type"))
		var envelope map[string]any
		require.NoError(t, json.Unmarshal([]byte(body), &envelope))
		require.Equal(t, "error", envelope["status"])
		require.Equal(t, "timeout", envelope["errorType"])
		require.NotContains(t, envelope, "data")
		for _, part := range []string{"GET /api/v1/series", "20ms", "--guard.api-timeout"} {
			require.Contains(t, envelope["error"], part)
		}
		require.Equal(t, 1.0, testutil.ToFloat64(h.metrics.stopped.WithLabelValues("/api/v1/series", "deadline")))
		require.Zero(t, h.table.Len())
	}
}

func TestDeadlineOnFederateIsPlainText(t *testing.T) {
	s := serve(t, limited(t, Options{Timeout: 20 * time.Millisecond}), "/federate", waitThen(http.StatusInternalServerError))
	resp, body := get(t, s.URL+"/federate")
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	require.Equal(t, "text/plain; charset=utf-8", resp.Header.Get("Content-Type"))
	require.Regexp(t, `^Narrow .*: GET /federate was stopped at its deadline of 20ms`, body)
}

func TestDeadlineReplacesACompressedAnswerByAPlainOne(t *testing.T) {
	slow := httputil.CompressionHandler{Handler: waitThen(http.StatusUnprocessableEntity)}
	s := serve(t, limited(t, Options{Timeout: 20 * time.Millisecond}), "/labels", slow.ServeHTTP)
	req, err := http.NewRequest(http.MethodGet, s.URL, http.NoBody)
	require.NoError(t, err)
	req.Header.Set("Accept-Encoding", "gzip") // By hand, so that the client does not decode.
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Empty(t, resp.Header.Get("Content-Encoding"))
	var envelope map[string]any
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&envelope))
	require.Equal(t, "timeout", envelope["errorType"])
}

// stopAfter sends the beginning of an answer and then stops every read, as if the
// deadline had passed just now, whatever the machine's pace.
func stopAfter(h *Handlers, w http.ResponseWriter, r *http.Request, begin string) {
	_, _ = io.WriteString(w, begin)
	w.(http.Flusher).Flush()
	h.table.StopAll(&reads.Stop{Reason: reads.ReasonDeadline, Text: "the deadline has passed"}, 0)
	<-r.Context().Done()
}

// requireCounted waits for a counter: a client may see the end of its answer
// before the server has counted it.
func requireCounted(t *testing.T, want float64, counter prometheus.Counter) {
	t.Helper()
	require.Eventually(t, func() bool { return testutil.ToFloat64(counter) == want }, time.Minute, time.Millisecond)
}

func TestDeadlineAfterTheFirstByteBreaksTheConnection(t *testing.T) {
	h := limited(t, Options{Timeout: time.Minute})
	late := make(chan error, 1)
	s := serve(t, h, "/series", func(w http.ResponseWriter, r *http.Request) {
		stopAfter(h, w, r, `{"status":"success","data":[`)
		_, err := io.WriteString(w, `]}`)
		late <- err
	})
	resp, err := http.Get(s.URL)
	require.NoError(t, err)
	defer resp.Body.Close()
	_, err = io.ReadAll(resp.Body)
	require.Error(t, err, "an incomplete answer must not look complete")
	require.ErrorContains(t, <-late, "the deadline has passed")
	requireCounted(t, 1, h.metrics.aborted.WithLabelValues("/api/v1/series"))
}

func TestDeadlineEndsAWriteThatWaitsForASlowClient(t *testing.T) {
	h := limited(t, Options{Timeout: time.Minute})
	returned := make(chan error, 1)
	s := serve(t, h, "/series", func(w http.ResponseWriter, _ *http.Request) {
		_, err := w.Write(make([]byte, 256<<20))
		returned <- err
	})
	resp, err := http.Get(s.URL)
	require.NoError(t, err)
	defer resp.Body.Close()
	// The client reads nothing.
	h.table.StopAll(&reads.Stop{Reason: reads.ReasonDeadline, Text: "the deadline has passed"}, 0)
	require.Error(t, <-returned)
}

// both starts the handler on a server for HTTP/1.1 and on one for HTTP/2.
func both(t *testing.T, h *Handlers, next http.HandlerFunc, f func(t *testing.T, s *httptest.Server)) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%t", http2), func(t *testing.T) {
			s := httptest.NewUnstartedServer(h.API("/labels", next))
			s.EnableHTTP2 = http2
			s.StartTLS()
			t.Cleanup(s.Close)
			f(t, s)
		})
	}
}

func TestAnErrorThatIsLateStillArrives(t *testing.T) {
	late := func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(100*time.Millisecond + writeGrace + 200*time.Millisecond) // Looks at no context.
		_, _ = io.WriteString(w, "late")
	}
	both(t, limited(t, Options{Timeout: 100 * time.Millisecond}), late, func(t *testing.T, s *httptest.Server) {
		for range 2 { // The second on the same connection.
			resp, err := s.Client().Get(s.URL)
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
			require.Contains(t, string(body), "was stopped at its deadline")
		}
	})
}

func TestHandlerThatReturnsSilentlyAtTheDeadline(t *testing.T) {
	t.Run("before its header gives the 503", func(t *testing.T) {
		both(t, limited(t, Options{Timeout: 50 * time.Millisecond}), func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			func(t *testing.T, s *httptest.Server) {
				resp, err := s.Client().Get(s.URL)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
			})
	})
	t.Run("after its first batch breaks the connection", func(t *testing.T) {
		h := limited(t, Options{Timeout: time.Minute})
		both(t, h, func(w http.ResponseWriter, r *http.Request) { stopAfter(h, w, r, "batch\n") }, func(t *testing.T, s *httptest.Server) {
			resp, err := s.Client().Get(s.URL)
			require.NoError(t, err)
			_, err = io.ReadAll(resp.Body)
			require.Error(t, err, "an incomplete answer must not look complete")
			require.NoError(t, resp.Body.Close())
		})
		requireCounted(t, 2, h.metrics.aborted.WithLabelValues("/api/v1/labels"))
	})
}

func TestAnAnswerThatItsHandlerBreaksOffIsCountedAsAborted(t *testing.T) {
	h := limited(t, Options{Timeout: time.Minute})
	s := serve(t, h, "/read", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "half of it")
		panic(http.ErrAbortHandler)
	})
	resp, err := http.Get(s.URL)
	if err == nil { // The header may have arrived.
		_, err = io.ReadAll(resp.Body)
		resp.Body.Close()
	}
	require.Error(t, err)
	requireCounted(t, 1, h.metrics.aborted.WithLabelValues("/api/v1/read"))
	require.Zero(t, h.table.Len())
}

func TestClientThatLeavesEndsTheContextWithoutADeadlineError(t *testing.T) {
	h := limited(t, Options{Timeout: time.Minute})
	started, ended := make(chan struct{}), make(chan error, 1)
	s := serve(t, h, "/series", func(w http.ResponseWriter, r *http.Request) {
		close(started)
		<-r.Context().Done()
		ended <- context.Cause(r.Context())
		w.WriteHeader(499)
	})
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, http.NoBody)
	require.NoError(t, err)
	go func() {
		<-started
		cancel()
	}()
	_, err = http.DefaultClient.Do(req)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, <-ended, context.Canceled)
	require.Zero(t, testutil.ToFloat64(h.metrics.stopped.WithLabelValues("/api/v1/series", "deadline")))
}

func TestOwnTimeoutOnlyShortensTheDeadline(t *testing.T) {
	for _, tc := range []struct {
		name, query, form string
		want              time.Duration
		bad               string
	}{
		{name: "none", want: time.Minute},
		{name: "seconds", query: "timeout=1.5", want: 1500 * time.Millisecond},
		{name: "duration", query: "timeout=1m30s", want: time.Minute},
		{name: "shorter duration", query: "timeout=20s", want: 20 * time.Second},
		{name: "form", form: "timeout=3s", want: 3 * time.Second},
		{name: "form before query", query: "timeout=5s", form: "match[]=up&timeout=3s", want: 3 * time.Second},
		{name: "query if the form has none", query: "timeout=5s", form: "match[]=up", want: 5 * time.Second},
		{name: "words", query: "timeout=soon", bad: `cannot parse \"soon\" to a valid duration`},
		{name: "zero", query: "timeout=0", bad: "must be positive"},
		{name: "negative", query: "timeout=-1", bad: "must be positive"},
		{name: "not a number", query: "timeout=NaN", bad: "must be positive"},
		{name: "too large", query: "timeout=1e300", bad: "must be positive"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var left time.Duration
			var seen string
			handler := limited(t, Options{Timeout: time.Minute}).API("/series", func(_ http.ResponseWriter, r *http.Request) {
				d, _ := r.Context().Deadline()
				left = time.Until(d)
				seen = r.FormValue("match[]")
			})
			req := httptest.NewRequest(http.MethodGet, "/api/v1/series?"+tc.query, http.NoBody)
			if tc.form != "" {
				req = httptest.NewRequest(http.MethodPost, "/api/v1/series?"+tc.query, strings.NewReader(tc.form))
				req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			}
			rec := httptest.NewRecorder()
			handler(rec, req)
			if tc.bad != "" {
				require.Equal(t, http.StatusBadRequest, rec.Code)
				require.Contains(t, rec.Body.String(), `"errorType":"bad_data"`)
				require.Contains(t, rec.Body.String(), `invalid parameter \"timeout\"`)
				require.Contains(t, rec.Body.String(), tc.bad)
				return
			}
			require.Equal(t, http.StatusOK, rec.Code)
			require.InDelta(t, tc.want.Seconds(), left.Seconds(), 1)
			if strings.Contains(tc.form, "match") {
				require.Equal(t, "up", seen, "the form is left for the handler")
			}
		})
	}
}

func TestMalformedFormIsRefusedBeforeTheHandlerRuns(t *testing.T) {
	for _, body := range []string{"a=%zz&timeout=1s", "match[]=up;timeout=1", "x=" + strings.Repeat("y", 11<<20)} {
		handler := limited(t, Options{Timeout: time.Minute}).API("/labels", func(http.ResponseWriter, *http.Request) {
			t.Error("the handler was called")
		})
		req := httptest.NewRequest(http.MethodPost, "/api/v1/labels", strings.NewReader(body))
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		rec := httptest.NewRecorder()
		handler(rec, req)
		require.Equal(t, http.StatusBadRequest, rec.Code)
		require.Contains(t, rec.Body.String(), `"errorType":"bad_data","error":"error parsing form values: `)
	}
}

func FuzzHandlerSeesTheFormAsWithoutLimits(f *testing.F) {
	f.Add("timeout=1", "timeout=2&match[]=up", "application/x-www-form-urlencoded", "/labels")
	f.Add("timeout", "timeout=&timeout=2", "application/x-www-form-urlencoded", "/series")
	f.Add("a=1", "--b\r\nContent-Disposition: form-data; name=\"match[]\"\r\n\r\nup\r\n--b--", "multipart/form-data; boundary=b", "/labels")
	f.Add("a=1", "--b\r\nContent-Disposition: form-data; name=\"match[]\"\r\n\r\nup\r\n--b--", "multipart/form-data; boundary=b", "/series")
	f.Fuzz(func(t *testing.T, query, body, contentType, route string) {
		e := (&Handlers{}).endpoint("/api/v1", route)
		if e == nil {
			return
		}
		request := func() *http.Request {
			r := &http.Request{Method: http.MethodPost, URL: &url.URL{Path: "/", RawQuery: query}, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
			r.Header.Set("Content-Type", contentType)
			return r
		}
		want := request()
		if e.multipart {
			want.FormValue("limit") // As most handlers begin.
		} else if want.ParseForm() != nil {
			return
		}
		got := request()
		if parseForm(e, got) != nil {
			return
		}
		require.Equal(t, want.Form, got.Form)
	})
}

func TestRoutesThatWriteOrStreamHaveNoDeadline(t *testing.T) {
	h := limited(t, Options{Timeout: time.Second, QueryTimeout: time.Minute})
	for route, want := range map[string]time.Duration{
		"/series":                   time.Second,
		"/label/:name/values":       time.Second,
		"/read":                     time.Minute + time.Second,
		"/search/metric_names":      time.Second,
		"/an/endpoint/of/tomorrow":  time.Second,
		"/query":                    time.Minute + time.Second,
		"/query_range":              time.Minute + time.Second,
		"/query_cost":               time.Minute + time.Second,
		"/query_range_cost":         time.Minute + time.Second,
		"/query_exemplars":          time.Second,
		"/write":                    0,
		"/otlp/v1/metrics":          0,
		"/notifications":            0,
		"/notifications/live":       0,
		"/status/guard/queries":     0,
		"/admin/tsdb/snapshot":      0,
		"/admin/tsdb/delete_series": 0,
	} {
		var left time.Duration
		var bounds bool
		h.API(route, func(_ http.ResponseWriter, r *http.Request) {
			if d, ok := r.Context().Deadline(); ok {
				left = time.Until(d)
			}
			bounds = reads.FromContext(r.Context()) != nil
		})(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody))
		require.InDelta(t, want.Seconds(), left.Seconds(), 0.5, route)
		require.Equal(t, want > 0, bounds, route)
	}
	// Estimates of costs wait for a place and account for memory as queries do.
	for _, route := range []string{"/query", "/query_cost", "/query_range_cost"} {
		e := h.endpoint("/api/v1", route)
		require.Same(t, h.query, e.pool, route)
		require.Equal(t, int64(querySeriesBytes), e.limits.SeriesBytes, route)
	}
}

func TestOffLeavesHandlersAlone(t *testing.T) {
	h := limited(t, Options{Timeout: 0})
	require.Nil(t, h)
	seen := false
	var given http.ResponseWriter
	rec := httptest.NewRecorder()
	h.API("/series", func(w http.ResponseWriter, r *http.Request) {
		_, seen = r.Context().Deadline()
		given = w
	})(rec, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	require.False(t, seen)
	require.Same(t, rec, given)
}

func TestStreamsThroughCompressionAndFlush(t *testing.T) {
	s := serve(t, limited(t, Options{Timeout: time.Minute}), "/series", httputil.CompressionHandler{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(bytes.Repeat([]byte("0123456789abcdef"), 1<<16))
	})}.ServeHTTP)
	req, err := http.NewRequest(http.MethodGet, s.URL, http.NoBody)
	require.NoError(t, err)
	req.Header.Set("Accept-Encoding", "gzip")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	zr, err := gzip.NewReader(resp.Body)
	require.NoError(t, err)
	n, err := io.Copy(io.Discard, zr)
	require.NoError(t, err)
	require.EqualValues(t, 1<<20, n)
}

// envelopeOf decodes an error.
func envelopeOf(t *testing.T, body string) envelope {
	t.Helper()
	var e envelope
	require.NoError(t, json.Unmarshal([]byte(body), &e))
	if e.Error != "" && !stateOrMistake.MatchString(e.Error) {
		require.Regexp(t, "^[A-Z].{0,119}[:.] ", e.Error, "what to do comes first: Grafana shows two lines")
	}
	return e
}

// stateOrMistake tells errors to which there is no more to do than to wait, or to
// give what is named.
var stateOrMistake = regexp.MustCompile(`^(the server is|an operator stopped|invalid parameter|error parsing|no request with id|the deadline has passed)`)

func TestRequestsBeyondThePoolWaitAndThenGet503WithRetryAfter(t *testing.T) {
	h := limited(t, Options{MetadataConcurrency: 1, QueueTimeout: 50 * time.Millisecond})
	block, entered := make(chan struct{}), make(chan struct{}, 1)
	mux := http.NewServeMux()
	mux.Handle("/series", h.API("/series", func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-block
	}))
	mux.Handle("/labels", h.API("/labels", func(http.ResponseWriter, *http.Request) {}))
	mux.Handle("/rules", h.API("/rules", func(http.ResponseWriter, *http.Request) {}))
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	done := make(chan struct{})
	go func() {
		defer close(done)
		resp, err := http.Get(s.URL + "/series")
		if err == nil {
			resp.Body.Close()
		}
	}()
	<-entered

	resp, body := get(t, s.URL+"/labels")
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	require.Equal(t, "5", resp.Header.Get("Retry-After"))
	e := envelopeOf(t, body)
	require.Equal(t, "unavailable", e.ErrorType)
	require.Contains(t, e.Error, "--guard.metadata-concurrency")
	require.Equal(t, 1.0, testutil.ToFloat64(h.metrics.stopped.WithLabelValues("/api/v1/labels", "queue")))

	resp, _ = get(t, s.URL+"/rules")
	require.Equal(t, http.StatusOK, resp.StatusCode, "rules never wait")

	close(block)
	<-done
	require.Eventually(t, func() bool {
		resp, _ := get(t, s.URL+"/labels")
		return resp.StatusCode == http.StatusOK
	}, time.Minute, time.Millisecond, "the permit is given back")
}

func TestReadThatNeedsMoreThanTheBudgetIsRefusedWith422(t *testing.T) {
	h := limited(t, Options{Budget: reads.NewBudget(8<<20, nil)})
	reserved := make(chan error, 1)
	s := serve(t, h, "/query", func(w http.ResponseWriter, r *http.Request) {
		reserved <- reads.FromContext(r.Context()).Expect(64 << 20)
		http.Error(w, "whatever the handler makes of it", http.StatusInternalServerError)
	})
	resp, body := get(t, s.URL)
	require.Error(t, <-reserved)
	require.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode)
	require.Contains(t, envelopeOf(t, body).Error, "--guard.read-memory-budget=8MiB")
	require.Zero(t, h.opts.Budget.Held())
}

func TestTextThatCostsTooMuchToParseIsRefusedBeforeItIsParsed(t *testing.T) {
	h := limited(t, Options{CheckText: true})
	s := serve(t, h, "/query", func(http.ResponseWriter, *http.Request) { t.Error("the handler was called") })
	for query, want := range map[string]string{
		strings.Repeat("-", 20000) + "x":                "^Split the query, .*: PromQL of 20000 operators, .* exceeds the 10000 allowed",
		`{a=~"` + strings.Repeat("x{1000}", 400) + `"}`: "^Avoid counted repetition .*: a set of regular expressions .* exceeds the 300000 allowed",
	} {
		resp, err := http.PostForm(s.URL, url.Values{"query": {query}})
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode)
		require.Regexp(t, want+` \(--guard.query-text-limits\)$`, envelopeOf(t, string(body)).Error)
	}
}

func TestListShowsWhatRunsAndDeleteStopsIt(t *testing.T) {
	h := limited(t, Options{Timeout: time.Minute, EnableStop: true})
	entered := make(chan struct{})
	router := route.New().WithInstrumentation(h.API)
	router.Get("/query", func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
	})
	h.Register(router)
	s := httptest.NewServer(router)
	t.Cleanup(s.Close)

	type answer struct {
		code int
		body string
	}
	answers := make(chan answer, 1)
	go func() {
		req, _ := http.NewRequest(http.MethodGet, s.URL+"/query?query=up", http.NoBody)
		req.Header.Set("X-Dashboard-Uid", "abc")
		req.Header.Set("User-Agent", "Grafana/13")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			answers <- answer{}
			return
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		answers <- answer{resp.StatusCode, string(body)}
	}()
	<-entered
	_, body := get(t, s.URL+"/status/guard/queries")
	var list struct{ Data []reads.Status }
	require.NoError(t, json.Unmarshal([]byte(body), &list))
	require.Len(t, list.Data, 1)
	read := list.Data[0]
	require.Equal(t, "running", read.State)
	require.Equal(t, "/api/v1/query", read.Endpoint)
	require.Equal(t, []string{"up"}, read.Expressions)
	require.Equal(t, "Grafana/13", read.UserAgent)
	require.Equal(t, map[string]string{"X-Dashboard-Uid": "abc"}, read.Origin)
	require.Equal(t, "127.0.0.1", read.Client)

	del := func(id string) (int, string) {
		req, err := http.NewRequest(http.MethodDelete, s.URL+"/status/guard/queries/"+id, http.NoBody)
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(b)
	}
	code, body := del("99")
	require.Equal(t, http.StatusNotFound, code, body)
	code, body = del("x")
	require.Equal(t, http.StatusBadRequest, code, body)
	code, body = del(strconv.FormatUint(read.ID, 10))
	require.Equal(t, http.StatusOK, code, body)
	require.Contains(t, body, `"ended":true`)
	got := <-answers
	require.Equal(t, http.StatusServiceUnavailable, got.code)
	require.Contains(t, got.body, "an operator stopped this request")

	var top struct{ Data screen.TopReport }
	require.Eventually(t, func() bool {
		_, body := get(t, s.URL+"/status/guard/top?by=bytes&limit=1")
		return json.Unmarshal([]byte(body), &top) == nil && len(top.Data.Queries) == 1
	}, time.Minute, 10*time.Millisecond, "it is counted when it has ended")
	require.Equal(t, screen.TopKey{Endpoint: "/api/v1/query", Dashboard: "abc"}, top.Data.Queries[0].TopKey)
	require.Equal(t, 1, top.Data.Queries[0].Failed)
	response, body := get(t, s.URL+"/status/guard/top?window=1d")
	require.Equal(t, http.StatusBadRequest, response.StatusCode)
	require.Contains(t, body, `unknown window \"1d\": use 5m or 1h`)

	h.opts.EnableStop = false
	code, body = del("1")
	require.Equal(t, http.StatusForbidden, code)
	require.Contains(t, body, "--web.enable-lifecycle")
}

func TestAReadWhoseDeadlinePassesWhileItWaitsForItsTurnMayComeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := limited(t, Options{Timeout: 50 * time.Millisecond, MetadataConcurrency: 1, QueueTimeout: time.Minute})
		entered, end := make(chan struct{}), make(chan struct{})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			h.API("/labels", func(http.ResponseWriter, *http.Request) {
				close(entered)
				<-end
			})(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody))
		}()
		<-entered
		rec := httptest.NewRecorder()
		h.API("/series", waitThen(http.StatusOK))(rec, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
		require.Equal(t, http.StatusServiceUnavailable, rec.Code)
		require.Equal(t, "5", rec.Header().Get("Retry-After"), "it did not run")
		close(end)
		<-ended
		rec = httptest.NewRecorder()
		h.API("/series", waitThen(http.StatusOK))(rec, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
		require.Equal(t, http.StatusServiceUnavailable, rec.Code)
		require.Empty(t, rec.Header().Get("Retry-After"), "it would take as long again")
	})
}

func TestAReadWhoseDeadlinePassesWhileOthersTakeTheProcessorsMayComeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := limited(t, Options{Timeout: 20 * time.Millisecond})
		answers := make(chan string, runtime.GOMAXPROCS(0)+1)
		var entered sync.WaitGroup
		entered.Add(cap(answers))
		series := h.API("/series", func(w http.ResponseWriter, r *http.Request) {
			entered.Done()
			entered.Wait()
			waitThen(http.StatusOK)(w, r)
		})
		for range cap(answers) {
			go func() {
				rec := httptest.NewRecorder()
				series(rec, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
				answers <- rec.Header().Get("Retry-After")
			}()
		}
		require.Equal(t, "5", <-answers)
		for range cap(answers) - 1 {
			<-answers
		}
	})
}

func TestTheServersOwn503sAreAsTheyAre(t *testing.T) {
	rec := httptest.NewRecorder()
	limited(t, Options{Timeout: time.Minute}).API("/query", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "query timed out in expression evaluation", http.StatusServiceUnavailable)
	})(rec, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	require.Equal(t, http.StatusServiceUnavailable, rec.Code)
	require.Empty(t, rec.Header().Get("Retry-After"))
}

func TestAReadThatIsStoppedBetweenItsHeaderAndItsFirstByteIsToldWhy(t *testing.T) {
	const text = "Try again: memory"
	for name, gzip := range map[string]bool{"compressed": true, "plain": false} {
		t.Run(name, func(t *testing.T) {
			h := limited(t, Options{Timeout: time.Minute})
			handler := httputil.CompressionHandler{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Total", "1")
				w.WriteHeader(http.StatusOK)
				if gzip { // It is held back.
					_, _ = io.WriteString(w, "the beginning")
				}
				h.table.StopAll(&reads.Stop{Reason: reads.ReasonMemory, Text: text}, 0)
			})}
			s := serve(t, h, "/query", handler.ServeHTTP)
			req, err := http.NewRequest(http.MethodGet, s.URL, http.NoBody)
			require.NoError(t, err)
			if gzip {
				req.Header.Set("Accept-Encoding", "gzip")
			}
			resp, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
			require.Equal(t, "5", resp.Header.Get("Retry-After"))
			require.Equal(t, text, envelopeOf(t, string(body)).Error)
		})
	}
}

func TestServerThatIsNotReadySaysSoInTheEnvelope(t *testing.T) {
	h := limited(t, Options{Timeout: time.Minute, Replay: func() string { return "it replays segment 3 of 9" }})
	for stopping, want := range map[string]string{"false": "it replays segment 3 of 9", "true": "the server is shutting down"} {
		s := serve(t, h, "/series", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Prometheus-Stopping", stopping)
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, "Service Unavailable")
		})
		resp, body := get(t, s.URL)
		require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		require.Equal(t, stopping, resp.Header.Get("X-Prometheus-Stopping"))
		require.Equal(t, "5", resp.Header.Get("Retry-After"))
		e := envelopeOf(t, body)
		require.Equal(t, "unavailable", e.ErrorType)
		require.Contains(t, e.Error, want)
	}
}

func TestShutdownStopsEveryRead(t *testing.T) {
	h := limited(t, Options{Timeout: time.Minute})
	entered, ended := make(chan struct{}), make(chan bool, 1)
	var returned atomic.Bool
	s := serve(t, h, "/series", func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		time.Sleep(10 * time.Millisecond)
		returned.Store(true)
	})
	go func() {
		<-entered
		h.Stop()
		ended <- returned.Load()
	}()
	resp, body := get(t, s.URL)
	require.True(t, <-ended, "the server ends when the client knows")
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	require.Contains(t, body, "shutting down")
	require.Equal(t, "true", resp.Header.Get("X-Prometheus-Stopping"), "so that a proxy asks another server")
	require.Equal(t, "5", resp.Header.Get("Retry-After"))
	(*Handlers)(nil).Stop()
}
