// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package promapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ample = Budget{Requests: 50, Total: time.Minute, Timeout: 10 * time.Second, Series: 2, Bytes: 1 << 20}

// transport stands for a server.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func respond(code int, body string, header ...string) *http.Response {
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{
		StatusCode: code, Status: fmt.Sprintf("%d %s", code, http.StatusText(code)), Header: h, Body: io.NopCloser(strings.NewReader(body)),
	}
}

func client(t testing.TB, b Budget, f transport) *Client {
	t.Helper()
	c, err := New("http://prometheus:9090/", f, b)
	require.NoError(t, err)
	return c
}

// always answers everything alike.
func always(code int, body string, header ...string) transport {
	return func(*http.Request) (*http.Response, error) { return respond(code, body, header...), nil }
}

const success = `{"status":"success","data":{"yaml":"a: b"}}`

func TestURLThatIsNoRootIsRefusedWithoutItsPassword(t *testing.T) {
	for text, want := range map[string]string{
		"localhost:9090":                       "must be one such as http://127.0.0.1:9090",
		"ftp://u:secret@x":                     "must be one such as",
		"http://u:secret@x:port":               "must be one such as",
		"http://":                              "must be one such as",
		"http://u:secret@x/api/v1/":            "must not include /api/v1",
		"http://u:secret@x/prometheus?a=b":     "remove what follows",
		"http://u:secret@x/prometheus#graph":   "remove what follows",
		"http://u:secret@x/prometheus/api/v1":  "must not include /api/v1",
		"http://u:secret@x/prometheus/graph?x": "remove what follows",
	} {
		_, err := New(text, nil, ample)
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), "secret")
	}
	c, err := New("http://u:secret@x/prometheus/", nil, ample)
	require.NoError(t, err)
	require.Equal(t, "http://u:xxxxx@x/prometheus", c.String())
}

func TestBudgetWithoutAnyOfItsPartsIsRefused(t *testing.T) {
	for _, spend := range []func(*Budget){
		func(b *Budget) { b.Requests = 0 }, func(b *Budget) { b.Total = 0 }, func(b *Budget) { b.Timeout = -1 },
		func(b *Budget) { b.Series = 0 }, func(b *Budget) { b.Bytes = 0 },
	} {
		b := ample
		spend(&b)
		_, err := New("http://x", nil, b)
		require.ErrorContains(t, err, "must be above 0")
	}
}

func TestServerGetsAPauseAsLongAsItWorked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		c := client(t, ample, func(*http.Request) (*http.Response, error) {
			time.Sleep(3 * time.Second)
			return respond(http.StatusOK, success), nil
		})
		for range 2 {
			text, err := c.Config(context.Background())
			require.NoError(t, err)
			require.Equal(t, "a: b", text)
		}
		require.Equal(t, 9*time.Second, time.Since(began), "with one pause, and none after the last")
		require.Equal(t, 2, c.Requests())
	})
}

func TestNoMoreIsAskedThanTheBudgetHas(t *testing.T) {
	seconds := func(n int) transport {
		return func(*http.Request) (*http.Response, error) {
			time.Sleep(time.Duration(n) * time.Second)
			return respond(http.StatusOK, success), nil
		}
	}
	for want, tc := range map[string]struct {
		budget func(*Budget)
		server transport
		asked  int
	}{
		"3 requests have been made (--max-queries)":                    {func(b *Budget) { b.Requests = 3 }, seconds(0), 3},
		"1m0s have passed (--max-time)":                                {func(*Budget) {}, seconds(8), 4},
		"the answers are longer than 100 bytes together (--max-bytes)": {func(b *Budget) { b.Bytes = 100 }, seconds(0), 3},
		"the server did not answer 3 times in a row":                   {func(*Budget) {}, always(http.StatusInternalServerError, "broken"), 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := ample
			tc.budget(&b)
			c := client(t, b, tc.server)
			var err error
			for range 9 {
				if _, err = c.Config(context.Background()); errors.Is(err, ErrBudget) {
					break
				}
			}
			require.ErrorIs(t, err, ErrBudget)
			require.ErrorContains(t, err, want)
			require.Equal(t, tc.asked, c.Requests(), want)
			_, err = c.Config(context.Background())
			require.ErrorIs(t, err, ErrBudget, "once and for all")
		})
	}
}

