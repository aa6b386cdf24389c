// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/promguard/promguard/internal/querylimit"
)

// promQL says what kind of PromQL an endpoint takes.
type promQL uint8

const (
	noPromQL    promQL = iota
	expression         // query=, evaluated
	selectorsOf        // query=, of which only the selectors are read
	matchList          // match[]=
	matchTarget        // match_target=
)

// timeRange says which times of a request count.
type timeRange uint8

const (
	noTime       timeRange = iota
	timeInstant            // time=, of an evaluation
	timeSteps              // start=, end=, step=, of an evaluation
	timeWindow             // start=, end=, of what is read as it stands
	timeMetadata           // the same, of metadata
)

// endpoint is one open route of the API and what its handler reads. Parameters
// that it does not list do not reach the server.
type endpoint struct {
	path    string
	class   querylimit.Class
	post    bool
	scalars []string // read once, by FormValue or Query().Get
	lists   []string // read as a list, in order
	takes   promQL
	reads   timeRange
	results *querylimit.ResultSet // what limit= counts; nil if that is not limited
	// wrapsErrors is set where Prometheus words a parse error as
	// invalid parameter "...", and not set where it gives the bare error.
	wrapsErrors bool
}

const (
	apiPrefix   = "/api/v1/"
	labelPrefix = apiPrefix + "label/"
	labelSuffix = "/values"
)

// endpoints is what is open, as of Prometheus 3.15 (web/api/v1/api.go). What is
// not here, such as admin, write, remote read and federation, is closed. Every
// endpoint takes timeout, which the guard itself honours.
func endpoints() []*endpoint {
	const q, m, s = querylimit.ClassQuery, querylimit.ClassMetadata, querylimit.ClassStatus
	results := func(s querylimit.ResultSet) *querylimit.ResultSet { return &s }
	list := []*endpoint{
		{path: "query", class: q, post: true, takes: expression, wrapsErrors: true, reads: timeInstant, results: results(querylimit.ResultsQuery),
			scalars: []string{"query", "time", "limit", "lookback_delta", "stats"}},
		{path: "query_range", class: q, post: true, takes: expression, wrapsErrors: true, reads: timeSteps, results: results(querylimit.ResultsQuery), scalars: []string{"query", "start", "end", "step", "limit", "lookback_delta", "stats"}},
		{path: "query_exemplars", class: q, post: true, takes: selectorsOf, reads: timeWindow, scalars: []string{"query", "start", "end"}},
		{path: "format_query", class: m, post: true, takes: expression, wrapsErrors: true, scalars: []string{"query"}},
		{path: "parse_query", class: m, post: true, takes: expression, wrapsErrors: true, scalars: []string{"query"}},
		{path: "labels", class: m, post: true, takes: matchList, reads: timeMetadata, results: results(querylimit.ResultsLabels), scalars: []string{"start", "end", "limit"}, lists: []string{"match[]"}},
		{path: "label/:name/values", class: m, takes: matchList, reads: timeMetadata, results: results(querylimit.ResultsLabelValues), scalars: []string{"start", "end", "limit"}, lists: []string{"match[]"}},
		{path: "series", class: m, post: true, takes: matchList, wrapsErrors: true, reads: timeMetadata, results: results(querylimit.ResultsSeries), scalars: []string{"start", "end", "limit"}, lists: []string{"match[]"}},
		{path: "metadata", class: m, scalars: []string{"metric", "limit", "limit_per_metric"}},
		{path: "targets", class: s, scalars: []string{"scrapePool", "state"}},
		{path: "targets/metadata", class: m, takes: matchTarget, wrapsErrors: true, scalars: []string{"match_target", "metric", "limit"}},
		{path: "rules", class: s, takes: matchList, scalars: []string{"type", "exclude_alerts", "group_limit", "group_next_token"}, lists: []string{"match[]", "rule_name[]", "rule_group[]", "file[]"}},
		{path: "alerts", class: s},
		{path: "alertmanagers", class: s},
		{path: "scrape_pools", class: s},
		{path: "features", class: s},
		{path: "status/buildinfo", class: s},
		{path: "status/runtimeinfo", class: s},
		{path: "status/flags", class: s},
		{path: "status/config", class: s},
		{path: "status/tsdb", class: s, scalars: []string{"limit"}},
		{path: "status/walreplay", class: s},
	}
	for _, e := range list {
		e.path = apiPrefix + e.path
		e.scalars = append(e.scalars, "timeout")
	}
	return list
}

// name is the endpoint's path below the API's root.
func (e *endpoint) name() string { return strings.TrimPrefix(e.path, apiPrefix) }

func (e *endpoint) isScalar(name string) bool { return slices.Contains(e.scalars, name) }
func (e *endpoint) isList(name string) bool   { return slices.Contains(e.lists, name) }

// allows reports whether the endpoint answers the method. OPTIONS is what a
// browser asks before it sends a request from another origin.
func (e *endpoint) allows(method string) bool {
	return method == http.MethodGet || method == http.MethodOptions || e.post && method == http.MethodPost
}

// allowHeader is the value of the header Allow of a 405.
func (e *endpoint) allowHeader() string {
	if e.post {
		return "GET, OPTIONS, POST"
	}
	return "GET, OPTIONS"
}

// router finds endpoints by decoded path. It compares segments and never cleans
// or redirects: a path that needs cleaning is no endpoint.
type router struct {
	static map[string]*endpoint
	values *endpoint // label/:name/values
	open   string    // what to tell who asked for something else
}

func newRouter() *router {
	r := &router{static: map[string]*endpoint{}}
	var names []string
	for _, e := range endpoints() {
		names = append(names, strings.TrimPrefix(e.path, apiPrefix))
		if strings.HasPrefix(e.path, labelPrefix) {
			r.values = e
			continue
		}
		r.static[e.path] = e
	}
	r.open = strings.Join(names, ", ")
	return r
}

// find returns the endpoint, and the label of label/:name/values, or nil.
func (r *router) find(u *url.URL) (e *endpoint, label string) {
	// A slash that was escaped stands inside a segment here and between two
	// segments in the decoded path that Prometheus's router looks at.
	if strings.Contains(u.RawPath, "%2f") || strings.Contains(u.RawPath, "%2F") {
		return nil, ""
	}
	if e, ok := r.static[u.Path]; ok {
		return e, ""
	}
	label, ok := strings.CutPrefix(u.Path, labelPrefix)
	if !ok {
		return nil, ""
	}
	label, ok = strings.CutSuffix(label, labelSuffix)
	if !ok || label == "" || label == "." || label == ".." || strings.Contains(label, "/") {
		return nil, ""
	}
	return r.values, label
}
