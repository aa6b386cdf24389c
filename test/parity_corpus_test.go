// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/util/compression"
	"github.com/stretchr/testify/require"
)

// The corpus is every route with every parameter it reads, well-formed and not,
// in every method and encoding. Each request carries its own times, so that the
// answer is the same whenever it is given.
//
// Left out, because upstream itself gives a different answer each time: a limit
// on metadata, which takes any of the metrics; a timeout= so short that it is a
// race which part of the query it ends.

const api = "/api/v1"

// form encodes pairs of names and values; a value may hold the dataset's times.
func form(pairs ...string) string {
	var parts []string
	for i := 0; i+1 < len(pairs); i += 2 {
		parts = append(parts, url.QueryEscape(pairs[i])+"="+url.QueryEscape(pairs[i+1]))
	}
	return strings.Join(parts, "&")
}

func unix(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) }

// endpoint is a route of the API that reads, and the queries put to it.
type endpoint struct {
	path string
	// post says that the route takes forms too.
	post    bool
	queries []string
}

var promql = []string{
	`app_temperature_celsius`,
	`{__name__=~"app_0[0-4].*",job="app"}`,
	`app_value`, `app_text`, `{"app.utf8 name"}`, `app_gone`, `app_gaps`,
	`app_requests_total{pod!=""}`, `app_requests_total{path=~"/p/[0-3]",code!~"5.."}`,
	`sum by (path, code) (rate(app_requests_total[5m]))`,
	`topk(3, app_requests_total)`, `count(count_values("v", app_temperature_celsius > bool 22))`,
	`histogram_quantile(0.9, sum by (le) (rate(app_latency_seconds_bucket[5m])))`,
	`app_native_seconds`, `app_native_float_seconds`, `app_native_gauge`, `app_native_custom_seconds`,
	`rate(app_native_seconds[5m])`, `histogram_quantile(0.9, sum(rate(app_native_seconds[10m])))`,
	`histogram_quantile(0.5, app_native_custom_seconds)`, `histogram_quantile(2, app_latency_seconds_bucket{instance="10.0.0.1:8080",path="/p/1"})`,
	`app_requests_total{path="/p/0"} offset 1h`, `app_temperature_celsius @ end()`, `app_temperature_celsius @ 0`,
	`max_over_time(rate(app_requests_total{path="/p/1"}[5m])[30m:1m])`,
	`label_replace(app_temperature_celsius, "x", "$1", "instance", "(.*):.*")`,
	`app_temperature_celsius / on(instance) app_gone`, `app_temperature_celsius + on(job) app_temperature_celsius`,
	`absent(app_none)`, `vector(1)`, `1 + 1`, `"<html> & \"text\""`, `scalar(app_gaps)`, `NaN`, `-Inf`, `time()`,
	`rate(app_temperature_celsius[5m])`, `sort_desc(app_temperature_celsius)`, `limitk(2, app_requests_total)`,
	`app.utf8 + app_text`, `integral(app_temperature_celsius[10m])`, `rate(app_requests_total[5m] anchored)`, `increase(app_requests_total[5m] smoothed)`,
	`quantile(1.5, app_temperature_celsius)`, `app_native_seconds + app_temperature_celsius`,
	`sum_over_time(app_requests_total[2h])`,
	// Malformed.
	``, `sum(`, `app{`, `{}`, `{a=""}`, `{a=~".*"}`, `rate(app_requests_total)`, `sum(1)(2)`, `app_text[5m:`, "\xff", `{a=~"("}`, `foo bar`, `1 / `,
}

// unsorted are evaluated over a range alone, as an instant query gives their
// result in any order.
var unsorted = []string{
	`info(app_temperature_celsius)`,
	`count_values("v", app_temperature_celsius > bool 22)`, `histogram_quantile(2, app_latency_seconds_bucket)`,
	`histogram_quantile(0.9, sum by (le, path) (rate(app_latency_seconds_bucket[5m])))`,
}

