// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package running knows the requests that run, and ends those that an operator names.
package running

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Query is a request that runs. It is also the JSON.
type Query struct {
	ID          string    `json:"id"`
	Begun       time.Time `json:"begun"`
	Sent        bool      `json:"sent"` // to the server, else it waits
	Endpoint    string    `json:"endpoint"`
	Fingerprint string    `json:"fingerprint,omitempty"`
	Text        string    `json:"query,omitempty"`
	Tenant      string    `json:"tenant,omitempty"`
	User        string    `json:"user,omitempty"`
	Dashboard   string    `json:"dashboard,omitempty"`
	Panel       string    `json:"panel,omitempty"`
	Alert       string    `json:"alert,omitempty"` // rule of Grafana's
	// Client is the address that asks, and its program, as a patched Prometheus sees it.
	Client    string `json:"client,omitempty"`
	UserAgent string `json:"userAgent,omitempty"`
	// Bytes are those that it is expected to take of the server, or that it holds there,
	// Allowed what it may hold and Series what it has selected, if the server tells.
	Bytes   int64 `json:"bytes"`
	Allowed int64 `json:"allowed,omitempty"`
	Series  int64 `json:"series,omitempty"`
}

// filters are what can be asked for, and where a Query has it.
var filters = []struct {
	name string
	of   func(*Query) string
}{
	{"id", func(q *Query) string { return q.ID }},
	{"fingerprint", func(q *Query) string { return q.Fingerprint }},
	{"tenant", func(q *Query) string { return q.Tenant }},
	{"user", func(q *Query) string { return q.User }},
	{"dashboard", func(q *Query) string { return q.Dashboard }},
}

// Filters returns the names of what can be asked for.
func Filters() []string {
	names := make([]string, len(filters))
	for i, f := range filters {
		names[i] = f.name
	}
	return names
}

// Request is what runs.
type Request interface {
	// Running says what it is, but for id and time. End ends it, once or more often.
	Running() Query
	End()
}

type entry struct {
	Request

	id    uint64
	begun time.Time
}

// List is safe for concurrent use. Its zero value is empty.
type List struct {
	mu   sync.Mutex
	last uint64
	list map[uint64]entry
}

// Add makes a request known until Remove is called with what Add returns.
func (l *List) Add(r Request) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.list == nil {
		l.list = map[uint64]entry{}
	}
	l.last++
	l.list[l.last] = entry{r, l.last, time.Now()}
	return l.last
}

// Remove forgets a request.
func (l *List) Remove(id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.list, id)
}

// errAll keeps everything from being ended by mistake.
var errAll = errors.New("say which: give id, fingerprint, tenant, user or dashboard")

// Find returns what runs, the oldest first, and ends it if it is to. Of a filter for
// which wanted returns anything, only what has that is found.
func (l *List) Find(wanted func(filter string) string, end bool) ([]Query, error) {
	named := func(filter string) bool { return wanted(filter) != "" }
	if end && !slices.ContainsFunc(Filters(), named) {
		return nil, errAll
	}
	found := []Query{}
	for _, e := range l.sorted() {
		q := e.Running()
		q.ID, q.Begun = strconv.FormatUint(e.id, 10), e.begun
		if !q.Is(wanted) {
			continue
		}
		if end {
			e.End()
		}
		found = append(found, q)
	}
	return found, nil
}

// sorted returns what runs, the oldest first.
func (l *List) sorted() []entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.SortedFunc(maps.Values(l.list), func(a, b entry) int { return cmp.Compare(a.id, b.id) })
}

// Is reports whether it has what wanted returns for the names of filters.
func (q *Query) Is(wanted func(filter string) string) bool {
	for _, f := range filters {
		if value := wanted(f.name); value != "" && value != f.of(q) {
			return false
		}
	}
	return true
}
