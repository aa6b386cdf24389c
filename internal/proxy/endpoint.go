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

// endpoint is one open route of the API and what its handler reads. Parameters
// that it does not list do not reach the server.
type endpoint struct {
	*querylimit.Endpoint

	path    string
	post    bool
	scalars []string // read once, by FormValue or Query().Get
	lists   []string // read as a list, in order
	// wrapsErrors is set where Prometheus words a parse error as
	// invalid parameter "...", and not set where it gives the bare error.
	wrapsErrors bool
	bulk        bulk
}

const (
	apiPrefix   = "/api/v1/"
	labelPrefix = apiPrefix + "label/"
	labelSuffix = "/values"
)

// endpoints is what is open, as of Prometheus 3.16 (web/api/v1/api.go), and, at its
// end, what a policy can open. What is not here, such as admin and write, is closed.
// Every endpoint takes timeout, which the guard itself honours.
func endpoints(kind Kind) []*endpoint {
	list := []*endpoint{
		{path: "query", post: true, wrapsErrors: true, scalars: []string{"query", "time", "limit", "lookback_delta", "stats"}},
		{path: "query_range", post: true, wrapsErrors: true, scalars: []string{"query", "start", "end", "step", "limit", "lookback_delta", "stats"}},
		{path: "query_cost", post: true, wrapsErrors: true, scalars: []string{"query", "time", "limit", "lookback_delta", "stats"}},
		{path: "query_range_cost", post: true, wrapsErrors: true, scalars: []string{"query", "start", "end", "step", "limit", "lookback_delta", "stats"}},
		{path: "query_exemplars", post: true, scalars: []string{"query", "start", "end"}},
		{path: "format_query", post: true, wrapsErrors: true, scalars: []string{"query"}},
		{path: "parse_query", post: true, wrapsErrors: true, scalars: []string{"query"}},
		{path: "labels", post: true, scalars: []string{"start", "end", "limit"}, lists: []string{"match[]"}},
		{path: "label/:name/values", scalars: []string{"start", "end", "limit"}, lists: []string{"match[]"}},
		{path: "series", post: true, wrapsErrors: true, scalars: []string{"start", "end", "limit"}, lists: []string{"match[]"}},
		{path: "metadata", scalars: []string{"metric", "limit", "limit_per_metric"}},
		{path: "targets", scalars: []string{"scrapePool", "state"}},
		{path: "targets/metadata", wrapsErrors: true, scalars: []string{"match_target", "metric", "limit"}},
		{path: "rules", scalars: []string{"type", "exclude_alerts", "group_limit", "group_next_token"}, lists: []string{"match[]", "rule_name[]", "rule_group[]", "file[]"}},
		{path: "alerts"},
		{path: "alertmanagers"},
		{path: "scrape_pools"},
		{path: "features"},
		{path: "status/buildinfo"},
		{path: "status/runtimeinfo"},
		{path: "status/flags"},
		{path: "status/config"},
		{path: "status/tsdb", scalars: []string{"limit"}},
		{path: "status/walreplay"},
	}
	list = append(list, bulkEndpoints()...)
	for _, e := range list {
		e.Endpoint = querylimit.FindEndpoint(e.path)
		e.path = e.prefix() + e.path
		e.scalars = append(e.scalars, "timeout")
		if e.evaluates() {
			e.scalars = append(e.scalars, costParams...)
		}
		e.widen(kind)
	}
	return list
}

// evaluates reports whether the endpoint evaluates PromQL, or estimates what that
// would cost.
func (e *endpoint) evaluates() bool {
	return e.Reads == querylimit.ReadsInstant || e.Reads == querylimit.ReadsSteps
}

func (e *endpoint) isScalar(name string) bool { return slices.Contains(e.scalars, name) }
func (e *endpoint) isList(name string) bool   { return slices.Contains(e.lists, name) }

// allows reports whether the endpoint answers the method. OPTIONS is what a
// browser asks before it sends a request from another origin.
func (e *endpoint) allows(method string) bool {
	return method == http.MethodGet && e.bulk != bulkRead || method == http.MethodOptions || e.post && method == http.MethodPost
}

// allowHeader is the value of the header Allow of a 405.
func (e *endpoint) allowHeader() string {
	switch {
	case e.bulk == bulkRead:
		return "OPTIONS, POST"
	case e.post:
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
	prefix string    // of all paths
}

func newRouter(kind Kind) *router {
	r := &router{static: map[string]*endpoint{}}
	var names []string
	for _, e := range endpoints(kind) {
		if e.bulk == notBulk {
			names = append(names, strings.TrimPrefix(e.path, apiPrefix))
		}
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
	path, ok := strings.CutPrefix(u.Path, r.prefix)
	if !ok {
		return nil, ""
	}
	if e, ok := r.static[path]; ok {
		return e, ""
	}
	label, ok = strings.CutPrefix(path, labelPrefix)
	if !ok {
		return nil, ""
	}
	label, ok = strings.CutSuffix(label, labelSuffix)
	if !ok || label == "" || label == "." || label == ".." || strings.Contains(label, "/") {
		return nil, ""
	}
	return r.values, label
}
