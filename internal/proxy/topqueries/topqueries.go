// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package topqueries remembers which queries cost a server most, in the last
// minutes and in the last hour, in memory that does not grow.
//
// Time is cut into panes, each of which keeps as many queries as fit by the
// space-saving algorithm (Metwally et al., Efficient Computation of Frequent and
// Top-k Elements in Data Streams, 2005): a query that is not among them takes the
// place of the cheapest and inherits its cost as what it may at most have cost
// before. So a query that costs more than the N-th part of a pane, of N that are
// kept, is never missed.
package topqueries

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Key tells queries apart, by shape and by who asked.
type Key struct {
	Endpoint    string `json:"endpoint"`
	Fingerprint string `json:"fingerprint,omitempty"`
	Tenant      string `json:"tenant,omitempty"`
	Dashboard   string `json:"dashboard,omitempty"`
	Panel       string `json:"panel,omitempty"`
	Alert       bool   `json:"alert,omitempty"`
	AlertRule   string `json:"alert_rule,omitempty"`
}

// Cost is what requests cost.
type Cost struct {
	Requests int `json:"requests"`
	// Failed had an answer other than 2xx, or a part of one.
	Failed int `json:"failed,omitempty"`
	// Seconds at the server, from when the request was sent until the last byte.
	Seconds float64 `json:"seconds"`
	// Longest is the most that one took.
	Longest float64 `json:"longest_seconds"`
	// Bytes of answers as they were sent to clients.
	Bytes int64 `json:"bytes"`
}

func (c *Cost) add(o *Cost) {
	c.Requests += o.Requests
	c.Failed += o.Failed
	c.Seconds += o.Seconds
	c.Longest = max(c.Longest, o.Longest)
	c.Bytes += o.Bytes
}

// Order is what queries are ranked by.
type Order uint8

// The orders.
const (
	ByTime Order = iota
	ByBytes

	numOrders
)

var orderNames = [numOrders]string{"time", "bytes"}

// ParseOrder returns the order of that name.
func ParseOrder(s string) (Order, error) {
	if i := slices.Index(orderNames[:], s); i >= 0 {
		return Order(i), nil
	}
	return 0, fmt.Errorf("unknown order %.100q: use %s", s, strings.Join(orderNames[:], " or "))
}

func (o Order) of(c *Cost) float64 {
	if o == ByBytes {
		return float64(c.Bytes)
	}
	return c.Seconds
}

// Windows are how far back may be looked.
var windows = [...]struct {
	name  string
	pane  time.Duration
	panes int64 // the one that fills included
}{
	{"5m", time.Minute, 6},
	{"1h", 10 * time.Minute, 7},
}

// MaxSize is how many queries a pane may keep.
const MaxSize = 1000

// maxText bounds the text of a query in bytes.
const maxText = 1 << 10

// Tracker adds up costs. Safe for concurrent use.
type Tracker struct {
	seed maphash.Seed

	mu      sync.Mutex
	windows [len(windows)][]pane // by number of the pane modulo their count
}

type pane struct {
	number   int64 // since 1970
	sketches [numOrders]sketch
}

// New returns a Tracker that keeps so many queries, 1 to MaxSize, of each pane and
// order.
func New(size int) *Tracker {
	t := &Tracker{seed: maphash.MakeSeed()}
	for i, w := range windows {
		t.windows[i] = make([]pane, w.panes)
		for j := range t.windows[i] {
			for o := range t.windows[i][j].sketches {
				t.windows[i][j].sketches[o].size = size
			}
		}
	}
	return t
}

// Add counts a request. Text is one of the queries with this key, or empty. What
// is kept of key and text are the strings themselves, but for a text that is long.
func (t *Tracker) Add(now time.Time, key Key, text string, cost Cost) {
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "..."
	}
	hash := maphash.Comparable(t.seed, key)
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range windows {
		p := t.pane(i, now)
		for o := range p.sketches {
			p.sketches[o].add(&key, hash, text, &cost, Order(o))
		}
	}
}

// pane returns that of now, emptied if it is of another time.
func (t *Tracker) pane(window int, now time.Time) *pane {
	w := &windows[window]
	number := now.UnixNano() / int64(w.pane)
	p := &t.windows[window][number%w.panes]
	if p.number != number {
		p.number = number
		for o := range p.sketches {
			p.sketches[o].reset()
		}
	}
	return p
}

// Query is one of those that cost most.
type Query struct {
	Key

	// Text is that of one of the queries, without their values if they differ.
	Text string `json:"query,omitempty"`
	Cost
	// Unseen is how much the query may have cost beyond that, before it was among
	// those that are kept, in the unit of the order: seconds or bytes.
	Unseen float64 `json:"unseen,omitempty"`
}

// Report has the queries that cost most, the first one most.
type Report struct {
	Window string `json:"window"`
	By     string `json:"by"`
	// From is when the window begins.
	From    time.Time `json:"from"`
	Queries []Query   `json:"queries"`
	// Total is what all requests cost, of those that are not kept, too.
	Total Cost `json:"total"`
}

// Top returns the queries that cost most in a window: 5m or 1h.
func (t *Tracker) Top(now time.Time, window string, by Order, most int) (*Report, error) {
	for i, w := range windows {
		if w.name == window {
			return t.top(i, now, by, most), nil
		}
	}
	return nil, fmt.Errorf("unknown window %.100q: use 5m or 1h", window)
}

// Asked returns the queries that cost most, by the values of the parameters window (5m or
// 1h), by (time or bytes) and limit (20).
func (t *Tracker) Asked(now time.Time, param func(name string) string) (*Report, error) {
	by, err := ParseOrder(cmp.Or(param("by"), orderNames[ByTime]))
	if err != nil {
		return nil, err
	}
	limit := cmp.Or(param("limit"), "20")
	most, err := strconv.Atoi(limit)
	if err != nil || most < 1 || most > MaxSize {
		return nil, fmt.Errorf("limit %.100q: use 1 to %d", limit, MaxSize)
	}
	return t.Top(now, cmp.Or(param("window"), windows[0].name), by, most)
}

func (t *Tracker) top(window int, now time.Time, by Order, most int) *Report {
	w := &windows[window]
	first := now.UnixNano()/int64(w.pane) - w.panes + 1
	r := &Report{Window: w.name, By: orderNames[by], From: time.Unix(0, first*int64(w.pane)).UTC(), Queries: []Query{}}
	all := map[Key]*Query{}
	t.mu.Lock()
	for i := range t.windows[window] {
		p := &t.windows[window][i]
		if p.number < first || p.number > first+w.panes-1 {
			continue
		}
		s := &p.sketches[by]
		r.Total.add(&s.total)
		for _, e := range s.heap {
			q := all[e.key]
			if q == nil {
				q = &Query{Key: e.key, Text: e.text}
				all[e.key] = q
			}
			q.add(&e.cost)
			q.Unseen += e.unseen
		}
	}
	t.mu.Unlock()
	for _, q := range all {
		r.Queries = append(r.Queries, *q)
	}
	slices.SortFunc(r.Queries, func(a, b Query) int {
		return cmp.Or(cmp.Compare(by.of(&b.Cost), by.of(&a.Cost)), cmp.Compare(a.Fingerprint, b.Fingerprint), cmp.Compare(fmt.Sprint(a.Key), fmt.Sprint(b.Key)))
	})
	r.Queries = r.Queries[:min(max(most, 0), len(r.Queries))]
	return r
}
