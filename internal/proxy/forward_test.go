// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/promslog"
	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/proxy/canonical"
	"github.com/promguard/promguard/internal/proxy/identity"
	"github.com/promguard/promguard/internal/proxy/querylog"
	"github.com/promguard/promguard/internal/querylimit"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestDeadlineOfTheClassOrOfTheRequestIsAnsweredWith503(t *testing.T) {
	for _, tc := range []struct {
		target string
		after  time.Duration
		told   string
	}{
		{"/api/v1/query?query=up", 2 * time.Minute, "limits.deadline.query"},
		{"/api/v1/labels", 30 * time.Second, "limits.deadline.metadata"},
		{"/api/v1/rules", 30 * time.Second, "limits.deadline.status"},
		{"/api/v1/query?query=up&timeout=5", 5 * time.Second, "own timeout"},
		{"/api/v1/series?match[]=up&timeout=1h", 30 * time.Second, "limits.deadline.metadata"},
	} {
		t.Run(tc.target, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				upstream, err := ParseUpstream("http://upstream.invalid")
				require.NoError(t, err)
				p := New(Options{
					Upstream: upstream, Policy: newPolicy(t, nil), Registerer: prometheus.NewRegistry(), Logger: promslog.NewNopLogger(),
					Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
						<-r.Context().Done()
						return nil, r.Context().Err()
					}),
				})
				// A Done channel, as every request of a server has.
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				rec, start := httptest.NewRecorder(), time.Now()
				p.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, tc.target, nil).WithContext(ctx))
				require.Equal(t, tc.after, time.Since(start))
				require.Equal(t, http.StatusServiceUnavailable, rec.Code)
				requireEnvelope(t, answer{rec.Code, rec.Header(), rec.Body.String()}, typeTimeout, "Limit deadline", tc.after.String(), tc.told)
				require.Empty(t, rec.Header().Get("Retry-After"), "the same again would take as long again")
			})
		})
	}
}

func TestDeadlineAfterTheHeadersAbortsTheConnection(t *testing.T) {
	upstream := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `{"status":"success","data":`+strings.Repeat(" ", heldBack))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	g := newProxy(t, upstream.URL, func(o *querylimit.Options) { o.Deadlines[querylimit.ClassMetadata] = 2 * time.Minute })
	res, asked := g.begun(t, "/api/v1/labels?match[]=up", 100*time.Millisecond)
	defer res.Body.Close()
	_, err := io.ReadAll(res.Body)
	require.Error(t, err, "a short answer must not look like a whole one")
	require.Eventually(t, func() bool {
		return g.value(t, "promguard_upstream_errors_total", reasonDeadline) == float64(asked) &&
			g.value(t, "promguard_requests_in_flight", "metadata") == 0
	}, time.Minute, time.Millisecond)
}

func TestAnswerThatBreaksBehindIsBrokenInFront(t *testing.T) {
	for _, length := range []string{"", "100000"} {
		upstream := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
			if length != "" {
				w.Header().Set("Content-Length", length)
			}
			io.WriteString(w, strings.Repeat("{", heldBack+1))
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		})
		g := newProxy(t, upstream.URL, nil)
		res, err := g.Client().Get(g.URL + "/api/v1/labels")
		if err == nil { // Whether the headers were out already is a matter of buffers.
			_, err = io.ReadAll(res.Body)
			res.Body.Close()
		}
		require.Error(t, err)
		require.Eventually(t, func() bool { return g.value(t, "promguard_upstream_errors_total", reasonTruncated) == 1 }, time.Minute, time.Millisecond)
	}
}

func TestAnswerThatBreaksAtItsBeginningIsAnError(t *testing.T) {
	for _, sent := range []int{0, 1, 1000, heldBack - 1} {
		for _, length := range []string{"", strconv.Itoa(heldBack)} {
			upstream := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
				if length != "" {
					w.Header().Set("Content-Length", length)
				}
				io.WriteString(w, strings.Repeat("{", sent))
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			})
			g := newProxy(t, upstream.URL, nil)
			a := g.get(t, "/api/v1/query?query=up")
			require.Equal(t, http.StatusServiceUnavailable, a.code, "after %d bytes", sent)
			requireEnvelope(t, a, typeUnavailable, "it closed the connection")
			require.Equal(t, "5", a.header.Get("Retry-After"))
			require.Equal(t, 1.0, g.value(t, "promguard_upstream_errors_total", reasonUnreachable))
		}
	}
}