var selectors = [][]string{
	{`app_temperature_celsius`},
	{`app_text`, `app_value`},
	{`{__name__=~"app_.*",job="app",instance="10.0.0.1:8080"}`},
	{`{job="app"}`},
	{`app_none`},
	{`{"app.utf8 name"}`, `app_text`},
	{`app_latency_seconds_bucket{le=~"0.*"}`, `app_gone`, `app_gaps`},
	{`{le!="",job="app"}`},
	{`app_requests_total{path!~"/p/[1-9]"}`},
	{`app_text{text=~".*quoted.*"}`},
	{``},
	{`{}`},
	{`{a=""}`},
	{`sum(app_text)`},
	{`app_text`, `{`},
	{`{a=~"("}`},
	{"\xff"},
}

func endpoints(d dataset) []endpoint {
	end, mid, head, start := unix(d.end), unix(d.edge.Add(-time.Hour)), unix(d.edge.Add(20*time.Minute)), unix(d.start)
	var query, queryRange, exemplars, format, series, labels, values []string
	for _, q := range promql {
		query = append(query, form("query", q, "time", end), form("query", q, "time", mid))
	}
	for _, q := range slices.Concat(promql, unsorted) {
		format = append(format, form("query", q))
		queryRange = append(queryRange,
			form("query", q, "start", unix(d.edge.Add(-10*time.Minute)), "end", unix(d.edge.Add(10*time.Minute)), "step", "60"),
			form("query", q, "start", unix(d.end.Add(-time.Minute)), "end", unix(d.end.Add(time.Minute)), "step", "7s"))
	}
	const q = `app_temperature_celsius`
	query = append(query,
		form("query", q, "time", d.end.UTC().Format(time.RFC3339)), form("query", q, "time", end+".123"), form("query", q, "time", "soon"),
		form("query", q, "time", "1e400"), form("query", q, "time", "-1"), form("query", q, "time", "9999999999999"),
		form("query", q, "time", end, "limit", "3"), form("query", q, "time", end, "limit", "0"), form("query", q, "time", end, "limit", "-1"), form("query", q, "time", end, "limit", "x"),
		form("query", q, "time", end, "timeout", "10s"), form("query", q, "time", end, "timeout", "3"), form("query", q, "time", end, "timeout", "soon"),
		form("query", q, "time", end, "timeout", ""), form("query", q, "time", end, "timeout", "-1s"), form("query", q, "time", end, "timeout", "1e30"),
		form("query", q, "time", end, "lookback_delta", "10m"), form("query", `app_gaps`, "time", end, "lookback_delta", "2h"), form("query", q, "time", end, "lookback_delta", "x"), form("query", q, "time", end, "lookback_delta", "1ms"),
		form("query", q, "time", end, "stats", "1"), form("query", q, "time", end, "stats", "all"), form("query", q, "time", end, "stats", "none"), form("query", q, "time", end, "stats", ""),
		form("query", `app_requests_total[10m]`, "time", end), form("query", `{job="app"}[10m]`, "time", end), form("query", `app_native_seconds[3m]`, "time", end),
		form("query", `app_gone[30m]`, "time", end, "limit", "2"), form("query", `app_requests_total[1h:1m]`, "time", head),
		form("query", q, "query", "up", "time", end), form("time", end), form("query", q), "query=%zz", "query=a;b", "query=app_text;time=1", "?query=app_text", "query",
		form("query", "vector(1)", "time", ""), form("QUERY", q), form("query", strings.Repeat("(", 200)+"1"+strings.Repeat(")", 200), "time", end),
	)
	from, to := unix(d.edge.Add(-5*time.Minute)), unix(d.edge.Add(5*time.Minute))
	ranged := func(more ...string) string {
		return form(append([]string{"query", q, "start", from, "end", to}, more...)...)
	}
	queryRange = append(queryRange,
		ranged(), ranged("step", "0"), ranged("step", "-1"), ranged("step", "x"), ranged("step", "1m"), ranged("step", "0.5"), ranged("step", "0.01"), ranged("step", "1e300"),
		ranged("step", "60", "limit", "2"), ranged("step", "60", "limit", "x"), ranged("step", "60", "timeout", "1h"), ranged("step", "60", "timeout", "x"), ranged("step", "60", "timeout", "1"),
		ranged("step", "60", "lookback_delta", "1m"), ranged("step", "60", "lookback_delta", "y"), ranged("step", "60", "stats", "all"), ranged("step", "60", "stats", "true"),
		form("query", q, "start", to, "end", from, "step", "60"), form("query", q, "start", "soon", "end", to, "step", "60"), form("query", q, "start", from, "end", "soon", "step", "60"),
		form("query", q, "start", from, "step", "60"), form("query", q, "end", to, "step", "60"), form("query", `{job="app"}`, "start", start, "end", end, "step", "600"),
		form("query", q, "start", d.edge.UTC().Format(time.RFC3339Nano), "end", to, "step", "1m"), form("query", "app_text[5m]", "start", from, "end", to, "step", "60"), form("query", `"text"`, "start", from, "end", to, "step", "60"),
	)
	for _, q := range append([]string{`app_none`, `{path=~"/p/[01]"} + app_text`}, promql[len(promql)-13:]...) {
		exemplars = append(exemplars, form("query", q, "start", start, "end", end))
	}
	exemplars = append(exemplars, form("query", "app_requests_total", "start", head, "end", end), form("query", "app_requests_total", "start", end, "end", start),
		form("query", "app_requests_total"), form("query", "app_requests_total", "start", "x"), form("query", "app_requests_total", "start", start, "end", "x"), "")
	for _, s := range selectors {
		var matches []string
		for _, m := range s {
			matches = append(matches, "match[]", m)
		}
		with := func(more ...string) string { return form(append(append([]string{}, matches...), more...)...) }
		all := []string{
			with("start", start, "end", end), with("start", start, "end", unix(d.edge.Add(-time.Minute))), with("start", head, "end", end),
			with("start", start, "end", end, "limit", "5"), with("start", end, "end", start),
		}
		series, labels, values = append(series, all...), append(labels, all...), append(values, all...)
	}
	for _, odd := range []string{
		"", form("match[]", q, "limit", "x"), form("match[]", q, "limit", "-1"), form("match[]", q, "limit", "0"), form("match[]", q, "limit", "1"), form("match[]", q, "limit", "99999999999999999999"),
		form("match[]", q, "start", "x"), form("match[]", q, "end", "x"), form("match[]", q), form("match", q), form("match[]", q, "match[]", q),
		form("match[]", q, "timeout", "10s"), form("match[]", q, "timeout", "nonsense"), form("match[]", q, "timeout", "0"), form("match[]", q, "timeout", "-1"), form("match[]", q, "timeout", ""),
		"match[]=%zz", "match[]=a;b", "match%5B%5D=app_text", "&&match[]=app_text&", form("match[]", q, "start", "", "end", ""), form("start", start, "end", end),
		form("start", "-9223372036854775", "end", "9223372036854775"), form("match[]", `{job="app"}`, "limit", "50"),
	} {
		series, labels, values = append(series, odd), append(labels, odd), append(values, odd)
	}

	search := []string{
		"", form("search[]", "app"), form("search[]", "app_re", "search[]", "lat"), form("search[]", "APP", "case_sensitive", "false"), form("search[]", "app", "case_sensitive", "x"),
		form("search[]", "temprature_", "fuzz_threshold", "50", "sort_by", "score", "include_score", "true"), form("search[]", "app", "fuzz_threshold", "101"), form("search[]", "app", "fuzz_alg", "none"),
		form("search[]", "app", "fuzz_alg", "subsequence", "fuzz_threshold", "10"), form("search[]", "app", "fuzz_alg", "jarowinkler", "fuzz_threshold", "80", "sort_by", "alpha"),
		form("search[]", "app", "sort_by", "alpha", "sort_dir", "dsc", "limit", "7"), form("sort_by", "score"), form("sort_dir", "asc"), form("search[]", "app", "sort_by", "alpha", "sort_dir", "up"),
		form("search[]", "app", "limit", "501"), form("search[]", "app", "limit", "0"), form("search[]", "app", "limit", "x"), form("search[]", "app", "limit", "20", "batch_size", "3", "sort_by", "alpha"), form("search[]", "app", "batch_size", "0"),
		form("match[]", `{job="app"}`, "search[]", "sec"), form("match[]", `{`), form("start", start, "end", end, "search[]", "app"), form("start", end, "end", start), form("start", "x"), form("end", "x"),
		form("search[]", "app", "timeout", "5s"), form("search[]", "app", "timeout", "x"), "search[]=%zz", form("search[]", "target", "include_metadata", "true"), form("include_metadata", "x"),
		form("search[]", strings.Repeat("a", 300)), strings.Repeat("search[]=a&", 100),
	}
	var searchValues []string
	for _, label := range []string{"path", "text", "__name__", "none", "my.label", "", "\xff"} {
		queries := search[:3]
		if label == "path" {
			queries = search
		}
		for _, s := range queries {
			searchValues = append(searchValues, strings.TrimSuffix(form("label", label)+"&"+s, "&"))
		}
	}

	// Costs of queries, and limits of single ones: not at all without the feature.
	for _, costs := range [][]string{
		{"cost", "true"},
		{"cost", "0"},
		{"cost", "x"},
		{"max_series", "1"},
		{"max_series", "1000000"},
		{"max_series", "-1"},
		{"max_samples_read", "10"},
		{"max_samples_read", "x"},
		{"max_query_duration", "10s"},
		{"max_query_duration", "1h"},
		{"max_query_duration", "-1s"},
		{"max_query_duration", "1ns"},
		{"cost", "true", "stats", "all"},
	} {
		query = append(query, form(append([]string{"query", q, "time", end}, costs...)...))
		queryRange = append(queryRange, ranged(append([]string{"step", "60"}, costs...)...))
	}

	list := []endpoint{
		{api + "/query", true, query},
		{api + "/query_range", true, queryRange},
		{api + "/query_cost", true, query},
		{api + "/query_range_cost", true, queryRange},
		{api + "/query_exemplars", true, exemplars},
		{api + "/format_query", true, format},
		{api + "/parse_query", true, format},
		{api + "/series", true, series},
		{api + "/labels", true, labels},
		{api + "/search/metric_names", true, search},
		{api + "/search/label_names", true, search},
		{api + "/search/label_values", true, append(searchValues, search[:3]...)},
		{api + "/scrape_pools", false, []string{"", "x=1"}},
		{api + "/scrape_pools/config", false, []string{"", "scrapePool=target", "scrapePool=none", "scrapePool=empty"}},
		{api + "/targets", false, []string{"", "state=active", "state=dropped", "state=ANY", "state=x", "scrapePool=target", "scrapePool=nobody", "scrapePool=none", "timeout=x"}},
		{api + "/targets/metadata", false, []string{
			"", form("match_target", `{job="target"}`), form("match_target", `{`), form("metric", "target_open", "match_target", `{job="target"}`), "metric=target_requests_total", "metric=none", "limit=x", "limit=0", "limit=-1",
		}},
		{api + "/targets/relabel_steps", false, []string{
			"", "scrapePool=target", form("scrapePool", "target", "labels", `{"__address__":"a:1","zone":"b"}`), form("scrapePool", "none", "labels", `{"a":"b"}`), form("scrapePool", "target", "labels", `{`),
		}},
		{api + "/alertmanagers", false, []string{""}},
		{api + "/metadata", false, []string{"", "limit=x", "limit=1000", "metric=target_open", "metric=none", "limit_per_metric=1", "limit_per_metric=x", "metric=target_open&limit_per_metric=0&limit=5", "timeout=x"}},
		{api + "/status/config", false, []string{""}},
		{api + "/status/runtimeinfo", false, []string{""}},
		{api + "/status/buildinfo", false, []string{""}},
		{api + "/status/flags", false, []string{""}},
		{api + "/status/tsdb", false, []string{"", "limit=3", "limit=x", "limit=0", "limit=-5", "limit=10001", "limit=50"}},
		{api + "/status/tsdb/blocks", false, []string{"", "x=y"}},
		{api + "/status/self_metrics", false, []string{"metric_name_pattern=prometheus_ready", "metric_name_pattern=(", "metric_name_pattern=none"}},
		{api + "/features", false, []string{""}},
		{api + "/status/walreplay", false, []string{""}},
		{api + "/notifications", false, []string{""}},
		{api + "/alerts", false, []string{""}},
		{api + "/rules", false, []string{
			"", "type=alert", "type=record", "type=x", "exclude_alerts=true", "exclude_alerts=x", "group_limit=1", "group_limit=x", "group_limit=0", "group_limit=-1", "group_next_token=none",
			"group_limit=1&group_next_token=none", form("rule_name[]", "Always"), form("rule_group[]", "records"), form("file[]", "none"), form("match[]", `{severity="page"}`), form("match[]", `{`), form("match[]", `{a!="b"}`, "match[]", `{a="b"}`),
		}},
		{api + "/openapi.yaml", false, []string{"", "openapi_version=3.1", "openapi_version=3.2", "openapi_version=9"}},
		{"/federate", false, append(federations(), "match[]=a;b", "match[]=%zz")},
	}
	for _, label := range []string{"path", "__name__", "text", "U__my_2e_label", "my.label", "none", "le", "a%20b", "a%2Fb", "%FF", "job"} {
		qs := values
		if label != "path" {
			qs = []string{"", form("start", start, "end", end), form("match[]", `{job="app"}`, "start", start, "end", end), "limit=200", "limit=x"}
		}
		list = append(list, endpoint{api + "/label/" + label + "/values", false, qs})
	}
	return list
}

