// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package paritytest

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/common/route"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/web/api/testhelpers"
	apiv1 "github.com/prometheus/prometheus/web/api/v1"
	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/proxy"
	"github.com/promguard/promguard/internal/proxy/identity"
	"github.com/promguard/promguard/internal/querylimit"
)

// newPrometheus serves Prometheus's own API, with a real TSDB and engine, routed
// as web.go of Prometheus does.
func newPrometheus(t *testing.T) *httptest.Server {
	t.Helper()
	store := promqltest.LoadedStorage(t, `load 1m
		up{job="api",instance="a"} 0+1x600
		up{job="api",instance="b"} 1+0x600
		up{job="web",instance="c"} 1+0x600
		http_requests_total{job="api",code="200",path="/é\n"} 0+10x600
		http_requests_total{job="api",code="500",path="/a b"} 0+1x600
		http_duration_seconds_bucket{job="api",le="0.1"} 0+5x600
		http_duration_seconds_bucket{job="api",le="+Inf"} 0+9x600
		native{job="api"} {{schema:0 count:5 sum:5 buckets:[1 2 2]}}+{{schema:0 count:5 sum:5 buckets:[1 2 2]}}x600
		target_info{job="api",instance="a",k8s_cluster_name="c1"} 1+0x600
		{"dotted.name", job="api", "utf8.label"="x"} 1+0x600`)
	t.Cleanup(func() { store.Close() })
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 1e6, Timeout: time.Minute, EnableAtModifier: true, EnableNegativeOffset: true, EnableQueryCost: true,
		NoStepSubqueryIntervalFn: func(int64) int64 { return 60_000 },
	})
	return servePrometheus(t, engine, func() storage.SampleAndChunkQueryable { return store }, parser.Options{})
}

func servePrometheus(t *testing.T, engine promql.QueryEngine, store func() storage.SampleAndChunkQueryable, o parser.Options) *httptest.Server {
	t.Helper()
	params := testhelpers.PrepareAPI(t, testhelpers.APIConfig{
		QueryEngine:       testhelpers.NewLazyLoader(func() promql.QueryEngine { return engine }),
		Queryable:         testhelpers.NewLazyLoader(store),
		ExemplarQueryable: testhelpers.NewLazyLoader(testhelpers.NewEmptyExemplarQueryable),
		RulesRetriever: testhelpers.NewLazyLoader(func() testhelpers.RulesRetriever {
			return testhelpers.NewRulesRetrieverWithGroups(testhelpers.FixtureRuleGroups())
		}),
		DBDir: "unused",
	})
	router := route.New()
	newAPI(params, o).Register(router)
	mux := http.NewServeMux()
	mux.Handle("/api/v1/", http.StripPrefix("/api/v1", router))
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv
}

func newAPI(params testhelpers.NewAPIParams, o parser.Options) *apiv1.API {
	return apiv1.NewAPI(
		params.QueryEngine, params.Queryable, nil, params.ExemplarQueryable,
		func(ctx context.Context) apiv1.ScrapePoolsRetriever { return params.ScrapePoolsRetriever(ctx) },
		func(ctx context.Context) apiv1.TargetRetriever { return params.TargetRetriever(ctx) },
		func(ctx context.Context) apiv1.AlertmanagerRetriever { return params.AlertmanagerRetriever(ctx) },
		params.ConfigFunc, params.FlagsMap, apiv1.GlobalURLOptions{}, params.ReadyFunc, params.TSDBAdmin, params.DBDir,
		true, true, 0, params.Logger,
		func(ctx context.Context) apiv1.RulesRetriever { return params.RulesRetriever(ctx) },
		0, 0, 0, false, nil,
		func() (apiv1.RuntimeInfo, error) { return apiv1.RuntimeInfo{}, nil },
		&apiv1.PrometheusVersion{Version: "3.16.0"},
		params.NotificationsGetter, params.NotificationsSub, params.Gatherer, params.Registerer,
		nil, false, nil, false, false, false, 5*time.Minute, false, false, nil, nil, apiv1.OpenAPIOptions{},
		parser.NewParser(o), true, 2*time.Minute,
	)
}

