// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"regexp"
	"slices"
	"strings"
)

// onBuild is the patched build with every guard at its default. The corpus is
// below every limit, so that it must answer as stock does, but for the exceptions.
func onBuild() build {
	return build{name: "patched, guards on", binary: "prometheus", exceptions: onExceptions, mayLog: map[string]bool{
		"INFO promguard":                                             true,
		`INFO "WAL replay uses all processors"`:                      true,
		`INFO "WAL replay uses fewer processors"`:                    true,
		`INFO "WAL replay has ended, all processors are used again"`: true,
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
		why: "timeout= shortens the deadline of every read, so that a malformed one is an error where stock does not look at it",
		of: func(r request) bool {
			return !slices.Contains([]string{api + "/query", api + "/query_range"}, r.path()) && badTimeout.MatchString(r.target+"&"+r.body)
		},
		meant: func(a reply) bool {
			return a.status == "HTTP/1.1 400 Bad Request" && strings.Contains(a.body, "timeout")
		},
	},
	{
		why: "promguard's own metrics, and the routes that have answered such a malformed timeout= with 400",
		of:  path("/metrics"),
		hide: func(body string) string {
			return requestsWith400.ReplaceAllString(promguardSeries.ReplaceAllString(body, ""), "")
		},
	},
}

var (
	badTimeout      = regexp.MustCompile(`[?&]timeout=(x|nonsense|0|-1)(&|$)`)
	promguardSeries = regexp.MustCompile(`(?m)^(# (HELP|TYPE) )?promguard_.*(\n|$)`)
	requestsWith400 = regexp.MustCompile(`(?m)^prometheus_http_requests_total\{code="400",.*(\n|$)`)
)

// excepts says that the build's answer is meant to be what it is. It hides in
// both answers what is meant to differ.
func (b build) excepts(r request, stock, got *reply) bool {
	for _, e := range b.exceptions {
		if !e.of(r) {
			continue
		}
		if e.hide != nil {
			stock.body, got.body = e.hide(stock.body), e.hide(got.body)
		}
		if e.meant != nil && e.meant(*got) {
			return true
		}
	}
	return false
}
