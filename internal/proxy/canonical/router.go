// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package canonical

import (
	"net/url"
	"strings"

	"github.com/promguard/promguard/internal/proxy/upstream"
	"github.com/promguard/promguard/internal/querylimit"
)

// Router finds endpoints by decoded path. It compares segments and never cleans
// or redirects: a path that needs cleaning is no endpoint.
type Router struct {
	static map[string]*Endpoint
	values *Endpoint // label/:name/values
	open   string    // what to tell who asked for something else
	prefix string    // of all paths
}

// NewRouter returns a router for the API of a server, as it is served below prefix.
func NewRouter(kind upstream.Kind, prefix string) *Router {
	r := &Router{static: map[string]*Endpoint{}, prefix: prefix}
	var names []string
	for _, e := range endpoints(kind) {
		if e.Class != querylimit.ClassBulk {
			names = append(names, strings.TrimPrefix(e.Path, apiPrefix))
		}
		if strings.HasPrefix(e.Path, labelPrefix) {
			r.values = e
			continue
		}
		r.static[e.Path] = e
	}
	r.open = prefix + apiPrefix + "{" + strings.Join(names, ", ") + "}"
	return r
}

// Open names the endpoints that no policy needs to open.
func (r *Router) Open() string { return r.open }

// Find returns the endpoint, and the label of label/:name/values, or nil.
func (r *Router) Find(u *url.URL) (e *Endpoint, label string) {
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