func newProxy(t testing.TB, upstream string, change func(*querylimit.Options)) *httptest.Server {
	t.Helper()
	u, err := proxy.ParseUpstream(upstream)
	require.NoError(t, err)
	opts := querylimit.DefaultOptions()
	if change != nil {
		change(&opts)
	}
	rules, err := querylimit.NewRuleset(querylimit.RulesetOptions{Global: opts})
	require.NoError(t, err)
	transport := proxy.NewTransport()
	srv := httptest.NewServer(proxy.New(proxy.Options{
		Upstream: u, Policy: proxy.Policy{Rules: rules, Identity: &identity.Source{}}, Registerer: prometheus.NewRegistry(), Logger: promslog.NewNopLogger(), Transport: transport,
	}))
	t.Cleanup(func() {
		srv.Close()
		transport.CloseIdleConnections()
	})
	return srv
}

// answer is a whole answer.
type answer struct {
	code   int
	header http.Header
	body   string
}

func do(t testing.TB, client *http.Client, req *http.Request) answer {
	t.Helper()
	res, err := client.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return answer{res.StatusCode, res.Header, string(body)}
}

// requireRefusal checks that a is an error as Prometheus writes it, with all
// these parts in its text.
func requireRefusal(t testing.TB, a answer, parts ...string) {
	t.Helper()
	require.Equal(t, "application/json", a.header.Get("Content-Type"))
	var got map[string]any
	require.NoError(t, json.Unmarshal([]byte(a.body), &got), a.body)
	require.Equal(t, "error", got["status"])
	require.Equal(t, "execution", got["errorType"])
	require.Len(t, got, 3, "no data key: it would hide the message in Grafana")
	for _, part := range parts {
		require.Contains(t, got["error"], part)
	}
}

