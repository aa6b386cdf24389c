// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fleet stands for servers: what each answers, by path.
type fleet struct {
	mu      sync.Mutex
	servers map[string]map[string]string // host, path below the root: body, "503 " in front for another status
	asked   map[string]int
}

var errRefused = errors.New("connection refused")

// RoundTrip implements http.RoundTripper.
func (f *fleet) RoundTrip(req *http.Request) (*http.Response, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked[req.URL.Host+req.URL.Path]++
	answers, ok := f.servers[req.URL.Host]
	if !ok {
		return nil, errRefused
	}
	body, ok := answers[req.URL.Path]
	code := http.StatusOK
	if !ok {
		code, body = http.StatusNotFound, "404 page not found"
	} else if status, rest, ok := strings.Cut(body, " "); ok {
		if n, err := strconv.Atoi(status); err == nil {
			code, body = n, rest
		}
	}
	return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader(body)), Request: req}, nil
}

func (f *fleet) serve(host string, answers map[string]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if answers == nil {
		delete(f.servers, host)
		return
	}
	f.servers[host] = answers
}

func (f *fleet) count(path string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[path]
}

func success(data string) string { return `{"status":"success","data":` + data + `}` }

// healthy is what a ready Prometheus answers that started at a minute past noon.
func healthy(startMinute int) map[string]string {
	return map[string]string{
		"/-/ready":                   "Prometheus Server is Ready.",
		"/api/v1/status/buildinfo":   success(`{"version":"3.16.0","revision":"abc","goVersion":"go1.26"}`),
		"/api/v1/status/runtimeinfo": success(fmt.Sprintf(`{"startTime":"1999-11-21T12:%02d:00Z"}`, startMinute)),
		"/api/v1/status/flags":       success(`{"query.lookback-delta":"5m","query.timeout":"2m","query.max-samples":"50000000"}`),
		"/api/v1/query":              success(`{"resultType":"vector","result":[{"metric":{},"value":[0,"60"]}]}`),
	}
}

func with(base map[string]string, pairs ...string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, base)
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = pairs[i+1]
	}
	return out
}

type testPool struct {
	*Pool
	*fleet

	reg  *prometheus.Registry
	logs *bytes.Buffer
}

func newTestPool(t *testing.T, kind Kind, mode ProbeMode, roots ...string) *testPool {
	t.Helper()
	tp := &testPool{
		fleet: &fleet{servers: map[string]map[string]string{}, asked: map[string]int{}},
		reg:   prometheus.NewRegistry(), logs: &bytes.Buffer{},
	}
	o := Options{Kind: kind, Probe: mode, Transport: tp.fleet, StaleAfter: 2 * time.Minute, Registerer: tp.reg, Logger: slog.New(slog.NewTextHandler(tp.logs, nil))}
	for _, root := range roots {
		u, err := url.Parse(root)
		require.NoError(t, err)
		o.URLs = append(o.URLs, u)
	}
	tp.Pool = NewPool(o)
	return tp
}

func (tp *testPool) chosen(t *testing.T) string {
	t.Helper()
	s, err := tp.Pick(false)
	if err != nil {
		unavailable := &Unavailable{}
		require.ErrorAs(t, err, &unavailable)
		return err.Error()
	}
	return s.url.Host
}

// run watches the servers until the end of the test.
func (tp *testPool) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- tp.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
}

func TestReadsStayWithTheServerThatRunsLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPool(t, KindPrometheus, ProbeRequire, "http://a", "http://b")
		p.serve("a", healthy(30))
		p.serve("b", healthy(10))
		require.NoError(t, p.Check(t.Context()))
		require.Equal(t, "b", p.chosen(t), "it has run longer, so it has fewer gaps")
		p.run(t)
		time.Sleep(time.Minute)
		require.Equal(t, "b", p.chosen(t))

		p.serve("b", nil)
		time.Sleep(lookEvery + time.Second)
		require.Equal(t, "a", p.chosen(t))
		p.serve("b", with(healthy(40), "/-/ready", "503 Service Unavailable", "/api/v1/status/walreplay", success(`{"min":10,"max":20,"current":15}`)))
		time.Sleep(time.Minute)
		require.Equal(t, "a", p.chosen(t), "the other one replays")
		p.serve("b", healthy(40))
		time.Sleep(5 * time.Minute)
		require.Equal(t, "a", p.chosen(t), "the other one was restarted, so its data have a gap")
		synctest.Wait()
		require.InDelta(t, 2, testutil.ToFloat64(p.metrics.switches), 0, "to b at the start, and to a once")
		for _, line := range []string{
			`msg="Upstream server does not answer" server=http://b state=away detail="connection refused"`,
			`msg="Upstream server replays its write-ahead log" server=http://b state=replaying detail="50 %"`,
			`msg="Upstream server is ready again" server=http://b`,
			`msg="Reads go to another upstream server" from=http://b to=http://a`,
		} {
			require.Equal(t, 1, strings.Count(p.logs.String(), line), "%s in\n%s", line, p.logs)
		}
	})
}