func TestRequestEndsWithItsTimeAndWithTheBudgets(t *testing.T) {
	hangs := transport(func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	})
	synctest.Test(t, func(t *testing.T) {
		b := ample
		b.Total = 12 * time.Second
		c := client(t, b, hangs)
		began := time.Now()
		_, err := c.Query(context.Background(), "up")
		require.EqualError(t, err, "http://prometheus:9090/api/v1/query: no answer within 15s (--query-timeout)")
		require.Equal(t, 15*time.Second, time.Since(began), "5 s more than the server is told")
		_, err = c.Query(context.Background(), "up")
		require.ErrorIs(t, err, ErrBudget)

		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err = client(t, ample, hangs).Query(ctx, "up")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotContains(t, err.Error(), "query-timeout", "the caller left")
	})
}

func TestQuestionThatIsPutOffIsAskedAgain(t *testing.T) {
	refused := errors.New("connection refused")
	synctest.Test(t, func(t *testing.T) {
		for name, tc := range map[string]struct {
			first *http.Response
			err   error
			wait  time.Duration
			again bool
		}{
			"too many requests":      {respond(http.StatusTooManyRequests, ""), nil, time.Second, true},
			"come again in 7 s":      {respond(http.StatusServiceUnavailable, `{"status":"error","error":"full"}`, "Retry-After", "7"), nil, 7 * time.Second, true},
			"come again in a year":   {respond(http.StatusServiceUnavailable, "", "Retry-After", "31536000"), nil, maxWait, true},
			"a proxy without server": {respond(http.StatusBadGateway, "<html>"), nil, time.Second, true},
			"restarting":             {nil, refused, time.Second, true},
			"query timed out":        {respond(http.StatusServiceUnavailable, `{"status":"error","error":"query timed out"}`), nil, 0, false},
			"gateway timed out":      {respond(http.StatusGatewayTimeout, "<html>"), nil, 0, false},
			"query is wrong":         {respond(http.StatusBadRequest, `{"status":"error","error":"parse error"}`), nil, 0, false},
		} {
			asked := 0
			c := client(t, ample, func(*http.Request) (*http.Response, error) {
				asked++
				if asked == 2 { // One that has not answered before is not there.
					return tc.first, tc.err
				}
				return respond(http.StatusOK, success), nil
			})
			_, err := c.Config(context.Background())
			require.NoError(t, err)
			began := time.Now()
			_, err = c.Config(context.Background())
			require.Equal(t, tc.again, err == nil, "%s: %v", name, err)
			require.Equal(t, tc.wait, time.Since(began), name)
		}
	})
}

func TestNothingStaysOfAnAnswerThatWasPutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := []string{
			`{"status":"error","error":"full","warnings":["results truncated"],"data":{"a":[{"type":"counter"}]}}`,
			`{"status":"success","data":{"b":[{"type":"gauge"}]}}`,
		}
		asked := 0
		c := client(t, ample, func(*http.Request) (*http.Response, error) {
			asked++
			return respond([]int{http.StatusTooManyRequests, http.StatusOK}[asked-1], answers[asked-1]), nil
		})
		types, err := c.Types(context.Background())
		require.NoError(t, err)
		require.Equal(t, map[string]model.MetricType{"b": model.MetricTypeGauge}, types)
		require.Empty(t, c.Warnings())
	})
}

func TestErrorNamesTheURLThatWasAsked(t *testing.T) {
	for text, want := range map[string]string{
		"http://u:secret@x":        "http://u:xxxxx@x/api/v1/status/config: 404",
		"http://x/a//b/../c":       "http://x/a/c/api/v1/status/config: 404",
		"http://x/" + long + "/..": "http://x/api/v1/status/config: 404",
		"http://x/ä b":             "http://x/%C3%A4%20b/api/v1/status/config: 404",
	} {
		c, err := New(text, always(http.StatusNotFound, ""), ample)
		require.NoError(t, err)
		_, err = c.Config(context.Background())
		require.ErrorContains(t, err, want)
	}
}