// corpus is what Grafana and people send. Every answer must be the same, byte
// for byte, with promguard in between.
var corpus = []struct{ path, params string }{
	{"query", "query=up&time=600"},
	{"query", "query=up&time=600&limit=1"},
	{"query", "query=up&time=600.5&timeout=10s&stats=all&lookback_delta=1m"},
	{"query", "query=sum+by+(job)+(rate(http_requests_total[5m]))&time=1970-01-01T00:10:00Z"},
	{"query", "query=http_requests_total{path=%22/%C3%A9%5Cn%22}&time=600"},
	{"query", "query=native&time=600"},
	{"query", "query={%22dotted.name%22}&time=600"},
	{"query", "query=up[5m]&time=600"},
	{"query", "query=scalar(up{instance=%22a%22})&time=600"},
	{"query", "query=%22text%22&time=600"},
	{"query", "query=1%2B1&time=600"},
	{"query", "query=up&time=nonsense"},
	{"query", "query=up&limit=-1"},
	{"query", "query=up&time=600&unknown=1"},
	{"query", "query=sum(up&time=600"},
	{"query", "query="},
	{"query", ""},
	{"query", "query=rate(up)&time=600"},
	{"query", "query=up%5B5m&time=600"},
	{"query", "query=sort_by_label(up,%22job%22)&time=600"}, // experimental: off behind
	{"query", "query=up&time=600&timeout=abc"},
	{"query_range", "query=up&start=0&end=600&step=60"},
	{"query_range", "query=up&start=0&end=600&step=60&limit=1"},
	{"query_range", "query=histogram_quantile(0.9,sum+by+(le)(rate(http_duration_seconds_bucket[5m])))&start=0&end=600&step=15s&timeout=5s"},
	{"query_range", "query=native&start=0&end=600&step=60"},
	{"query_range", "query=max_over_time(up[10m:1m]+offset+1m)&start=600&end=1200&step=60"},
	{"query_range", "query=up&start=0&end=600&step=0"},
	{"query_range", "query=up&start=600&end=0&step=60"},
	{"query_range", "query=up&start=0&end=60000000&step=1"},
	{"query_range", "query=up&start=0&end=soon&step=60"},
	{"query_range", "query=up&start=0&end=600&step=x"},
	{"query_range", "query=up&start=0&end=600&step=1e300"},
	{"query_range", "query=up&start=0&end=600&step=60&limit=x"},
	{"query_range", "query=up&start=0&end=600&step=60&lookback_delta=x"},
	{"query_range", "query=up"},
	{"query_range", "query=up&start=0001-01-01T00:00:00Z&end=0001-01-01T00:00:00Z&step=1"},
	{"query", "query=up&time=0001-01-01T00:00:00Z"},
	{"query", "query=up&time=1e9"},
	{"query", "query=up&time=6.0001e2&lookback_delta=-1"},
	{"query", "query=up&time=2026-01-01T00:00:00.5%2B02:00"},
	{"query", "query=up&time=-292273086-05-16T16:47:06Z"},
	{"query", "query=topk(1,up)&time=600"},
	{"query", "query=sum(count_values(%22v%22,up))&time=600"},
	{"query", "query=up*on(job)group_left+max+by(job)(up)&time=600"},
	{"series", "match[]=up&start=x"},
	{"series", "match[]=up&start=-292273086-05-16T16:47:06Z&end=292277025-08-18T07:12:54.999999999Z"},
	{"series", "match[]=up&limit=-5"},
	{"labels", "start=1&end=y"},
	{"label/job/values", "limit=1.5"},
	{"query", "query=up&time=600&timeout=0"},
	{"query", "query=up&time=600&timeout=-1s"},
	{"query", "query=up&time=600&cost=true"},
	{"query", "query=up&time=600&cost=t&limit=1&max_series=100&max_samples_read=100&max_query_duration=30s"},
	{"query", "query=up&time=600&cost=yes"},
	{"query", "query=up&time=600&max_series=1"},
	{"query", "query=up&time=600&max_series=-1"},
	{"query", "query=up&time=600&max_series=0&max_samples_read=&max_query_duration=0&cost="},
	{"query", "query=up[5m]&time=600&max_samples_read=2"},
	{"query", "query=up&time=600&max_samples_read=1e3"},
	{"query", "query=up&time=600&max_query_duration=-1s"},
	{"query", "query=up&time=600&max_query_duration=soon"},
	{"query_range", "query=up&start=0&end=600&step=60&cost=1"},
	{"query_range", "query=up&start=0&end=600&step=60&max_series=2"},
	{"query_range", "query=up&start=0&end=600&step=60&max_samples_read=18446744073709551616"},
	{"query_cost", "query=sum+by+(job)+(rate(http_requests_total[5m]))&time=600"},
	{"query_cost", "query=up&time=600&limit=1&stats=all&cost=true&max_series=1"},
	{"query_cost", "query=up&limit=-1"},
	{"query_cost", "query=up&time=x"},
	{"query_cost", "query=sum(up"},
	{"query_cost", "query=up&cost=x"},
	{"query_range_cost", "query=rate(up[5m])&start=0&end=600&step=60&timeout=5s"},
	{"query_range_cost", "query=up[5m]&start=0&end=600&step=60"},
	{"query_range_cost", "query=up&start=600&end=0&step=60"},
	{"query_range_cost", "query=up&start=0&end=60000000&step=1"},
	{"query_range_cost", "query=up"},
	{"query_exemplars", "query=up&start=x"},
	{"query_exemplars", "query=up&start=0&end=600"},
	{"format_query", "query=sum+by(job)(up)"},
	{"parse_query", "query=sum+by(job)(rate(up[5m]))"},
	{"parse_query", "query=sum+by("},
	{"labels", ""},
	{"labels", "start=0&end=600&limit=2"},
	{"labels", "match[]=up&match[]=native"},
	{"labels", "match[]={job=%22api%22}&match%5B%5D=up{instance=~%22a|b%22}"},
	{"labels", "match[]={}"},
	{"labels", "match[]=up{"},
	{"label/job/values", ""},
	{"label/__name__/values", "limit=3"},
	{"label/__name__/values", "match[]=up&start=0&end=600"},
	{"label/U__utf8_2e_label/values", ""},
	{"label/utf8.label/values", ""},
	{"label/a%20b/values", ""},
	{"series", "match[]=up&start=0&end=600"},
	{"series", "match[]=up&match[]={job=%22api%22}&limit=2"},
	{"series", "match[]={__name__=~%22http_.%2B%22}"},
	{"series", ""},
	{"series", "match[]="},
	{"series", "match[]={}"},
	{"series", "match[]=up&limit=x"},
	{"metadata", "limit=1&metric=up&limit_per_metric=1"},
	{"targets", "state=active"},
	{"targets/metadata", "match_target={job=%22api%22}&limit=1"},
	{"rules", ""},
	{"rules", "type=alert&exclude_alerts=true&rule_name[]=InstanceDown&rule_group[]=example&file[]=example.rules"},
	{"rules", "group_limit=1"},
	{"rules", "match[]={severity=%22critical%22}"},
	{"rules", "type=other"},
	{"alerts", ""},
	{"alertmanagers", ""},
	{"scrape_pools", ""},
	{"status/buildinfo", ""},
	{"status/flags", ""},
	{"status/config", ""},
	{"status/tsdb", "limit=0"},
	{"status/walreplay", ""},
}

