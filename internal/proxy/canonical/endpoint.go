// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package canonical

import (
	"net/http"
	"slices"

	"github.com/promguard/promguard/internal/proxy/upstream"
	"github.com/promguard/promguard/internal/querylimit"
)

// Endpoint is one route of the API and what its handler reads. Parameters that it
// does not list do not reach the server.
type Endpoint struct {
	*querylimit.Endpoint

	// Path is that of the endpoint, below the root of the server.
	Path    string
	post    bool
	scalars []string // read once, by FormValue or Query().Get
	lists   []string // read as a list, in order
	// wrapsErrors is set where Prometheus words a parse error as
	// invalid parameter "...", and not set where it gives the bare error.
	wrapsErrors bool
}

const (
	apiPrefix   = "/api/v1/"
	labelPrefix = apiPrefix + "label/"
	labelSuffix = "/values"
)

// endpoints is what is open, as of Prometheus 3.16 (web/api/v1/api.go), and, at its
// end, what a policy can open. What is not here, such as admin and write, is closed.
// Every endpoint takes timeout, which promguard itself honours.
func endpoints(kind upstream.Kind) []*Endpoint {
	list := []*Endpoint{
		{Path: "query", post: true, wrapsErrors: true, scalars: []string{"query", "time", "limit", "lookback_delta", "stats"}},
		{Path: "query_range", post: true, wrapsErrors: true, scalars: []string{"query", "start", "end", "step", "limit", "lookback_delta", "stats"}},
		{Path: "query_cost", post: true, wrapsErrors: true, scalars: []string{"query", "time", "limit", "lookback_delta", "stats"}},
		{Path: "query_range_cost", post: true, wrapsErrors: true, scalars: []string{"query", "start", "end", "step", "limit", "lookback_delta", "stats"}},
		{Path: "query_exemplars", post: true, scalars: []string{"query", "start", "end"}},
		{Path: "format_query", post: true, wrapsErrors: true, scalars: []string{"query"}},
		{Path: "parse_query", post: true, wrapsErrors: true, scalars: []string{"query"}},
		{Path: "labels", post: true, scalars: []string{"start", "end", "limit"}, lists: []string{"match[]"}},
		{Path: "label/:name/values", scalars: []string{"start", "end", "limit"}, lists: []string{"match[]"}},
		{Path: "series", post: true, wrapsErrors: true, scalars: []string{"start", "end", "limit"}, lists: []string{"match[]"}},
		{Path: "metadata", scalars: []string{"metric", "limit", "limit_per_metric"}},
		{Path: "targets", scalars: []string{"scrapePool", "state"}},
		{Path: "targets/metadata", wrapsErrors: true, scalars: []string{"match_target", "metric", "limit"}},
		{Path: "rules", scalars: []string{"type", "exclude_alerts", "group_limit", "group_next_token"}, lists: []string{"match[]", "rule_name[]", "rule_group[]", "file[]"}},
		{Path: "alerts"},
		{Path: "alertmanagers"},
		{Path: "scrape_pools"},
		{Path: "features"},
		{Path: "status/buildinfo"},
		{Path: "status/runtimeinfo"},
		{Path: "status/flags"},
		{Path: "status/config"},
		{Path: "status/tsdb", scalars: []string{"limit"}},
		{Path: "status/walreplay"},
		{Path: querylimit.EndpointFederate, lists: []string{"match[]"}},
		{Path: querylimit.EndpointRead, post: true},
	}
	for _, e := range list {
		e.Endpoint = querylimit.FindEndpoint(e.Path)
		e.Path = e.prefix() + e.Path
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
func (e *Endpoint) evaluates() bool {
	return e.Reads == querylimit.ReadsInstant || e.Reads == querylimit.ReadsSteps
}

func (e *Endpoint) isScalar(name string) bool { return slices.Contains(e.scalars, name) }
func (e *Endpoint) isList(name string) bool   { return slices.Contains(e.lists, name) }

// prefix is the path below which the endpoint is.
func (e *Endpoint) prefix() string {
	if e.Name == querylimit.EndpointFederate {
		return "/"
	}
	return apiPrefix
}

// isRemoteRead reports whether the endpoint takes a body of protobuf, and no form.
func (e *Endpoint) isRemoteRead() bool { return e.Name == querylimit.EndpointRead }

// Opens reports whether a policy that opens these endpoints opens this one. All but
// those of querylimit.ClassBulk are open by themselves.
func (e *Endpoint) Opens(open []string) bool {
	return e.Class != querylimit.ClassBulk || slices.Contains(open, e.Name)
}

// Allows reports whether the endpoint answers the method. OPTIONS is what a
// browser asks before it sends a request from another origin.
func (e *Endpoint) Allows(method string) bool {
	return method == http.MethodGet && !e.isRemoteRead() || method == http.MethodOptions || e.post && method == http.MethodPost
}

// Allow is the value of the header of that name of a 405.
func (e *Endpoint) Allow() string {
	switch {
	case e.isRemoteRead():
		return "OPTIONS, POST"
	case e.post:
		return "GET, OPTIONS, POST"
	}
	return "GET, OPTIONS"
}