func federations() []string {
	var out []string
	for _, s := range selectors {
		var pairs []string
		for _, m := range s {
			pairs = append(pairs, "match[]", m)
		}
		out = append(out, form(pairs...))
	}
	return append(out, "", form("match[]", "app_text", "timeout", "10s"), form("match[]", "app_text", "timeout", "x"), form("match[]", "app_text", "limit", "1"),
		form("match[]", "app_native_seconds"), form("match[]", `{__name__=~"app_native.*"}`, "match[]", "app_temperature_celsius"))
}

var pages = []string{
	"/", "/graph", "/graph?g0.expr=up", "/query", "/alerts", "/rules", "/targets", "/config", "/flags", "/status", "/tsdb-status", "/service-discovery", "/alertmanager-discovery", "/agent",
	"/version", "/metrics", "/consoles/c.html", "/consoles/none.html", "/consoles/../prometheus.yml", "/favicon.svg", "/favicon.ico", "/manifest.json", "/assets/none.js", "/assets/", "/static/none", "/user/a.txt", "/user/none", "/user/",
	"/-/healthy", "/-/ready", "/-/quit", "/-/reload", "/debug", "/debug/", "/debug/pprof", "/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=1", "/debug/pprof/none", "/debug/pprof/symbol", "/debug/none",
	"/none", "/api", "/api/", "/api/v1", "/api/v1/", "/api/v1/none", "/api/v2/alerts", "/api/v1/query/", "/api/v1//query", "/API/v1/query", "/api/v1/label//values", "/api/v1/label/path/none", "/api/v1/../v1/labels", "/%zz", "/api/v1/%71uery?query=1&time=1", "/federate/", "//federate", "/?a=b",
	"/api/v1/status", "/api/v1/status/none", "/api/v1/search", "/api/v1/search/none", "/api/v1/admin/none", "/api/v1/read", "/api/v1/write", "/api/v1/otlp/v1/metrics", "/api/v1/admin/tsdb/snapshot",
}

