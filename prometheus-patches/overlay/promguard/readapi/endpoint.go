// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package readapi

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/prometheus/prometheus/promguard/reads"
	"github.com/prometheus/prometheus/storage"
)

// TimeoutFlag is the name of the flag that sets the deadline, for messages.
const TimeoutFlag = "--guard.api-timeout"

// endpoint is one route with what limits it.
type endpoint struct {
	name    string
	pool    *reads.Pool // nil: never waits.
	limits  reads.Limits
	timeout time.Duration // 0: none.
	// source says where timeout comes from.
	source string
	// wait is how long a request waits for its turn.
	wait time.Duration
	// holdsDatabase says that the answer is sent while the database is open, which holds
	// up the head's compaction.
	holdsDatabase bool
	// streams says that the answer is sent while it is made. Others leave their place
	// when it begins: places are for what makes answers.
	streams bool
	// json says that errors go in the API's JSON envelope.
	json bool
	// remoteRead says that the body is a message of remote read.
	remoteRead bool
	// multipart says that the handler reads multipart forms.
	multipart bool
}

// kind groups endpoints by what they cost.
type kind int

const (
	kindUnlimited kind = iota // Writes, streams for as long as the client likes, or changes the database.
	kindStatus                // Small, or must never wait: rules, alerts, build information.
	kindMetadata              // Series, labels, targets.
	kindPrinted               // PromQL that is parsed and printed, and not evaluated.
	kindBulk                  // Federation and remote read.
	kindQuery                 // PromQL.
)

// kinds are the kinds of the routes, by prefix; the first that fits counts. A
// route that this package has not heard of is metadata.
var kinds = []struct {
	prefix string
	kind   kind
}{
	{"/write", kindUnlimited},
	{"/otlp/", kindUnlimited},
	{"/notifications", kindUnlimited},
	{"/admin/", kindUnlimited},
	{"/*path", kindUnlimited},
	{statusRoute, kindUnlimited},
	{"/status/tsdb", kindMetadata},
	{"/status/self_metrics", kindMetadata},
	{"/status/", kindStatus},
	{"/rules", kindStatus},
	{"/alerts", kindStatus},
	{"/alertmanagers", kindStatus},
	{"/features", kindStatus},
	{"/openapi", kindStatus},
	{"/format_query", kindPrinted},
	{"/parse_query", kindPrinted},
	{"/query", kindQuery},
	{"/read", kindBulk},
	{"/federate", kindBulk},
	{"/consoles/", kindQuery},
}

func kindOf(route string) kind {
	for _, k := range kinds {
		if strings.HasPrefix(route, k.prefix) {
			return k.kind
		}
	}
	return kindMetadata
}

// Memory in bytes that a selected series holds until the end of a read: PromQL
// keeps an iterator and a result for each, federation a sample and its share of
// the largest metric family, sampled remote read its labels as messages. Remote read in
// chunks streams them: of a series it keeps its place in the order.
const (
	querySeriesBytes  = 512
	bulkSeriesBytes   = 1024
	chunksSeriesBytes = 64
)

// endpoint returns the limits of a route, or nil for one that has none.
func (h *Handlers) endpoint(prefix, route string) *endpoint {
	k := kindOf(route)
	if k == kindUnlimited {
		return nil
	}
	o := &h.opts
	e := &endpoint{
		name:       prefix + route,
		limits:     reads.Limits{ReadBounds: storage.ReadBounds{ResponseBytes: o.ResponseBytes}, CheckText: h.text},
		timeout:    o.Timeout,
		wait:       o.QueueTimeout,
		source:     fmt.Sprintf("%s=%s", TimeoutFlag, o.Timeout),
		json:       prefix != "" && route != "/read",
		remoteRead: route == "/read",
		// These read the form in a way that leaves multipart out.
		multipart: route != "/series" && route != "/federate",
	}
	e.streams = route == "/series" || route == "/read" || strings.HasPrefix(route, "/search/")
	e.holdsDatabase = k != kindQuery && k != kindStatus
	switch k {
	case kindStatus:
		e.limits.Exempt = true
	case kindMetadata:
		e.pool = h.metadata
		e.limits.Narrower = "Narrow match[] or the time range, or set limit="
		if strings.HasPrefix(route, "/metadata") || strings.HasPrefix(route, "/targets") {
			e.limits.Narrower = "Name one metric=, match_target= or scrapePool="
		}
	case kindPrinted:
		e.pool = h.metadata
		if h.text != nil {
			e.limits.CheckText = checkPrinted
		}
	case kindBulk:
		e.pool = h.bulk
		e.limits.SeriesBytes = bulkSeriesBytes
		if e.remoteRead { // A part of an evaluation elsewhere, which would fail.
			e.evaluates(o)
			if e.wait > 0 { // As upstream's limit of remote reads: nobody asks again, and its deadline ends it.
				e.wait = max(e.wait, cmp.Or(e.timeout, math.MaxInt64))
			}
		}
	case kindQuery:
		e.pool = h.query
		e.limits.SeriesBytes = querySeriesBytes
		if route != "/query_exemplars" { // They are copied at once.
			e.evaluates(o)
		}
	}
	return e
}

// evaluates gives the endpoint the time of an evaluation, besides its own.
func (e *endpoint) evaluates(o *Options) {
	if o.Timeout > 0 {
		e.timeout = sum(o.QueryTimeout, o.Timeout)
		e.source = fmt.Sprintf("--query.timeout=%s for the evaluation, %s=%s for the answer", o.QueryTimeout, TimeoutFlag, o.Timeout)
	}
}

// sum adds two durations of at least 0; a sum that is too large is the largest.
func sum(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