func TestClientThatLeavesStopsTheWorkBehind(t *testing.T) {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		for _, headersSent := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s headers sent %t", method, headersSent), func(t *testing.T) {
				started, stopped := make(chan struct{}), make(chan struct{})
				upstream := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
					_ = r.ParseForm()
					if headersSent {
						io.WriteString(w, "{")
						w.(http.Flusher).Flush()
					}
					close(started)
					<-r.Context().Done()
					close(stopped)
				})
				g := newProxy(t, upstream.URL, nil)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				req := newRequest(t, method, g.URL, "query", "query=up").WithContext(ctx)
				done := make(chan struct{})
				go func() {
					defer close(done)
					if res, err := g.Client().Do(req); err == nil {
						_, _ = io.Copy(io.Discard, res.Body)
						res.Body.Close()
					}
				}()
				<-started
				cancel()
				select {
				case <-stopped: // Long before the deadline of two minutes.
				case <-time.After(time.Minute):
					t.Fatal("the upstream server goes on working for nobody")
				}
				<-done
				require.Eventually(t, func() bool { return g.value(t, "promguard_client_gone_total", "query") == 1 }, time.Minute, time.Millisecond)
				if !headersSent {
					require.Equal(t, 1.0, g.value(t, "promguard_requests_total", "query", "499"))
				}
				require.Zero(t, g.value(t, "promguard_upstream_errors_total", reasonUnreachable), "the upstream server is not to blame")
			})
		}
	}
}

func TestClientThatStopsReadingIsDisconnected(t *testing.T) {
	gone := make(chan struct{})
	upstream := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		defer close(gone)
		chunk := make([]byte, 64<<10)
		for r.Context().Err() == nil {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	g := newProxy(t, upstream.URL, nil, func(o *Options) { o.StallTimeout = 100 * time.Millisecond })
	conn, err := net.Dial("tcp", g.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, rawGet("/api/v1/labels"))
	require.NoError(t, err)
	select {
	case <-gone:
	case <-time.After(time.Minute):
		t.Fatal("a client that does not read holds the request")
	}
}

func TestSlowBodyIsCutOff(t *testing.T) {
	upstream := newUpstream(t, func(http.ResponseWriter, *http.Request) { t.Error("reached the upstream server") })
	g := newProxy(t, upstream.URL, nil, func(o *Options) { o.ReadTimeout = 50 * time.Millisecond })
	a := raw(t, g, "POST /api/v1/query HTTP/1.1\r\nHost: x\r\nContent-Type: "+canonical.FormType+"\r\nContent-Length: 10\r\n\r\nq")
	require.Equal(t, http.StatusBadRequest, a.code)
	requireEnvelope(t, a, typeBadData, "reading the body")
}

// endless is a body of n bytes that costs no memory.
type endless struct{ n int64 }

func (e *endless) Read(p []byte) (int, error) {
	if e.n == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), e.n)
	e.n -= n
	return int(n), nil
}

func TestLargeAnswerIsStreamedInConstantMemory(t *testing.T) {
	const size, allowed = 256 << 20, 8 << 20
	for name, contentLength := range map[string]bool{"with length": true, "chunked": false} {
		t.Run(name, func(t *testing.T) {
			upstream := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
				if contentLength {
					w.Header().Set("Content-Length", strconv.Itoa(size))
				}
				_, _ = io.CopyBuffer(struct{ io.Writer }{w}, &endless{size}, make([]byte, 32<<10))
			})
			g := newProxy(t, upstream.URL, nil)
			res, err := g.Client().Get(g.URL + "/api/v1/labels")
			require.NoError(t, err)
			defer res.Body.Close()
			var before, now runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			var got int64
			buf := make([]byte, 1<<20)
			for err = nil; err == nil; {
				var n int
				n, err = io.ReadFull(res.Body, buf)
				got += int64(n)
				if got%(64<<20) == 0 {
					runtime.GC()
					runtime.ReadMemStats(&now)
					require.Less(t, int64(now.HeapAlloc)-int64(before.HeapAlloc), int64(allowed))
				}
			}
			require.ErrorIs(t, err, io.EOF)
			require.EqualValues(t, size, got)
		})
	}
}

