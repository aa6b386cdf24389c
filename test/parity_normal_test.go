// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"compress/gzip"
	"compress/zlib"
	"encoding/json"
	"io"
	"regexp"
	"slices"
	"strings"
)

// A volatile names what upstream itself answers differently each time. Nothing
// else is normalised: the test fails if two stock servers differ in anything
// that is not named here, and if something named here never differs.
type volatile struct {
	name string
	// of says which requests it is about.
	of func(request) bool
	// fields are cut out of the body: what their first group matches.
	fields []*regexp.Regexp
	// clean is for what is not a field.
	clean func(body string) string
	// seldom says that it differs by chance, and need not in every run.
	seldom bool
}

func path(paths ...string) func(request) bool {
	return func(r request) bool { return slices.Contains(paths, r.path()) }
}

// jsonFields match the values of members, whether numbers or strings.
func jsonFields(names ...string) []*regexp.Regexp {
	var out []*regexp.Regexp
	for _, n := range names {
		out = append(out, regexp.MustCompile(`"`+n+`":("[^"]*"|[-+.eE0-9]+)`))
	}
	return out
}

func withParam(path, param string) func(request) bool {
	return func(r request) bool {
		return r.path() == path && (strings.Contains(r.target, param) || strings.Contains(r.body, param))
	}
}

var volatiles = []volatile{
	{name: "when a target was scraped, and how long it took", of: path(api + "/targets"), fields: jsonFields("lastScrape", "lastScrapeDuration")},
	{name: "when a rule was evaluated, and how long it took", of: path(api + "/rules"), fields: jsonFields("lastEvaluation", "evaluationTime", "activeAt")},
	{name: "the order of a target's metadata", of: path(api + "/targets/metadata"), clean: sortTargets, seldom: true},
	{name: "since when an alert is active", of: path(api + "/alerts"), fields: jsonFields("activeAt"), seldom: true},
	{name: "the process and its start", of: path(api + "/status/runtimeinfo"), fields: jsonFields("startTime", "CWD", "serverTime", "goroutineCount", "lastConfigTime")},
	{name: "the newest sample, which is of the last scrape, and the order of equal counts", of: path(api + "/status/tsdb"), fields: jsonFields("maxTime", "chunkCount"), clean: sortCounts, seldom: true},
	{name: "the samples of scrapes and rules that are federated", of: path("/federate"), fields: []*regexp.Regexp{regexp.MustCompile(`(?m)^[^#\n]*job="(?:target|nobody|rules)"[^}]*\} (\S+ \d+)$`)}, seldom: true},
	{name: "how long a query took", of: withParam(api+"/query", "stats"), fields: []*regexp.Regexp{regexp.MustCompile(`"timings":(\{[^}]*\})`)}},
	{name: "how long a range query took", of: withParam(api+"/query_range", "stats"), fields: []*regexp.Regexp{regexp.MustCompile(`"timings":(\{[^}]*\})`)}},
	{name: "the time of a query that names none", of: timeless, fields: []*regexp.Regexp{regexp.MustCompile(`"value":\[([-+.eE0-9]+),`), regexp.MustCompile(`"result":\[([-+.eE0-9]+),`)}, seldom: true},
	{name: "the values of the server's own metrics", of: path("/metrics"), clean: seriesOf},
	{name: "what the process does at the moment", of: path("/debug/pprof/", "/debug/pprof/goroutine"), clean: func(string) string { return "" }},
	{name: "the name of a snapshot", of: path(api + "/admin/tsdb/snapshot"), fields: jsonFields("name")},
	{name: "the time of a notification", of: path(api+"/notifications", api+"/notifications/live"), fields: jsonFields("date"), seldom: true},
}

func timeless(r request) bool {
	return r.path() == api+"/query" && !regexp.MustCompile(`(^|[?&;])time=[0-9]`).MatchString(r.target+"&"+r.body)
}

var (
	counts = regexp.MustCompile(`\{"name":[^{}]*\}(,\{"name":[^{}]*\})*`)
	count  = regexp.MustCompile(`\{"name":"[^"]*","value":(\d+)\}`)
)

// sortCounts puts lists of counted names in one order, without those with the
// smallest count: which of them the list still holds is upstream's chance.
func sortCounts(body string) string {
	return counts.ReplaceAllStringFunc(body, func(list string) string {
		found := count.FindAllStringSubmatch(list, -1)
		smallest := found[len(found)-1][1]
		var kept []string
		for _, c := range found {
			if c[1] != smallest {
				kept = append(kept, c[0])
			}
		}
		slices.Sort(kept)
		return strings.Join(kept, ",")
	})
}

// sortTargets puts the list of targets in one order.
func sortTargets(body string) string {
	targets := strings.Split(strings.TrimSuffix(body, "]}"), `{"target":`)
	for i := range targets {
		targets[i] = strings.TrimSuffix(targets[i], ",")
	}
	slices.Sort(targets)
	return strings.Join(targets, "\n")
}