const formType = "Content-Type: application/x-www-form-urlencoded"

// corpus returns the requests that change nothing.
func corpus(t *testing.T, d dataset) []request {
	t.Helper()
	var out []request
	for _, e := range endpoints(d) {
		for i, q := range e.queries {
			target := e.path
			if q != "" {
				target += "?" + q
			}
			out = append(out, request{method: http.MethodGet, target: target})
			if e.post && i%2 == 0 {
				out = append(out, request{method: http.MethodPost, target: e.path, headers: []string{formType}, body: q})
			}
			switch {
			case i == 0:
				out = append(out, variants(target)...)
			case e.post && i%20 == 0:
				out = append(out, variants(target)[:8]...)
			}
		}
		out = append(out, otherMethods(e.path)...)
		if e.post {
			out = append(out, malformedForms(e.path, e.queries[0])...)
		}
	}
	for _, p := range pages {
		out = append(out, request{method: http.MethodGet, target: p})
		if !strings.HasPrefix(p, "/-/") && !strings.Contains(p, "/admin/tsdb/") && !strings.Contains(p, "/pprof") {
			out = append(out, request{method: http.MethodHead, target: p}, request{method: http.MethodDelete, target: p}, request{method: http.MethodOptions, target: p})
		}
	}
	out = append(out, request{method: http.MethodHead, target: "/-/healthy"}, request{method: http.MethodHead, target: "/-/ready"}, request{method: http.MethodDelete, target: "/-/ready"},
		request{method: http.MethodGet, target: api + "/notifications/live", endless: true}, request{method: http.MethodHead, target: api + "/notifications/live", endless: true},
		// A form of more than the 10 MiB that net/http reads.
		request{method: http.MethodPost, target: api + "/query", headers: []string{formType}, body: "query=1&pad=" + strings.Repeat("x", 10<<20)})
	return append(out, remoteReads(t, d)...)
}