func TestUnreachableServerIs503WithRetryAfterAndNoAddress(t *testing.T) {
	upstream := newUpstream(t, nil)
	upstream.Close()
	g := newProxy(t, upstream.URL, nil)
	a := g.get(t, "/api/v1/query?query=up")
	require.Equal(t, http.StatusServiceUnavailable, a.code)
	require.Equal(t, "5", a.header.Get("Retry-After"))
	requireEnvelope(t, a, typeUnavailable, "connection refused")
	require.NotContains(t, a.body, "127.0.0.1")
	require.Equal(t, 1.0, g.value(t, "promguard_upstream_errors_total", reasonUnreachable))
}

func TestServerThatSpeaksNoHTTPIs503(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	t.Cleanup(func() { l.Close(); <-done })
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(conn, "hello\r\n\r\n")
			conn.Close()
		}
	}()
	g := newProxy(t, "http://"+l.Addr().String(), nil)
	a := g.get(t, "/api/v1/labels")
	require.Equal(t, http.StatusServiceUnavailable, a.code)
	requireEnvelope(t, a, typeUnavailable, "did not answer")
}

func TestRedirectIsNeitherFollowedNorPassedOn(t *testing.T) {
	for _, code := range []int{301, 302, 303, 307, 308} {
		upstream := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/api/v1/labels" {
				t.Errorf("the upstream server was asked for %s", r.URL.Path)
			}
			http.Redirect(w, r, "http://inside.invalid/secret", code)
		})
		g := newProxy(t, upstream.URL, nil)
		a := g.get(t, "/api/v1/labels")
		require.Equal(t, http.StatusServiceUnavailable, a.code)
		require.Empty(t, a.header.Get("Location"))
		require.NotContains(t, a.body, "inside.invalid")
		requireEnvelope(t, a, typeUnavailable, "redirect", "--upstream.url")
		require.Equal(t, 1.0, g.value(t, "promguard_upstream_errors_total", reasonRedirect))
	}
}

// A query that killed the server would kill it again.
func TestQueryIsNotSentTwiceWhenTheServerDies(t *testing.T) {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		t.Run(method, func(t *testing.T) {
			var calls atomic.Int32
			upstream := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
				_ = r.ParseForm()
				if r.FormValue("query") == "up" { // Makes a connection that is used again.
					io.WriteString(w, "{}")
					return
				}
				calls.Add(1)
				conn, _, err := http.NewResponseController(w).Hijack()
				if err == nil {
					conn.Close()
				}
			})
			g := newProxy(t, upstream.URL, nil)
			require.Equal(t, 200, do(t, g.Client(), newRequest(t, method, g.URL, "query", "query=up")).code)
			a := do(t, g.Client(), newRequest(t, method, g.URL, "query", "query=heavy"))
			require.Equal(t, http.StatusServiceUnavailable, a.code)
			require.EqualValues(t, 1, calls.Load())
		})
	}
}

func TestAnswersOfTheServerPassAsTheyAre(t *testing.T) {
	upstream := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Custom", "kept")
		w.Header().Set("Connection", "X-Hop")
		w.Header().Set("X-Hop", "dropped")
		http.Error(w, "Service Unavailable", http.StatusServiceUnavailable)
	})
	g := newProxy(t, upstream.URL, nil)
	a := g.get(t, "/api/v1/labels")
	require.Equal(t, answer{503, a.header, "Service Unavailable\n"}, a)
	require.Equal(t, "kept", a.header.Get("X-Custom"))
	require.Empty(t, a.header.Get("X-Hop"))
}