var long = strings.Repeat("long", 20)

func TestServerThatIsNotThereIsAskedOnce(t *testing.T) {
	asked := 0
	c := client(t, ample, func(*http.Request) (*http.Response, error) {
		asked++
		return nil, errors.New("dial tcp: connection refused")
	})
	_, err := c.Config(context.Background())
	require.EqualError(t, err, "http://prometheus:9090/api/v1/status/config: dial tcp: connection refused")
	require.Equal(t, 1, asked)
}

func TestServerThatPutsOffEveryQuestionIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, ample, always(http.StatusServiceUnavailable, ""))
		var err error
		for range maxFailures + 1 {
			_, err = c.Config(context.Background())
		}
		require.ErrorIs(t, err, ErrBudget)
		require.Equal(t, maxFailures*maxAttempts, c.Requests())
	})
}

func TestWhatIsNoAnswerSaysWhatItIsAndWhatToDo(t *testing.T) {
	for _, tc := range []struct {
		server transport
		want   string
	}{
		{always(200, "<html>log in"), `200 OK, and a web page is not an answer of Prometheus's API: is the URL the root of the server`},
		{always(404, "404 page not found"), `404 Not Found, and no answer of Prometheus's API: is the URL the root of the server`},
		{always(401, "Unauthorized"), `401 Unauthorized (credentials go into --prometheus.http-config.file)`},
		{always(403, `{"status":"error","error":"no tenant"}`), `403 Forbidden: no tenant (credentials go into`},
		{always(403, `{"status":"error","error":"use --web.enable-lifecycle"}`), `403 Forbidden: use --web.enable-lifecycle`},
		{always(302, "", "Location", "https://login/?x"), `302 Found: it redirects to "https://login/?x", which is not followed`},
		{always(400, "Client sent an HTTP request to an HTTPS server.\nx"), `400 Bad Request: it speaks TLS: use https://`},
		{always(422, `{"status":"error","error":"limit selectivity: no"}`), `422 Unprocessable Entity: limit selectivity: no`},
		{always(200, ""), `200 OK, and no answer of Prometheus's API: unexpected end of JSON input`},
		{always(200, `{}`), `200 OK, and no answer of Prometheus's API`},
		{always(200, `{"status":"success"}`), `200 OK, and no answer of Prometheus's API`},
		{always(200, `{"status":"success","data":null}`), `200 OK, and no answer of Prometheus's API`},
		{always(200, `null`), `200 OK, and no answer of Prometheus's API`},
		{always(200, `{"status":"success","data":[]}`), "200 OK, and no answer of Prometheus's API: a JSON array is at byte 28 where another value should be"},
		{always(500, `{"status":"success","data":{}}`), "500 Internal Server Error, and no answer of Prometheus's API"},
	} {
		_, err := client(t, ample, tc.server).Config(context.Background())
		require.ErrorContains(t, err, "http://prometheus:9090/api/v1/status/config: "+tc.want)
		require.NotContains(t, err.Error(), "\n")
	}
}

func TestAnswerThatBreaksOffIsAnError(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, success[:20])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}))
	defer srv.Close()
	c, err := New(srv.URL, srv.Client().Transport, ample)
	require.NoError(t, err)
	_, err = c.Config(context.Background())
	require.ErrorContains(t, err, "/api/v1/status/config: the answer breaks off after 20 bytes: unexpected EOF")
}

func TestCertificateThatNobodyKnowsNamesTheFileThatHelps(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	srv.StartTLS()
	defer srv.Close()
	c, err := New(srv.URL, &http.Transport{}, ample)
	require.NoError(t, err)
	_, err = c.Config(context.Background())
	require.ErrorContains(t, err, "unknown authority (name who signed it in --prometheus.http-config.file)")
}