// variants are the ways in which a client may ask for the same answer.
func variants(target string) []request {
	out := []request{
		{method: http.MethodGet, target: target, http10: true},
		{method: http.MethodGet, target: target, http10: true, headers: []string{"Accept-Encoding: gzip"}},
		{method: http.MethodHead, target: target},
		{method: http.MethodHead, target: target, headers: []string{"Accept-Encoding: gzip"}},
	}
	for _, h := range []string{
		"Accept-Encoding: gzip", "Accept-Encoding: deflate", "Accept-Encoding: gzip, deflate, zstd", "Accept-Encoding: zstd;q=0, gzip;q=0.5", "Accept-Encoding: *",
		"Origin: https://a.example", "Origin: https://c.example", "Accept: application/json", "Accept: application/x-protobuf", "Accept: nonsense/",
		"Range: bytes=0-10", "Transfer-Encoding: nonsense",
	} {
		out = append(out, request{method: http.MethodGet, target: target, headers: []string{h}})
	}
	return out
}

func otherMethods(path string) []request {
	var out []request
	for _, m := range []string{http.MethodHead, http.MethodOptions, http.MethodDelete, http.MethodPut, http.MethodPatch, "NONSENSE"} {
		out = append(out, request{method: m, target: path})
	}
	// A POST that may change something is among the changes.
	if path != api+"/write" && path != api+"/otlp/v1/metrics" {
		out = append(out, request{method: http.MethodPost, target: path})
	}
	return append(out, request{method: http.MethodOptions, target: path, headers: []string{"Origin: https://a.example", "Access-Control-Request-Method: POST"}})
}