func TestPolicyIsReplacedForRequestsThatComeAfter(t *testing.T) {
	upstream := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") })
	g := newProxy(t, upstream.URL, nil)
	const bad = "/api/v1/query?query=%7Ble!%3D%22%22%7D"
	require.Equal(t, 422, g.get(t, bad).code)
	g.proxy.SetPolicy(newPolicy(t, func(o *querylimit.Options) { o.Selectivity = querylimit.ModeObserve }))
	require.Equal(t, 200, g.get(t, bad).code)
	require.Equal(t, 1.0, g.value(t, "promguard_limit_exceeded_total", "selectivity", "observe"))
	require.Equal(t, 1.0, g.value(t, "promguard_refused_total", "selectivity"))
}

func TestRequestInFlightIsLoggedAfterAReload(t *testing.T) {
	started, goOn := make(chan struct{}), make(chan struct{})
	upstream := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		close(started)
		<-goOn
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"status":"success","data":["`+strings.Repeat(`a","`, 1000)+`"]}`)
	})
	file := filepath.Join(t.TempDir(), "query.log")
	lost := 0
	open := func() *querylog.Log {
		log, err := querylog.Open(querylog.Options{File: file}, func(error) { lost++ })
		require.NoError(t, err)
		return log
	}
	before, after := open(), open()
	policy := newPolicy(t, func(o *querylimit.Options) {
		o.Responses.Mode, o.Responses.Classes[querylimit.ClassMetadata].Max = querylimit.ModeEnforce, 1000
	})
	g := newProxy(t, upstream.URL, nil, func(o *Options) { policy.Log = before; o.Policy = policy })
	var wg sync.WaitGroup
	wg.Go(func() { g.getPart(t, "/api/v1/labels") })
	<-started
	policy.Log = after
	g.proxy.SetPolicy(policy)
	require.NoError(t, before.Close())
	close(goOn)
	wg.Wait()
	g.Close()
	require.NoError(t, after.Close())
	require.Zero(t, lost)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(text), `"limits":["response_bytes:enforce"]`, "though it was exceeded after the headers")
}

func TestRulesSeeWhatABelievedPeerSays(t *testing.T) {
	var passed http.Header
	upstream := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		passed = r.Header.Clone()
		io.WriteString(w, "{}")
	})
	up, _, err := querylimit.NewAnalyzer(0).Expr(newPolicy(t, nil).Rules.Tenant(""), "up")
	require.NoError(t, err)
	deny := []querylimit.Rule{
		{Name: "dashboard", Match: querylimit.Match{Dashboards: []string{"d"}}, Deny: querylimit.ModeEnforce},
		{Name: "fingerprint", Match: querylimit.Match{Fingerprints: []string{up.Fingerprint}, Tenants: []string{"a"}}, Deny: querylimit.ModeEnforce},
	}
	g := newProxy(t, upstream.URL, nil, func(o *Options) { o.Policy = newPolicy(t, nil, deny...) })
	get := func(header ...string) answer {
		req := newRequest(t, http.MethodGet, g.URL, "query", "query=up")
		for i := 0; i < len(header); i += 2 {
			req.Header.Add(header[i], header[i+1])
		}
		return do(t, g.Client(), req)
	}
	require.Equal(t, 200, get("X-Scope-OrgID", "b", "X-Dashboard-Uid", "e").code)
	require.Equal(t, "b", passed.Get("X-Scope-OrgID"))
	a := get("X-Dashboard-Uid", "d")
	require.Equal(t, 422, a.code)
	requireEnvelope(t, a, typeExecution, "Limit deny", "rule dashboard")
	requireEnvelope(t, get("X-Scope-OrgID", "a"), typeExecution, "Limit deny of tenant a", "rule fingerprint")
	require.Equal(t, 2.0, g.value(t, "promguard_refused_total", "deny"))
	require.Equal(t, 200, get("X-Scope-OrgID", "a", "X-Scope-OrgID", "b").code)
	require.Empty(t, passed.Values("X-Scope-OrgID"), "the upstream server might believe the other one")

	policy := newPolicy(t, nil, deny...)
	policy.Identity = &identity.Source{}
	g.proxy.SetPolicy(policy)
	require.Equal(t, 200, get("X-Dashboard-Uid", "d", "X-Scope-OrgID", "a").code)
	require.Empty(t, passed.Values("X-Scope-OrgID"))
}

func TestMetricsAreThereBeforeTheFirstRequest(t *testing.T) {
	upstream := newUpstream(t, nil)
	g := newProxy(t, upstream.URL, nil)
	for _, c := range querylimit.Classes() {
		require.Zero(t, g.value(t, "promguard_requests_total", c.String(), "200"))
		require.Zero(t, g.value(t, "promguard_requests_in_flight", c.String()))
		require.Zero(t, g.value(t, "promguard_client_gone_total", c.String()))
	}
	for _, l := range querylimit.Limits() {
		require.Zero(t, g.value(t, "promguard_limit_exceeded_total", l, "enforce"))
	}
	require.Zero(t, g.value(t, "promguard_upstream_errors_total", reasonTruncated))
}

func TestUpstreamURLThatCannotWorkIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "scheme must be http or https",
		"127.0.0.1:9090":                "the scheme must be http or https, as in http://127.0.0.1:9090",
		"ftp://x":                       "scheme must be http or https",
		"http://":                       "has no host",
		"http://:9090":                  "has no host",
		"http://user:secret@x":          "must not hold a user",
		"http://x/?a=b":                 "must end with its path",
		"http://x/#a":                   "must end with its path",
		"http://x/prometheus/api/v1/":   "must not include /api/v1",
		"http://x:port":                 "invalid port",
		"http://[::1":                   "upstream URL",
		"http://x/%zz":                  "invalid URL escape",
		"http://prometheus\x00.invalid": "invalid control character",
	} {
		_, err := ParseUpstream(text)
		require.ErrorContains(t, err, want, text)
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestReadinessFollowsTheProbesAndTheShutdown(t *testing.T) {
	var broken atomic.Bool
	upstream, err := url.Parse("http://upstream.invalid")
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		p := New(Options{
			Upstream: upstream, Policy: newPolicy(t, nil), Registerer: prometheus.NewRegistry(), Logger: promslog.NewNopLogger(),
			Transport: roundTrip(func(*http.Request) (*http.Response, error) {
				if broken.Load() {
					return nil, errors.New("refused")
				}
				return &http.Response{StatusCode: http.StatusUnauthorized, Body: io.NopCloser(strings.NewReader("who are you"))}, nil
			}),
		})
		require.ErrorContains(t, p.Ready(), "has not been looked at yet")
		broken.Store(true)
		require.ErrorContains(t, p.Probe(t.Context()), "refused")
		broken.Store(false)
		require.NoError(t, p.Probe(t.Context()), "any status will do")
		require.NoError(t, p.Ready())

		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go p.RunProbes(ctx)
		time.Sleep(time.Minute + time.Second) // Between two probes.
		require.NoError(t, p.Ready())
		broken.Store(true)
		time.Sleep(5 * time.Second)
		require.NoError(t, p.Ready(), "one failed probe is no outage")
		time.Sleep(6 * time.Second)
		require.ErrorContains(t, p.Ready(), "does not answer")
		broken.Store(false)
		time.Sleep(10 * time.Second)
		require.NoError(t, p.Ready())
		p.Stop()
		require.ErrorContains(t, p.Ready(), "shutting down")
	})
}

func TestTimesAreSetWhereTheServerReadsThem(t *testing.T) {
	var got url.Values
	upstream := newUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		got = r.Form
		io.WriteString(w, "{}")
	})
	g := newProxy(t, upstream.URL, func(o *querylimit.Options) {
		o.MetadataRange = querylimit.MetadataRange{Mode: querylimit.ModeEnforce, Default: time.Hour, Max: 24 * time.Hour}
	})
	for _, tc := range []struct {
		path, params string
		want         url.Values
		start        bool // set by promguard
	}{
		{"series", "match[]=up", url.Values{"limit": nil}, true},
		{"series", "match[]=up&limit=0&start=1e9", nil, false},
		{"series", "match[]=up&limit=15&end=1000003600", url.Values{"limit": {"15"}, "start": {"1000000000.000"}}, false},
		{"series", "match[]=up&limit=25", url.Values{"limit": {"25"}}, true},
		{"labels", "", url.Values{}, true},
		{"label/job/values", "timeout=10m", url.Values{"timeout": {"30"}}, true},
		{"query", "query=up&timeout=10m&limit=0", url.Values{"timeout": {"120"}, "limit": {"0"}}, false},
		{"query", "query=up&timeout=1500ms", url.Values{"timeout": {"1500ms"}, "limit": nil}, false},
		{"query", "query=up&max_query_duration=10m&max_series=7", url.Values{"max_query_duration": {"120"}, "max_series": {"7"}}, false},
		{"query_cost", "query=up&max_query_duration=90s&timeout=10m", url.Values{"max_query_duration": {"90s"}, "timeout": {"120"}}, false},
		{"query_range_cost", "query=up&start=0&end=1&step=1&max_query_duration=1h&junk=1", url.Values{"max_query_duration": {"120"}, "junk": nil}, false},
		{"series", "match[]=up&max_query_duration=10m", url.Values{"max_query_duration": nil}, true},
		{"query_range", "query=up&start=0&end=1&step=1&limit=3", url.Values{"limit": {"3"}}, false},
		{"metadata", "limit=3&timeout=1h", url.Values{"limit": {"3"}, "timeout": {"30"}}, false},
	} {
		t.Run(tc.path+"?"+tc.params, func(t *testing.T) {
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				got = nil
				if method == http.MethodPost && (strings.HasPrefix(tc.path, "label/") || tc.path == "metadata") {
					continue
				}
				a := do(t, g.Client(), newRequest(t, method, g.URL, tc.path, tc.params))
				if tc.want == nil {
					require.Equal(t, 422, a.code)
					requireEnvelope(t, a, typeExecution, "Limit metadata_range", "docs/limits/metadata-range.md")
					continue
				}
				require.Equal(t, 200, a.code, a.body)
				for name, want := range tc.want {
					require.Equal(t, want, got[name], name)
				}
				if tc.start {
					start, err := strconv.ParseFloat(got.Get("start"), 64)
					require.NoError(t, err)
					require.InDelta(t, time.Now().Add(-time.Hour).Unix(), start, 60)
				}
			}
		})
	}
	require.Positive(t, g.value(t, "promguard_adjusted_total", "metadata_range"))
}

func TestTimesOfAQueryAreLimited(t *testing.T) {
	upstream := newUpstream(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") })
	g := newProxy(t, upstream.URL, func(o *querylimit.Options) {
		o.Range = querylimit.Bound{Mode: querylimit.ModeEnforce, Max: int(24 * time.Hour)}
		o.Oldest = querylimit.Bound{Mode: querylimit.ModeEnforce, Max: int(100 * 365 * 24 * time.Hour)}
	})
	for target, refused := range map[string]string{
		"query?query=rate(up[23h])":                                      "",
		"query?query=rate(up[25h])":                                      "range",
		"query?query=rate(up[25h])&time=1600000000":                      "range",
		"query?query=max_over_time(up[1h:1m])%2Bup+offset+2d":            "range",
		"query?query=max_over_time(up[1h:1m])&lookback_delta=23h30m":     "range",
		"query?query=up&time=0001-01-01T00:00:00Z":                       "oldest",
		"query_range?query=up&start=0&end=80000&step=60":                 "",
		"query_range?query=up&start=0&end=87000&step=60":                 "range",
		"query_range?query=up&start=0001-01-01T00:00:00Z&end=1&step=1e9": "range",
		"query_cost?query=rate(up[25h])":                                 "range",
		"query_range_cost?query=up&start=0&end=87000&step=60":            "range",
		"query_exemplars?query=up":                                       "range",
		"query_exemplars?query=up&start=0&end=600":                       "",
		"query_exemplars?query=up&start=0001-01-01T00:00:00Z&end=600":    "range",
		"format_query?query=rate(up[1y])":                                "",
	} {
		a := g.get(t, "/api/v1/"+target)
		if refused == "" {
			require.Equal(t, 200, a.code, "%s: %s", target, a.body)
			continue
		}
		require.Equal(t, 422, a.code, target)
		requireEnvelope(t, a, typeExecution, "Limit "+refused+":")
	}
}
