// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/json"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// onBuild is the patched build with every --guard.* flag at its default, but for the
// limit of memory: it adds scrape_series_refused to what is stored of each target, and
// so to every list and count. The corpus is below every limit, so that it must answer as
// stock does, but for the exceptions.
func onBuild() build {
	flags := func(agent bool) []string {
		if agent {
			return nil
		}
		return []string{"--guard.memory-limit=off"}
	}
	return build{name: "patched, --guard.* on", binary: "prometheus", flags: flags, exceptions: onExceptions, mayLog: map[string]bool{
		"INFO promguard": true,
		`INFO "WAL checkpoint and segments loaded"`: true, // Where stock logs each.
		`INFO "WAL segment loaded"`:                 true,
		`INFO "WAL checkpoint loaded"`:              true,
		// Where there is none, or the log is replayed faster.
		`INFO "Chunk snapshot is enabled, replaying from the snapshot"`: true,
		`INFO "Chunk snapshot loading time"`:                            true,
		`INFO "Memory budget for reads"`:                                true,
		`INFO "Default drop rules discard series"`:                      true,
		`INFO "WAL replay uses all processors"`:                         true,
		`INFO "WAL replay uses fewer processors"`:                       true,
		`INFO "WAL replay has ended, all processors are used again"`:    true,
	}}
}

// An exception is a kind of request that a build is meant to answer differently.
// One of meant and hide is set.
type exception struct {
	why string
	of  func(request) bool
	// meant says that an answer is the one that is meant to differ. Another
	// answer must be stock's.
	meant func(reply) bool
	// hide cuts what is meant to differ out of the body, of stock's answer too.
	hide func(body string) string
}

var onExceptions = []exception{
	{
		why: "timeout= shortens the deadline of every read: a malformed one is an error before the handler runs, also where stock does not look at it",
		of:  func(r request) bool { return badTimeout.MatchString(r.target + "&" + r.body) },
		meant: func(a reply) bool {
			return a.status == "HTTP/1.1 400 Bad Request" && strings.Contains(a.body, "timeout")
		},
	},
	{
		why: "a malformed form is an error before the handler runs, also where stock reads on without what it could not parse",
		of:  malformedForm,
		meant: func(a reply) bool {
			return a.status == "HTTP/1.1 400 Bad Request" && strings.Contains(a.body, "error parsing form values")
		},
	},
	{
		why: "the status of the replay says in addition how far it is in bytes",
		of:  func(r request) bool { return r.path() == api+"/status/walreplay" },
		meant: func(a reply) bool {
			return strings.HasSuffix(a.status, " 200 OK") && strings.Contains(a.body, `"percent":`)
		},
	},
	{
		why: "series of several selectors are sent as they are selected, not sorted",
		of: func(r request) bool {
			return r.path() == api+"/series" && severalSelectors.MatchString(r.target+"&"+r.body)
		},
		hide: sortSeries,
	},
	{
		why: "so limit= cuts them elsewhere",
		of: func(r request) bool {
			return r.path() == api+"/series" && severalSelectors.MatchString(r.target+"&"+r.body) && strings.Contains(r.target+"&"+r.body, "limit=")
		},
		meant: func(a reply) bool {
			return a.status == "HTTP/1.1 200 OK" && strings.Contains(a.body, "results truncated due to limit")
		},
	},
	{
		why: "an answer that ends with the connection over HTTP/1.0 has a length, or a part of it would look whole",
		of:  func(r request) bool { return r.http10 && (r.path() == api+"/read" || r.path() == "/federate") },
		meant: func(a reply) bool {
			return strings.HasSuffix(a.status, " 200 OK") && slices.ContainsFunc(a.headers, func(h string) bool { return strings.HasPrefix(h, "Content-Length: ") })
		},
	},
	{
		why: "where the web UI is not built in, its pages say so, and are no defect of the server",
		of:  func(r request) bool { return slices.Contains(uiPages, r.path()) },
		meant: func(a reply) bool {
			return strings.HasSuffix(a.status, " 200 OK") && strings.Contains(a.body, "built without its web UI")
		},
	},
	{
		why: "what is not enabled is unavailable, not a defect of the server",
		of: func(r request) bool {
			return strings.HasPrefix(r.path(), api+"/search/") || strings.HasPrefix(r.path(), api+"/admin/")
		},
		meant: func(a reply) bool {
			return strings.HasSuffix(a.status, " 503 Service Unavailable") && strings.Contains(a.body, `"errorType":"unavailable"`)
		},
	},
	{
		why: "targets show their drop rules among the labels before relabelling",
		of:  path(api + "/targets"),
		hide: func(body string) string {
			return strings.ReplaceAll(body, `"__promguard_drop_rules__":"recommended",`, "")
		},
	},
	{
		why: "promguard's own metrics and routes, and the routes that have answered what is malformed with 400, or what is unavailable with 503",
		of:  path("/metrics"),
		hide: func(body string) string {
			return requestsRefused.ReplaceAllString(promguardSeries.ReplaceAllString(body, ""), "")
		},
	},
}