func malformedForms(path, query string) []request {
	post := func(target, body string, headers ...string) request {
		return request{method: http.MethodPost, target: target, headers: headers, body: body}
	}
	return []request{
		post(path, query), post(path, query, "Content-Type: application/json"), post(path, query, "Content-Type: nonsense;;"), post(path, query, "Content-Type: text/plain"),
		post(path, "%zz", formType), post(path, "a;b", formType), post(path, "\x00\xff", formType), post(path, "{}", formType),
		post(path+"?"+query, "", formType), post(path+"?"+query, "limit=1", formType), post(path+"?limit=x", query, formType), post(path+"?"+query, query, formType+"; charset=utf-8"),
		post(path+"?%zz", query, formType),
		post(path, "--b\r\nContent-Disposition: form-data; name=\"query\"\r\n\r\nvector(1)\r\n--b--\r\n", "Content-Type: multipart/form-data; boundary=b"),
		post(path, "--b", "Content-Type: multipart/form-data; boundary=b"), post(path, "x", "Content-Type: multipart/form-data"),
		post(path, query, formType, "Content-Encoding: gzip"), post(path, query, formType, "Accept-Encoding: gzip", "Origin: https://b.example"),
	}
}

// remoteReads are samples and chunks, a protocol of its own.
func remoteReads(t *testing.T, d dataset) []request {
	t.Helper()
	matcher := func(kind prompb.LabelMatcher_Type, name, value string) *prompb.LabelMatcher {
		return &prompb.LabelMatcher{Type: kind, Name: name, Value: value}
	}
	read := func(types []prompb.ReadRequest_ResponseType, queries ...*prompb.Query) request {
		return request{method: http.MethodPost, target: api + "/read", body: snappy(t, &prompb.ReadRequest{Queries: queries, AcceptedResponseTypes: types}), headers: []string{
			"Content-Encoding: snappy", "Content-Type: application/x-protobuf", "X-Prometheus-Remote-Read-Version: 0.1.0",
		}}
	}
	query := func(from, to time.Time, m ...*prompb.LabelMatcher) *prompb.Query {
		return &prompb.Query{StartTimestampMs: from.UnixMilli(), EndTimestampMs: to.UnixMilli(), Matchers: m}
	}
	named := func(name string) *prompb.LabelMatcher { return matcher(prompb.LabelMatcher_EQ, "__name__", name) }
	hinted := query(d.start, d.end, named("app_requests_total"), matcher(prompb.LabelMatcher_NRE, "path", "/p/[1-9]"))
	hinted.Hints = &prompb.ReadHints{StartMs: d.edge.UnixMilli(), EndMs: d.end.UnixMilli(), StepMs: 60_000, Func: "rate", RangeMs: 300_000, Grouping: []string{"path"}, By: true}
	var out []request
	for _, types := range [][]prompb.ReadRequest_ResponseType{
		nil, {prompb.ReadRequest_SAMPLES}, {prompb.ReadRequest_STREAMED_XOR_CHUNKS}, {prompb.ReadRequest_STREAMED_XOR_CHUNKS, prompb.ReadRequest_SAMPLES}, {42},
	} {
		out = append(out,
			read(types, query(d.start, d.end, named("app_temperature_celsius"))), read(types, query(d.edge, d.end, named("app_native_seconds")), query(d.start, d.edge, named("app_text"))),
			read(types, query(d.start, d.end, matcher(prompb.LabelMatcher_RE, "__name__", "app_native.*|app_value|app_gone"))), read(types, query(d.start, d.end, matcher(prompb.LabelMatcher_EQ, "job", "app"))),
			read(types, query(d.end, d.start, named("app_text"))), read(types, query(d.start, d.end)), read(types), read(types, hinted),
			read(types, query(d.start, d.end, matcher(prompb.LabelMatcher_RE, "a", "("))), read(types, query(d.start, d.end, matcher(9, "a", "b"))), read(types, query(d.start, d.end, named("app_none"))),
		)
	}
	odd := read(nil, query(d.edge, d.end, named("app_text")))
	for _, change := range []func(*request){
		func(r *request) { r.body = "nonsense" }, func(r *request) { r.body = "" }, func(r *request) { r.headers = nil }, func(r *request) { r.headers = r.headers[1:] },
		func(r *request) { r.target += "?timeout=x" }, func(r *request) { r.target += "?timeout=10s" }, func(r *request) { r.target += "?%zz" }, func(r *request) { r.http10 = true },
		func(r *request) { r.headers = append(r.headers[:3:3], "Accept-Encoding: gzip") }, func(r *request) { r.headers = append(r.headers[:3:3], "Origin: https://a.example") }, func(r *request) { r.method = http.MethodPut },
	} {
		r := odd
		change(&r)
		out = append(out, r)
	}
	return out
}

