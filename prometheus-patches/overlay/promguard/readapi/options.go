// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package readapi limits the requests that read the database over HTTP: their
// time, their memory, how many run at once, and how slowly a client may read.
package readapi

import (
	"time"

	"github.com/grafana/regexp"

	"github.com/prometheus/prometheus/internal/screen"
	"github.com/prometheus/prometheus/promguard/memory"
	"github.com/prometheus/prometheus/promguard/newseries"
	"github.com/prometheus/prometheus/promguard/reads"
)

// Options are the limits of all read requests. The zero value of each means no
// limit.
type Options struct {
	// Timeout is the deadline of a request; one that evaluates PromQL, or reads for an
	// evaluation elsewhere, has QueryTimeout, the evaluation's own limit, on top.
	Timeout, QueryTimeout time.Duration
	// MetadataConcurrency, BulkConcurrency and QueryConcurrency are how many
	// requests for metadata, for federation and remote read, and for PromQL may
	// run at a time. Others wait for QueueTimeout, remote reads until their deadline.
	MetadataConcurrency, BulkConcurrency, QueryConcurrency int
	QueueTimeout                                           time.Duration
	// Procs is how many processors reads that run for long may keep busy while memory is
	// tight.
	Procs int
	Tight func() bool
	// Budget is the memory that all reads may hold.
	Budget *reads.Budget
	// ResponseBytes is the maximum size of an answer; see storage.ReadBounds.
	ResponseBytes int64
	// MinClientRate is how fast a client must read its answer, in bytes per
	// second.
	MinClientRate int64
	// ReadTimeout is the server's own limit of the time to read a request.
	ReadTimeout time.Duration
	// Memory and NewSeries are told in the status. They may be nil.
	Memory    *memory.Monitor
	NewSeries *newseries.Tracker
	// CheckText refuses PromQL that costs too much to parse.
	CheckText bool

	// CORSOrigin is which origins may read errors.
	CORSOrigin *regexp.Regexp
	// EnableStop opens the endpoint that stops a read.
	EnableStop bool
	// Replay returns how far the replay of the write-ahead log is, as a clause
	// for errors, or "" when it is over.
	Replay func() string
	// Drops returns what the drop rules in force have dropped, and Settings are what is in
	// force, both for the page. Drops may be nil.
	Drops    func() *screen.Drops
	Settings []screen.Setting
}

// limits says whether any limit is set.
func (o *Options) limits() bool {
	return o.Timeout > 0 || o.MetadataConcurrency > 0 || o.BulkConcurrency > 0 || o.QueryConcurrency > 0 ||
		o.Procs > 0 || o.Budget != nil || o.ResponseBytes > 0 || o.MinClientRate > 0 || o.CheckText || o.Memory != nil || o.NewSeries != nil
}
