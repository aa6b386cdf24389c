// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/promslog"
	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/proxy/admission"
	"github.com/promguard/promguard/internal/proxy/identity"
)

// proxyOver is a Proxy whose upstream server is a function, for synctest.
func proxyOver(t *testing.T, change func(*Policy), send roundTrip) *Proxy {
	t.Helper()
	upstream, err := ParseUpstream("http://upstream.invalid")
	require.NoError(t, err)
	policy := newPolicy(t, nil)
	policy.Admission = admission.DefaultOptions()
	change(&policy)
	return New(Options{Upstream: upstream, Policy: policy, Registerer: prometheus.NewRegistry(), Logger: promslog.NewNopLogger(), Transport: send})
}

func textResponse(req *http.Request, body io.Reader) *http.Response {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(body), ContentLength: -1, Request: req}
}

// ask sends a request from a believed peer and returns its answer.
func ask(ctx context.Context, p *Proxy, target string, header ...string) (rec *httptest.ResponseRecorder) {
	req := httptest.NewRequest(http.MethodGet, target, nil).WithContext(ctx)
	req.RemoteAddr = "127.0.0.1:1"
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	rec = httptest.NewRecorder()
	defer func() {
		if v := recover(); v != nil && v != http.ErrAbortHandler { //nolint:errorlint // A panic's value.
			panic(v)
		}
	}()
	p.ServeHTTP(rec, req)
	return rec
}

// cancellable is a context such as that of every request of a server.
func cancellable(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return ctx
}

func TestSaturatedServerIs503AndTenantOverItsLimit429ButNotForGrafana(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := proxyOver(t, func(p *Policy) {
			p.Admission.Max, p.Admission.TenantMax, p.Admission.Wait = 3, 2, time.Second
		}, func(r *http.Request) (*http.Response, error) {
			select {
			case <-time.After(time.Minute):
			case <-r.Context().Done():
			}
			return textResponse(r, strings.NewReader("{}")), nil
		})
		ctx := cancellable(t)
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { ask(ctx, p, "/api/v1/query?query=up", "X-Scope-OrgID", "a") })
		}
		synctest.Wait()
		for agent, code := range map[string]int{"curl/8": 429, "Grafana/12.1": 503} {
			start := time.Now()
			rec := ask(ctx, p, "/api/v1/query?query=up", "X-Scope-OrgID", "a", "User-Agent", agent)
			require.Equal(t, time.Second, time.Since(start))
			require.Equal(t, code, rec.Code)
			require.NotEmpty(t, rec.Header().Get("Retry-After"))
			requireEnvelope(t, answer{rec.Code, rec.Header(), rec.Body.String()}, typeUnavailable,
				"the tenant has 2 requests in flight", "none ended within 1s", "admission.tenant_max", "docs/proxy-admission.md")
		}
		wg.Go(func() { ask(ctx, p, "/api/v1/query?query=up", "X-Scope-OrgID", "b") })
		synctest.Wait()
		rec := ask(ctx, p, "/api/v1/labels", "X-Scope-OrgID", "c")
		require.Equal(t, 503, rec.Code)
		requireEnvelope(t, answer{rec.Code, rec.Header(), rec.Body.String()}, typeUnavailable, "the server has 3 requests in flight", "admission.max")
		wg.Wait()
		held, queued := p.admission.Usage(admission.Query)
		require.Zero(t, held+queued, "permits come back")
	})
}

func TestWaitingForAPermitCountsTowardsTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := proxyOver(t, func(p *Policy) { p.Admission.Max, p.Admission.Wait = 1, time.Hour }, func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		ctx := cancellable(t)
		go ask(ctx, p, "/api/v1/query?query=up")
		synctest.Wait()
		start := time.Now()
		rec := ask(ctx, p, "/api/v1/query?query=up&timeout=5s")
		require.Equal(t, 5*time.Second, time.Since(start))
		requireEnvelope(t, answer{rec.Code, rec.Header(), rec.Body.String()}, typeTimeout, "Limit deadline")
		time.Sleep(time.Hour)
	})
}

func TestPermitIsHeldUntilTheEndOfTheAnswerAndReleasedWhenTheClientLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := proxyOver(t, func(p *Policy) { p.Admission.Max = 1 }, func(r *http.Request) (*http.Response, error) {
			body, w := io.Pipe()
			go func() {
				_, _ = io.WriteString(w, "{")
				<-r.Context().Done()
				w.CloseWithError(r.Context().Err())
			}()
			return textResponse(r, body), nil
		})
		ctx, leave := context.WithCancel(t.Context())
		go ask(ctx, p, "/api/v1/query?query=up")
		synctest.Wait()
		held, _ := p.admission.Usage(admission.Query)
		require.Equal(t, 1, held)
		leave()
		synctest.Wait()
		held, _ = p.admission.Usage(admission.Query)
		require.Zero(t, held)
	})
}

func TestIdenticalRequestsInFlightAreSentOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		second []string // target and headers of the second request
		sent   int32
	}{
		"the same":                        {[]string{"/api/v1/query?query=up&time=1"}, 1},
		"written otherwise":               {[]string{"/api/v1/query?query=u%70&time=1&unknown=2"}, 1},
		"another panel":                   {[]string{"/api/v1/query?query=up&time=1", "X-Panel-Id", "7"}, 1},
		"another query":                   {[]string{"/api/v1/query?query=down&time=1"}, 2},
		"another time":                    {[]string{"/api/v1/query?query=up&time=2"}, 2},
		"another endpoint":                {[]string{"/api/v1/format_query?query=up"}, 2},
		"another tenant":                  {[]string{"/api/v1/query?query=up&time=1", "X-Scope-OrgID", "a"}, 2},
		"with credentials":                {[]string{"/api/v1/query?query=up&time=1", "Authorization", "Bearer x"}, 2},
		"with a cookie":                   {[]string{"/api/v1/query?query=up&time=1", "Cookie", "a=b"}, 2},
		"another user":                    {[]string{"/api/v1/query?query=up&time=1", "X-Grafana-User", "ann"}, 2},
		"with a header that nobody knows": {[]string{"/api/v1/query?query=up&time=1", "X-Secret-Tenant", "ann"}, 1},
		"with one that passes":            {[]string{"/api/v1/query?query=up&time=1", "X-Api-Key", "ann"}, 2},
		"another encoding":                {[]string{"/api/v1/query?query=up&time=1", "Accept-Encoding", "gzip"}, 2},
		"evaluated another way":           {[]string{"/api/v1/query?query=up&time=1", "X-Prometheus-Use-Start-Timestamps", "true"}, 2},
		"with its cost":                   {[]string{"/api/v1/query?query=up&time=1&cost=true"}, 2},
		"of another cost":                 {[]string{"/api/v1/query?query=up&time=1&max_series=1"}, 2},
		"only its cost":                   {[]string{"/api/v1/query_cost?query=up&time=1"}, 2},
		"an alert":                        {[]string{"/api/v1/query?query=up&time=1", "FromAlert", "true"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sent atomic.Int32
				p := proxyOver(t, func(p *Policy) {
					p.Collapse = true
					p.Identity = identity.NewSource([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, "", "X-Api-Key")
				}, func(r *http.Request) (*http.Response, error) {
					n := sent.Add(1)
					time.Sleep(time.Second)
					return textResponse(r, strings.NewReader(fmt.Sprintf(`{"n":%d}`, n))), nil
				})
				ctx := cancellable(t)
				var first, second *httptest.ResponseRecorder
				var wg sync.WaitGroup
				wg.Go(func() { first = ask(ctx, p, "/api/v1/query?query=up&time=1") })
				synctest.Wait()
				wg.Go(func() { second = ask(ctx, p, tc.second[0], tc.second[1:]...) })
				wg.Wait()
				require.Equal(t, tc.sent, sent.Load())
				require.Equal(t, 200, first.Code)
				require.Equal(t, 200, second.Code)
				if tc.sent == 1 {
					require.Equal(t, first.Body.String(), second.Body.String())
					require.Equal(t, first.Header(), second.Header())
				}
				require.Equal(t, 200, ask(ctx, p, "/api/v1/query?query=up&time=1").Code)
				require.Equal(t, tc.sent+1, sent.Load(), "an answer is not kept")
			})
		})
	}
}

func TestTenantsShareNoAnswerWhateverTheirHeaderIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int32
		p := proxyOver(t, func(p *Policy) {
			p.Collapse = true
			p.Identity = identity.NewSource([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, "X-Datasource-Uid")
		}, func(r *http.Request) (*http.Response, error) {
			sent.Add(1)
			time.Sleep(time.Second)
			return textResponse(r, strings.NewReader(r.Header.Get("X-Datasource-Uid"))), nil
		})
		var wg sync.WaitGroup
		for _, tenant := range []string{"a", "b", "a"} {
			wg.Go(func() {
				if got := ask(cancellable(t), p, "/api/v1/query?query=up", "X-Datasource-Uid", tenant).Body.String(); got != tenant {
					t.Error(got)
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 2, sent.Load())
	})
}

// slowBody ends after some time, or with its context.
type slowBody struct {
	wait time.Duration
	ctx  context.Context
}

func (b *slowBody) Read([]byte) (int, error) {
	select {
	case <-time.After(b.wait):
		return 0, io.EOF
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	}
}

func TestFollowersHoldNoPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := proxyOver(t, func(p *Policy) { p.Collapse, p.Admission.Max, p.Admission.Queue = true, 1, 0 }, func(r *http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			return textResponse(r, strings.NewReader("{}")), nil
		})
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if code := ask(cancellable(t), p, "/api/v1/query?query=up&time=1").Code; code != 200 {
					t.Error(code)
				}
			})
		}
		wg.Wait()
	})
}