func snappy(t *testing.T, m interface{ Marshal() ([]byte, error) }) string {
	t.Helper()
	b, err := m.Marshal()
	require.NoError(t, err)
	b, err = compression.Encode(compression.Snappy, b, nil)
	require.NoError(t, err)
	return string(b)
}

// changes returns the requests that write, delete and reload, in the order in
// which they are sent.
func changes(t *testing.T, d dataset) []request {
	t.Helper()
	post := func(target, body string, headers ...string) request {
		return request{method: http.MethodPost, target: target, headers: headers, body: body}
	}
	write := post(api+"/write", snappy(t, &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{
		Labels:  []prompb.Label{{Name: "__name__", Value: "written_total"}, {Name: "job", Value: "app"}},
		Samples: []prompb.Sample{{Value: 7, Timestamp: d.end.UnixMilli()}},
	}}}), "Content-Encoding: snappy", "Content-Type: application/x-protobuf", "X-Prometheus-Remote-Write-Version: 0.1.0")
	late := post(api+"/write", snappy(t, &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{
		Labels:  []prompb.Label{{Name: "__name__", Value: "written_total"}, {Name: "job", Value: "app"}},
		Samples: []prompb.Sample{{Value: 8, Timestamp: d.start.UnixMilli()}},
	}}}), write.headers...)
	otlp := fmt.Sprintf(`{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"otlp.gauge","gauge":{"dataPoints":[{"asDouble":3,"timeUnixNano":"%d"}]}}]}]}]}`, d.end.UnixNano())
	const admin = api + "/admin/tsdb"
	out := []request{
		write, late, post(api+"/write", "nonsense", write.headers...), post(api+"/write", "", write.headers...), post(api+"/write", write.body), post(api+"/write", write.body, "Content-Encoding: gzip"), post(api+"/write", "x", "Content-Type: application/json"),
		post(api+"/otlp/v1/metrics", otlp, "Content-Type: application/json"), post(api+"/otlp/v1/metrics", "{", "Content-Type: application/json"), post(api+"/otlp/v1/metrics", otlp), post(api+"/otlp/v1/metrics", ""),
		post(api+"/query", form("query", `written_total or {__name__="otlp.gauge"} or {__name__=~"otlp.*"}`, "time", unix(d.end)), formType),
		post(admin+"/delete_series", ""), post(admin+"/delete_series?match[]={", ""), post(admin+"/delete_series?"+form("match[]", "app_value", "start", "x"), ""),
		post(admin+"/delete_series?"+form("match[]", "app_value", "start", unix(d.edge.Add(-30*time.Minute)), "end", unix(d.end)), ""),
		{method: http.MethodPut, target: admin + "/delete_series?" + form("match[]", `app_text{text="é"}`)},
		{method: http.MethodGet, target: api + "/query?" + form("query", `{__name__=~"app_value|app_text"}[4h]`, "time", unix(d.end))},
		post(admin+"/clean_tombstones", ""),
		{method: http.MethodPut, target: admin + "/clean_tombstones"},
		post(admin+"/snapshot?skip_head=x", ""), post(admin+"/snapshot?skip_head=true", ""),
		{method: http.MethodPut, target: admin + "/snapshot"},
		{method: http.MethodGet, target: api + "/query?" + form("query", `{__name__=~"app_value|app_text"}[4h]`, "time", unix(d.end))},
	}
	for _, path := range []string{"/-/reload", admin + "/snapshot", admin + "/delete_series", admin + "/clean_tombstones"} {
		for _, m := range []string{http.MethodGet, http.MethodHead, http.MethodDelete, http.MethodOptions} {
			out = append(out, request{method: m, target: path})
		}
	}
	return append(out, post("/-/reload", ""), request{method: http.MethodPut, target: "/-/reload"})
}