// seriesOf leaves the names, the help, the types and the labels of an
// exposition, without the values.
func seriesOf(body string) string {
	var out []string
	for line := range strings.Lines(body) {
		line = strings.TrimSuffix(line, "\n")
		if strings.Contains(line, `handler="/-/ready"`) {
			continue // The tests ask until it is ready.
		}
		if strings.Contains(line, "prometheus_target_interval_length_") {
			continue // It is there from the second scrape on.
		}
		if !strings.HasPrefix(line, "#") {
			line = line[:max(0, strings.LastIndexByte(line, ' '))]
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

// normal returns the answer without what is volatile, and the name of what was
// left out.
func normal(r request, a reply) (reply, string) {
	a.body = sortWarnings(a.body)
	for _, v := range volatiles {
		if !v.of(r) {
			continue
		}
		a = decoded(a)
		for _, f := range v.fields {
			a.body = cut(f, a.body)
		}
		if v.clean != nil {
			a.body = v.clean(a.body)
		}
		a.headers = withoutLength(a.headers)
		return a, v.name
	}
	return a, ""
}

var warningsList = regexp.MustCompile(`"warnings":\[("(?:[^"\\]|\\.)*",?)+\]`)

// sortWarnings puts an answer's warnings in one order: upstream keeps them in a
// map.
func sortWarnings(body string) string {
	return warningsList.ReplaceAllStringFunc(body, func(list string) string {
		var warnings []string
		if json.Unmarshal([]byte(strings.TrimPrefix(list, `"warnings":`)), &warnings) != nil || len(warnings) < 2 {
			return list
		}
		slices.Sort(warnings)
		sorted, err := json.Marshal(warnings)
		if err != nil {
			return list
		}
		return `"warnings":` + string(sorted)
	})
}

// decoded is the answer before it was compressed; what cannot be decoded stays.
func decoded(a reply) reply {
	var reader io.ReadCloser
	var err error
	switch {
	case slices.Contains(a.headers, "Content-Encoding: gzip"):
		reader, err = gzip.NewReader(strings.NewReader(a.body))
	case slices.Contains(a.headers, "Content-Encoding: deflate"):
		reader, err = zlib.NewReader(strings.NewReader(a.body))
	default:
		return a
	}
	if err != nil {
		return a
	}
	if body, err := io.ReadAll(reader); err == nil {
		a.body = string(body)
	}
	return a
}

// withoutLength leaves out the length of a body that was normalised.
func withoutLength(headers []string) []string {
	return slices.DeleteFunc(slices.Clone(headers), func(h string) bool { return strings.HasPrefix(h, "Content-Length:") })
}

// cut replaces what the expression's first group matches.
func cut(re *regexp.Regexp, s string) string {
	var out strings.Builder
	at := 0
	for _, m := range re.FindAllStringSubmatchIndex(s, -1) {
		out.WriteString(s[at:m[2]] + "*")
		at = m[3]
	}
	return out.String() + s[at:]
}

// A named difference is one that the patched build is meant to show, also with
// every --guard.* flag off.
type namedDifference struct {
	why string
	of  func(request) bool
	// hide makes both answers the same.
	hide func(body string) string
}

var (
	versionStamp  = regexp.MustCompile(`3\.\d+\.\d+(\+promguard\.\d+|-[0-9a-f]{12})?`) // The latter of the branch.
	dateStamp     = regexp.MustCompile(`build ?[dD]ate"?: *"?[-:\d]*`)
	revisionStamp = regexp.MustCompile(`"?revision"?[:=]"([^"]*)"`)
	guardFlag     = regexp.MustCompile(`"(?:no-)?guard\.[^"]*":"[^"]*",`)
)

var namedDifferences = []namedDifference{
	{
		why: "the version says which build it is",
		of:  path(api+"/status/buildinfo", api+"/openapi.yaml", "/version", "/metrics"),
		hide: func(body string) string {
			body = dateStamp.ReplaceAllString(versionStamp.ReplaceAllString(body, "VERSION"), "date")
			return cut(revisionStamp, body)
		},
	},
	{
		why:  "protojson puts spaces into its output that depend on the binary",
		of:   path(api + "/status/self_metrics"),
		hide: func(body string) string { return strings.ReplaceAll(body, " ", "") },
	},
	{
		why: "the flags are listed",
		of:  path(api + "/status/flags"),
		hide: func(body string) string {
			return guardFlag.ReplaceAllString(body, "")
		},
	},
	{
		why:  "the command line has the flags",
		of:   path("/debug/pprof/cmdline"),
		hide: func(string) string { return "" },
	},
}

// acrossBuilds returns the answer without what may differ between two builds.
func acrossBuilds(r request, a reply) reply {
	for _, d := range namedDifferences {
		if d.of(r) {
			a = decoded(a)
			a.body = d.hide(a.body)
			a.headers = withoutLength(a.headers)
		}
	}
	return a
}