func TestAnswersAreTheSameByteForByteAsWithoutPromguard(t *testing.T) {
	prom := newPrometheus(t)
	g := newProxy(t, prom.URL, nil)
	for _, tc := range corpus {
		for _, method := range []string{"GET", "POST", "POST in URL", "GET gzip"} {
			t.Run(method+" "+tc.path+"?"+tc.params, func(t *testing.T) {
				if post := strings.HasPrefix(method, "POST"); post && !postable(tc.path) {
					t.Skip("GET only")
				}
				direct := do(t, prom.Client(), newRequest(t, method, prom.URL, tc.path, tc.params))
				guarded := do(t, g.Client(), newRequest(t, method, g.URL, tc.path, tc.params))
				require.Equal(t, untimed(plain(t, direct)), untimed(plain(t, guarded)))
				require.Equal(t, direct.code, guarded.code)
				require.Equal(t, direct.header.Get("Content-Type"), guarded.header.Get("Content-Type"))
				if text := plain(t, direct); direct.code == http.StatusOK && untimed(text) == text {
					require.Equal(t, direct.body, guarded.body, "the very bytes, compressed or not")
				}
			})
		}
	}
}

// untimed leaves out what differs from one evaluation to the next.
func untimed(body string) string { return timings.ReplaceAllString(body, "") }

var timings = regexp.MustCompile(`"timings":\{[^}]*\}|"wallTime":[^,}]*`)

func TestHowStartTimestampsAreUsedReachesTheServer(t *testing.T) {
	prom := newPrometheus(t)
	g := newProxy(t, prom.URL, nil)
	for _, value := range []string{"true", "0", "", "maybe"} {
		for _, path := range []string{"query", "query_range", "query_cost", "query_range_cost", "labels"} {
			answers := map[string]answer{}
			for _, root := range []string{prom.URL, g.URL} {
				req := newRequest(t, "GET", root, path, "query=rate(http_requests_total[5m])&time=600&start=0&end=600&step=60")
				req.Header.Set("X-Prometheus-Use-Start-Timestamps", value)
				answers[root] = do(t, http.DefaultClient, req)
			}
			require.Equal(t, answers[prom.URL].code, answers[g.URL].code)
			require.Equal(t, answers[prom.URL].body, answers[g.URL].body)
		}
	}
}

func TestLimitOfCostThatTheServerEnforcesIsToldAsItIs(t *testing.T) {
	prom := newPrometheus(t)
	g := newProxy(t, prom.URL, nil)
	a := do(t, g.Client(), newRequest(t, "POST", g.URL, "query", "query=up&time=600&max_series=1"))
	require.Equal(t, http.StatusUnprocessableEntity, a.code)
	require.Contains(t, a.body, `"errorType":"cost_limit"`)
}

