// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package web

import (
	"html/template"
	"net/http"
	"path"
)

// withoutUI answers for the pages of the web UI, which is not embedded, with one that
// says so and what to open instead. It answers nothing, and returns false, without
// limits of reads: the answer is upstream's then.
func (h *Handler) withoutUI(w http.ResponseWriter) bool {
	if h.options.Reads == nil {
		return false
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	// An error here means that the client is gone; there is nobody to tell.
	_ = withoutUIPage.Execute(w, func(p string) string { return path.Join("/", h.options.ExternalURL.Path, p) })
	return true
}

var withoutUIPage = template.Must(template.New("").Parse(`<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>Prometheus without its web UI</title></head>
<body>
<h1>This Prometheus was built without its web UI</h1>
<p>Everything else works. <code>make prometheus UI=1</code> builds it with the web UI. Until then:</p>
<ul>
<li><a href="{{call . "/guard"}}">what runs, who asks, what is refused</a></li>
<li><a href="{{call . "/metrics"}}">its own metrics</a></li>
<li><a href="{{call . "/-/ready"}}">whether it is ready</a>, and <a href="{{call . "/-/healthy"}}">healthy</a></li>
<li><a href="{{call . "/api/v1/query"}}?query=up">a query</a></li>
<li><a href="{{call . "/api/v1/targets"}}">targets</a>, <a href="{{call . "/api/v1/rules"}}">rules</a> and <a href="{{call . "/api/v1/alerts"}}">alerts</a></li>
<li>status: <a href="{{call . "/api/v1/status/guard/queries"}}">the reads that run and wait</a>,
<a href="{{call . "/api/v1/status/runtimeinfo"}}">runtime</a>, <a href="{{call . "/api/v1/status/buildinfo"}}">build</a>,
<a href="{{call . "/api/v1/status/flags"}}">flags</a>, <a href="{{call . "/api/v1/status/config"}}">configuration</a>,
<a href="{{call . "/api/v1/status/tsdb"}}">series</a>, <a href="{{call . "/api/v1/status/walreplay"}}">replay of the write-ahead log</a></li>
</ul>
</body>
</html>
`))