// uiPages are what the web UI serves.
var uiPages = []string{
	"/query", "/graph", "/alerts", "/rules", "/targets", "/config", "/flags", "/status", "/tsdb-status", "/service-discovery", "/alertmanager-discovery",
}

var (
	badTimeout       = regexp.MustCompile(`[?&]timeout=(x|nonsense|soon|0|-1|-1s|1e30)(&|$)`)
	severalSelectors = regexp.MustCompile(`match(%5B%5D|\[\])=.*&match(%5B%5D|\[\])=`)
	promguardSeries  = regexp.MustCompile(`(?m)^(# (HELP|TYPE) )?(prometheus_guard_|.*handler="(/api/v1/status)?/guard[/"]).*(\n|$)`)
	requestsRefused  = regexp.MustCompile(`(?m)^prometheus_http_requests_total\{code="(400|500|503)",.*(\n|$)`)
)

// malformedForm says that net/http cannot parse the request's form, or may not:
// of forms in several parts, the answer says.
func malformedForm(r request) bool {
	_, query, _ := strings.Cut(r.target, "?")
	if _, err := url.ParseQuery(query); err != nil {
		return true
	}
	if r.method != http.MethodPost {
		return false
	}
	_, contentType, _ := strings.Cut(r.header("Content-Type"), ":")
	media, _, err := mime.ParseMediaType(strings.TrimSpace(contentType))
	if media == "application/x-www-form-urlencoded" && err == nil {
		_, err = url.ParseQuery(r.body)
	}
	const mostBytes = 10 << 20 // Of net/http.
	return err != nil || media == "multipart/form-data" || len(r.body) > mostBytes
}

// header returns the request's header line of that name, or "".
func (r request) header(name string) string {
	i := slices.IndexFunc(r.headers, func(h string) bool { return strings.HasPrefix(h, name+":") })
	if i < 0 {
		return ""
	}
	return r.headers[i]
}

// sortSeries sorts the data of an answer; one that is no list stays as it is.
func sortSeries(body string) string {
	var a struct {
		Data []json.RawMessage `json:"data"`
	}
	if json.Unmarshal([]byte(body), &a) != nil {
		return body
	}
	list := func() string {
		elements := make([]string, len(a.Data))
		for i, series := range a.Data {
			elements[i] = string(series)
		}
		return "[" + strings.Join(elements, ",") + "]"
	}
	before := list()
	slices.SortFunc(a.Data, func(a, b json.RawMessage) int { return strings.Compare(string(a), string(b)) })
	return strings.Replace(body, before, list(), 1)
}

// excepts says that the build's answer is meant to be what it is. It hides in
// both answers what is meant to differ.
func (b build) excepts(r request, stock, got *reply) bool {
	for _, e := range b.exceptions {
		if !e.of(r) {
			continue
		}
		if e.hide != nil {
			before := len(got.body)
			stock.body, got.body = e.hide(stock.body), e.hide(got.body)
			if len(got.body) != before {
				stock.headers, got.headers = withoutLength(stock.headers), withoutLength(got.headers)
			}
		}
		if e.meant != nil && e.meant(*got) {
			return true
		}
	}
	return false
}