// plain returns the body as it was before compression. The proxy's own errors
// are short and never compressed.
func plain(t testing.TB, a answer) string {
	t.Helper()
	if a.header.Get("Content-Encoding") != "gzip" {
		return a.body
	}
	r, err := gzip.NewReader(strings.NewReader(a.body))
	require.NoError(t, err)
	text, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(text)
}

// postable reports whether Prometheus takes a POST there.
func postable(path string) bool {
	switch path {
	case "query", "query_range", "query_cost", "query_range_cost", "query_exemplars", "format_query", "parse_query", "labels", "series":
		return true
	}
	return false
}

func newRequest(t testing.TB, how, root, path, params string) *http.Request {
	t.Helper()
	method, _, _ := strings.Cut(how, " ")
	target, body := root+"/api/v1/"+path+"?"+params, ""
	if how == "POST" {
		target, body = root+"/api/v1/"+path, params
	}
	req, err := http.NewRequest(method, target, strings.NewReader(body))
	require.NoError(t, err)
	if how == "POST" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if strings.HasSuffix(how, "gzip") {
		req.Header.Set("Accept-Encoding", "gzip") // Not undone by the client, since set by hand.
	}
	return req
}

func TestUnselectiveSelectorIsRefusedOnEveryEndpointThatTakesSelectors(t *testing.T) {
	prom := newPrometheus(t)
	g := newProxy(t, prom.URL, nil)
	const bad = "{le!=\"\"}"
	for path, param := range map[string]string{
		"query": "query", "query_range": "query", "query_cost": "query", "query_range_cost": "query", "query_exemplars": "query", "format_query": "query", "parse_query": "query",
		"series": "match[]", "labels": "match[]", "label/job/values": "match[]", "rules": "match[]", "targets/metadata": "match_target",
	} {
		t.Run(path, func(t *testing.T) {
			params := url.Values{param: {bad}, "start": {"0"}, "end": {"600"}, "step": {"60"}}
			for _, how := range []string{"GET", "POST"} {
				if how == "POST" && !postable(path) {
					continue
				}
				a := do(t, g.Client(), newRequest(t, how, g.URL, path, params.Encode()))
				require.Equal(t, http.StatusUnprocessableEntity, a.code, a.body)
				requireRefusal(t, a, "selectivity", bad, "docs/limits/selectivity.md")
			}
		})
	}
}

func TestUpstreamWithAPathIsReached(t *testing.T) {
	prom := newPrometheus(t)
	srv := httptest.NewServer(http.StripPrefix("/team a/prometheus", prom.Config.Handler))
	t.Cleanup(srv.Close)
	for _, root := range []string{"/team%20a/prometheus", "/team%20a/prometheus/"} {
		g := newProxy(t, srv.URL+root, nil)
		for _, path := range []string{"labels", "label/utf8.label/values", "label/a%20b/values", "query"} {
			require.Equal(t, http.StatusOK, do(t, g.Client(), newRequest(t, "GET", g.URL, path, "query=up")).code, path)
		}
	}
}

func TestModeWarnAnswersWithTheWarningInTheEnvelope(t *testing.T) {
	prom := newPrometheus(t)
	g := newProxy(t, prom.URL, func(o *querylimit.Options) { o.Selectivity = querylimit.ModeWarn })
	for _, how := range []string{"GET", "POST", "GET gzip"} {
		const params = "match[]=%7Ble!%3D%22%22%7D&start=0&end=600"
		direct := do(t, prom.Client(), newRequest(t, how, prom.URL, "series", params))
		guarded := do(t, g.Client(), newRequest(t, how, g.URL, "series", params))
		require.Equal(t, http.StatusOK, guarded.code)
		var want, got struct {
			Status   string
			Data     json.RawMessage
			Warnings []string
		}
		require.NoError(t, json.Unmarshal([]byte(plain(t, direct)), &want))
		require.NoError(t, json.Unmarshal([]byte(plain(t, guarded)), &got))
		require.Equal(t, want.Data, got.Data)
		require.Empty(t, want.Warnings)
		require.Len(t, got.Warnings, 1)
		require.Contains(t, got.Warnings[0], `Limit selectivity: the selector {le!=""}`)
	}
}