// fixed are queries over everything that was in the data directory from the
// start, whose answers no scrape and no rule changes.
func fixed(d dataset) []request {
	var out []request
	for _, q := range []string{
		form("query", `{job="app",__name__=~"app_[a-f].*|app_l.*sum"}[5h]`, "time", unix(d.end)), form("query", `{job="app",__name__=~"app_native.*"}[5h]`, "time", unix(d.end)),
		form("query", `{job="app",__name__=~"app_requests_total",path="/p/1"}[5h]`, "time", unix(d.end)), form("query", `{job="app",__name__=~"app_[0-9g-ko-z].*",instance=~".*0:8080|"}[40m]`, "time", unix(d.end)),
		form("query", `count by (__name__) ({job="app"})`, "time", unix(d.end)), form("query", `sum by (__name__) (count_over_time({job="app",__name__!~"app_(native|text|value).*"}[5h]))`, "time", unix(d.end)),
	} {
		out = append(out, request{method: http.MethodGet, target: api + "/query?" + q})
	}
	match := form("match[]", `{job="app"}`, "start", unix(d.start), "end", unix(d.end))
	for _, use := range []string{"true", "0", "x", ""} {
		out = append(out, request{method: http.MethodGet, target: api + "/query?" + form("query", "rate(app_requests_total[5m])", "time", unix(d.end)), headers: []string{"X-Prometheus-Use-Start-Timestamps: " + use}})
	}
	return append(out,
		request{method: http.MethodGet, target: api + "/series?" + match}, request{method: http.MethodGet, target: api + "/labels?" + match}, request{method: http.MethodGet, target: api + "/label/__name__/values?" + match},
		request{method: http.MethodGet, target: api + "/query_exemplars?" + form("query", "app_requests_total", "start", unix(d.start), "end", unix(d.end))})
}
