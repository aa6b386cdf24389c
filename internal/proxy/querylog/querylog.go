// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package querylog writes one line of JSON for each request worth remembering,
// and reads such lines again, those of Prometheus's own query log too. It never
// holds headers that carry credentials.
package querylog

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Entry is one request.
type Entry struct {
	Time     time.Time `json:"ts"`
	Endpoint string    `json:"endpoint"`
	Class    string    `json:"class"`
	// Label is that whose values were asked for.
	Label string `json:"label,omitempty"`

	// Who asked, as far as it was believed; UserAgent and Client as seen.
	Tenant    string `json:"tenant,omitempty"`
	Dashboard string `json:"dashboard,omitempty"`
	Panel     string `json:"panel,omitempty"`
	User      string `json:"user,omitempty"`
	Alert     bool   `json:"alert,omitempty"`
	// AlertRule is the alert rule that asked, by its UID.
	AlertRule string `json:"alert_rule,omitempty"`
	UserAgent string `json:"user_agent,omitempty"`
	Client    string `json:"client,omitempty"`

	// What was asked. Queries is empty in a redacted log. Cut is set if they are
	// longer than MaxText bytes together: what is beyond is left out.
	Queries      []string   `json:"queries,omitempty"`
	Cut          bool       `json:"cut,omitempty"`
	Fingerprints []string   `json:"fingerprints,omitempty"`
	Start        *time.Time `json:"start,omitempty"`
	End          *time.Time `json:"end,omitempty"`
	Step         float64    `json:"step_seconds,omitempty"`
	Lookback     float64    `json:"lookback_seconds,omitempty"`
	Limit        *int       `json:"limit,omitempty"`

	// What came of it. Aborted says who ended the answer before its end, whatever the
	// code: one of the Aborted constants; Took and Bytes are then those of a part. Partial is
	// set if a server behind Thanos gave nothing. Limits are those exceeded, with their modes, as in
	// "range:observe"; Rules those that matched.
	Code    int      `json:"code"`
	Aborted string   `json:"aborted,omitempty"`
	Partial bool     `json:"partial,omitempty"`
	Limits  []string `json:"limits,omitempty"`
	Rules   []string `json:"rules,omitempty"`
	Took    float64  `json:"took_seconds"`
	Bytes   int64    `json:"bytes"`

	// SlowerThan, in seconds, and Sample are the options that the entry was written
	// under: they tell what else the log leaves out. A log that does not say has
	// none.
	SlowerThan *float64 `json:"slower_than_seconds,omitempty"`
	Sample     float64  `json:"sample,omitempty"`
}

// Who ended an answer before its end.
const (
	AbortedUpstream = "upstream" // the server, or the way to it
	AbortedLimit    = "limit"    // a deadline, or response_bytes
	AbortedClient   = "client"   // it left, or stopped reading
	AbortedOperator = "operator" // who stopped the query
)

// Options says what is written, and where.
type Options struct {
	// File is appended to. Empty means no log.
	File string
	// SlowerThan is how long a request takes to be written in any case, as every
	// request is that failed, was refused, exceeded a limit or got a part; 0 means all.
	SlowerThan time.Duration
	// Sample is the share of the others that is written, 0 to 1.
	Sample float64
	// Redact leaves out the text of queries and the user.
	Redact bool
}

// Validate returns an error that says what is wrong with o.
func (o *Options) Validate() error {
	if o.SlowerThan < 0 {
		return fmt.Errorf("slower_than is %s: use 0s for all, or a positive duration", o.SlowerThan)
	}
	if !(o.Sample >= 0 && o.Sample <= 1) {
		return fmt.Errorf("sample is %v: use 0 to 1", o.Sample)
	}
	return nil
}

// MaxText bounds the queries of an entry in bytes, all together. Requests that are
// refused are written, too, and they cost their clients little.
const MaxText = 64 << 10

// queueLength and queueBytes bound the entries that wait for a slow disk.
const (
	queueLength = 1024
	queueBytes  = 16 << 20
)

var errBehind = errors.New("the disk does not keep up")

// Log is an open log. A nil Log wants nothing. Safe for concurrent use.
type Log struct {
	opts    Options
	slow    float64 // opts.SlowerThan in seconds
	file    *os.File
	lost    func(error)
	entries chan *Entry
	waiting atomic.Int64 // bytes of the texts of entries
	done    chan struct{}

	mu     sync.RWMutex // held for writing by Close
	closed bool
}

// Open opens the file of opts for appending; without one it returns nil. Lost is
// called for each entry that could not be written, with the reason: a request does not
// wait for the disk, nor fail with it.
func Open(opts Options, lost func(error)) (*Log, error) {
	if opts.File == "" {
		return nil, nil
	}
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(opts.File, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
	if err != nil {
		return nil, err
	}
	l := &Log{opts: opts, slow: opts.SlowerThan.Seconds(), file: file, lost: lost, entries: make(chan *Entry, queueLength), done: make(chan struct{})}
	go l.run()
	return l, nil
}

// Wants reports whether a request is to be written that took so long.
func (l *Log) Wants(took time.Duration, exceeded bool) bool {
	return l != nil && (exceeded || took >= l.opts.SlowerThan || rand.Float64() < l.opts.Sample)
}

// Write takes over e. It does not block.
func (l *Log) Write(e *Entry) {
	if l == nil {
		return
	}
	if l.opts.Redact {
		e.Queries, e.User = nil, ""
	}
	e.keepQueries()
	e.SlowerThan, e.Sample = &l.slow, l.opts.Sample
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		l.lost(os.ErrClosed)
		return
	}
	n := e.bytes()
	if l.waiting.Add(n) <= queueBytes {
		select {
		case l.entries <- e:
			return
		default:
		}
	}
	l.waiting.Add(-n)
	l.lost(errBehind)
}

// keepQueries makes the entry hold its queries alone, and not the request that
// they are parts of.
func (e *Entry) keepQueries() {
	left := MaxText
	for i, text := range e.Queries {
		if len(text) > left {
			e.Cut = true
			text = strings.ToValidUTF8(text[:left], "")
		}
		e.Queries[i] = strings.Clone(text)
		if left -= len(text); e.Cut {
			e.Queries = e.Queries[:i+1]
			return
		}
	}
}

func (e *Entry) bytes() int64 {
	n := 0
	for _, list := range [][]string{e.Queries, e.Fingerprints, e.Limits, e.Rules} {
		for _, text := range list {
			n += len(text)
		}
	}
	return int64(n)
}

// Close writes what waits and closes the file.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	close(l.entries)
	l.mu.Unlock()
	<-l.done
	return l.file.Close()
}

// run writes entries, and flushes when none waits. A line is written whole or,
// where the disk is full, in part: the reader skips what is no JSON.
func (l *Log) run() {
	defer close(l.done)
	w := bufio.NewWriterSize(l.file, 64<<10)
	pending := 0
	flush := func() {
		if err := w.Flush(); err != nil {
			for range pending {
				l.lost(err)
			}
			w.Reset(l.file) // It would return the same error for ever.
			_, _ = l.file.WriteString("\n")
		}
		pending = 0
	}
	defer flush()
	for e := range l.entries {
		l.waiting.Add(-e.bytes())
		line, err := json.Marshal(e)
		if err != nil {
			l.lost(err) // A time or a number that JSON cannot hold.
			continue
		}
		if w.Available() <= len(line) {
			flush()
		}
		_, err = w.Write(append(line, '\n'))
		pending++
		if err != nil || len(l.entries) == 0 {
			flush()
		}
	}
}
