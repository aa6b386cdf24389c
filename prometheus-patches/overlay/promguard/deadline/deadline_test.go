// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package deadline

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
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/util/httputil"
)

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
		h := New(20*time.Millisecond, time.Minute, prometheus.NewRegistry())
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
		require.Equal(t, 1.0, testutil.ToFloat64(h.exceeded.WithLabelValues("/api/v1/series")))
		require.Zero(t, testutil.ToFloat64(h.inFlight.WithLabelValues("/api/v1/series")))
	}
}

func TestDeadlineOnFederateIsPlainText(t *testing.T) {
	s := serve(t, New(20*time.Millisecond, 0, nil), "/federate", waitThen(http.StatusInternalServerError))
	resp, body := get(t, s.URL+"/federate")
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	require.Equal(t, "text/plain; charset=utf-8", resp.Header.Get("Content-Type"))
	require.True(t, strings.HasPrefix(body, "GET /federate was stopped at its deadline of 20ms"), body)
}

func TestDeadlineReplacesACompressedAnswerByAPlainOne(t *testing.T) {
	slow := httputil.CompressionHandler{Handler: waitThen(http.StatusUnprocessableEntity)}
	s := serve(t, New(20*time.Millisecond, 0, nil), "/labels", slow.ServeHTTP)
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

func TestDeadlineAfterTheFirstByteBreaksTheConnection(t *testing.T) {
	h := New(500*time.Millisecond, 0, nil)
	s := serve(t, h, "/series", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"status":"success","data":[`)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		_, err := io.WriteString(w, `]}`)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
	resp, err := http.Get(s.URL)
	require.NoError(t, err)
	defer resp.Body.Close()
	_, err = io.ReadAll(resp.Body)
	require.Error(t, err, "an incomplete answer must not look complete")
	require.Equal(t, 1.0, testutil.ToFloat64(h.aborted.WithLabelValues("/api/v1/series")))
}

func TestDeadlineEndsAWriteThatWaitsForASlowClient(t *testing.T) {
	returned := make(chan error, 1)
	// Made before the deadline starts: it takes a while.
	large := make([]byte, 256<<20)
	s := serve(t, New(500*time.Millisecond, 0, nil), "/series", func(w http.ResponseWriter, _ *http.Request) {
		_, err := w.Write(large)
		returned <- err
	})
	resp, err := http.Get(s.URL)
	require.NoError(t, err)
	defer resp.Body.Close()
	// The client reads nothing.
	select {
	case err := <-returned:
		require.Error(t, err)
	case <-time.After(10 * time.Second):
		t.Fatal("the handler still waits for a client that does not read")
	}
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
	both(t, New(100*time.Millisecond, 0, nil), late, func(t *testing.T, s *httptest.Server) {
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
		both(t, New(50*time.Millisecond, 0, nil), func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			func(t *testing.T, s *httptest.Server) {
				resp, err := s.Client().Get(s.URL)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
			})
	})
	t.Run("after its first batch breaks the connection", func(t *testing.T) {
		h := New(500*time.Millisecond, 0, nil)
		both(t, h, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "batch\n")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, func(t *testing.T, s *httptest.Server) {
			resp, err := s.Client().Get(s.URL)
			require.NoError(t, err)
			_, err = io.ReadAll(resp.Body)
			require.Error(t, err, "an incomplete answer must not look complete")
			require.NoError(t, resp.Body.Close())
		})
		require.Equal(t, 2.0, testutil.ToFloat64(h.aborted.WithLabelValues("/api/v1/labels")))
	})
}

func TestClientThatLeavesEndsTheContextWithoutADeadlineError(t *testing.T) {
	h := New(time.Minute, 0, nil)
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
	require.Zero(t, testutil.ToFloat64(h.exceeded.WithLabelValues("/api/v1/series")))
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
			handler := New(time.Minute, 0, nil).API("/series", func(_ http.ResponseWriter, r *http.Request) {
				d, _ := r.Context().Deadline()
				left = time.Until(d)
				require.NoError(t, r.ParseForm())
				seen = r.Form.Get("match[]")
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

func TestHandlerSeesTheBodyAsItWasSent(t *testing.T) {
	large := "match[]=" + strings.Repeat("x", maxForm+100)
	for _, body := range []string{"", "a=%zz&timeout=1s", "match[]=up;timeout=1", large} {
		handler := New(time.Minute, 0, nil).API("/series", func(w http.ResponseWriter, r *http.Request) {
			b, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			require.Equal(t, body, string(b))
		})
		req := httptest.NewRequest(http.MethodPost, "/api/v1/series", strings.NewReader(body))
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		handler(httptest.NewRecorder(), req)
	}
}

func FuzzTimeoutIsWhatTheHandlerSees(f *testing.F) {
	f.Add("timeout=1", "timeout=2")
	f.Add("timeout", "timeout=&timeout=2")
	f.Add("a=%zz&timeout=3", "x;timeout=1&timeout=4")
	f.Fuzz(func(t *testing.T, query, form string) {
		target := &url.URL{Path: "/", RawQuery: query}
		if len(form) >= maxForm {
			return
		}
		request := func() *http.Request {
			r := &http.Request{Method: http.MethodPost, URL: target, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(form))}
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			return r
		}
		require.Equal(t, request().FormValue("timeout"), timeoutParam(request()))
	})
}

func TestRoutesThatWriteOrStreamHaveNoDeadline(t *testing.T) {
	h := New(time.Second, time.Minute, nil)
	for route, want := range map[string]time.Duration{
		"/series":                   time.Second,
		"/label/:name/values":       time.Second,
		"/read":                     time.Second,
		"/search/metric_names":      time.Second,
		"/an/endpoint/of/tomorrow":  time.Second,
		"/query":                    time.Minute + time.Second,
		"/query_range":              time.Minute + time.Second,
		"/query_exemplars":          time.Second,
		"/write":                    0,
		"/otlp/v1/metrics":          0,
		"/notifications":            0,
		"/notifications/live":       0,
		"/admin/tsdb/snapshot":      0,
		"/admin/tsdb/delete_series": 0,
	} {
		var left time.Duration
		var bounds bool
		h.API(route, func(_ http.ResponseWriter, r *http.Request) {
			if d, ok := r.Context().Deadline(); ok {
				left = time.Until(d)
			}
			bounds = Bounds(r.Context())
		})(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody))
		require.InDelta(t, want.Seconds(), left.Seconds(), 0.5, route)
		require.Equal(t, want > 0, bounds, route)
	}
}

func TestOffLeavesHandlersAlone(t *testing.T) {
	h := New(0, time.Minute, nil)
	require.Nil(t, h)
	seen := false
	h.API("/series", func(w http.ResponseWriter, r *http.Request) {
		_, seen = r.Context().Deadline()
		require.IsType(t, &httptest.ResponseRecorder{}, w)
	})(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	require.False(t, seen)
}

func TestStreamsThroughCompressionAndFlush(t *testing.T) {
	s := serve(t, New(time.Minute, 0, nil), "/series", httputil.CompressionHandler{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
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