func TestServerThatComesAndGoesIsNotGoneBackTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPool(t, KindPrometheus, ProbeRequire, "http://a", "http://b")
		p.serve("a", healthy(1))
		p.serve("b", healthy(2))
		require.NoError(t, p.Check(t.Context()))
		p.run(t)
		for range 5 {
			p.serve("a", nil)
			time.Sleep(lookEvery + time.Second)
			require.Equal(t, "b", p.chosen(t))
			p.serve("a", healthy(1))
			time.Sleep(settleAfter / 2)
			require.Equal(t, "b", p.chosen(t))
		}
		time.Sleep(time.Hour)
		require.Equal(t, "b", p.chosen(t), "nobody knows what the other one missed")
	})
}

func TestWithoutAReadyServerEachSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPool(t, KindPrometheus, ProbeRequire, "http://secret-name-a", "http://secret-name-b")
		require.ErrorIs(t, p.Check(t.Context()), errRefused)
		require.Equal(t, "no upstream server is ready: upstream 1 does not answer, upstream 2 does not answer", p.chosen(t))
		p.serve("secret-name-b", map[string]string{"/-/ready": "503 ", "/api/v1/status/walreplay": success(`{"min":0,"max":0,"current":0,"percent":45.4}`)})
		require.NoError(t, p.Check(t.Context()), "one answers")
		require.Equal(t, "no upstream server is ready: upstream 1 does not answer, upstream 2 replays its write-ahead log (45 %)", p.chosen(t))
		s, err := p.Pick(true)
		require.NoError(t, err)
		require.Equal(t, "http://secret-name-b", s.name, "it can say how its replay goes")
		p.Failed(s, NotReady)
		require.Equal(t, 1.0, testutil.ToFloat64(p.metrics.state.WithLabelValues("http://secret-name-b", "replaying")))
		require.Equal(t, 1.0, testutil.ToFloat64(p.metrics.up))
	})
}

func TestWhatARequestFindsOutCountsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPool(t, KindPrometheus, ProbeRequire, "http://a", "http://b")
		p.serve("a", healthy(1))
		p.serve("b", healthy(2))
		require.NoError(t, p.Check(t.Context()))
		p.run(t)
		s, err := p.Pick(false)
		require.NoError(t, err)
		p.serve("a", nil)
		p.Failed(s, Away)
		require.Equal(t, "b", p.chosen(t))
		synctest.Wait()
		require.Nil(t, p.Other(p.Pool.servers[1]))
		p.serve("a", healthy(1))
		p.Suspect(s)
		synctest.Wait() // It is looked at again without delay.
		require.NotNil(t, p.Other(p.Pool.servers[1]))
		require.Equal(t, "b", p.chosen(t))
	})
}

func TestOneServerIsAlwaysReadFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPool(t, KindPrometheus, ProbeRequire, "http://a/prom/")
		require.Error(t, p.Check(t.Context()))
		require.Equal(t, "a", p.chosen(t))
		require.True(t, p.Gone())
		p.Failed(p.Pool.servers[0], NotReady)
		require.Equal(t, "a", p.chosen(t))
		p.serve("a", map[string]string{"/prom/-/ready": "503 "})
		require.NoError(t, p.Check(t.Context()), "any status will do")
		require.False(t, p.Gone())
		require.Positive(t, p.count("a/prom/-/ready"))
	})
}

func TestPathOfTheServerGoesBeforeEveryPath(t *testing.T) {
	for root, want := range map[string]string{
		"http://h":                         "http://h/api/v1/label/a%3Fb/values",
		"http://h/":                        "http://h/api/v1/label/a%3Fb/values",
		"http://h/select/0/prometheus/":    "http://h/select/0/prometheus/api/v1/label/a%3Fb/values",
		"http://h/select/0%3A1/prometheus": "http://h/select/0%3A1/prometheus/api/v1/label/a%3Fb/values",
	} {
		u, err := url.Parse(root)
		require.NoError(t, err)
		got := &url.URL{Path: "/api/v1/label/a?b/values", RawPath: "/api/v1/label/a%3Fb/values"}
		newServer(u, 1).Locate(got)
		require.Equal(t, want, got.String())
	}
}
