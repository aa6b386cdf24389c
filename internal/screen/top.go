// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package screen

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

// TopKey tells queries apart, by shape and by who asked.
type TopKey struct {
	Endpoint    string `json:"endpoint"`
	Fingerprint string `json:"fingerprint,omitempty"`
	Tenant      string `json:"tenant,omitempty"`
	Dashboard   string `json:"dashboard,omitempty"`
	Panel       string `json:"panel,omitempty"`
	Alert       bool   `json:"alert,omitempty"`
	AlertRule   string `json:"alert_rule,omitempty"`
	// User, or else Client, is who asked where neither a dashboard nor an alert did:
	// everybody who looks at a dashboard would be a key of their own.
	User   string `json:"user,omitempty"`
	Client string `json:"client,omitempty"`
}

// TopCost is what requests cost.
type TopCost struct {
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

func (c *TopCost) add(o *TopCost) {
	c.Requests += o.Requests
	c.Failed += o.Failed
	c.Seconds += o.Seconds
	c.Longest = max(c.Longest, o.Longest)
	c.Bytes += o.Bytes
}

// TopOrder is what queries are ranked by.
type TopOrder uint8

// The orders.
const (
	ByTime TopOrder = iota
	ByBytes

	numOrders
)

var orderNames = [numOrders]string{"time", "bytes"}

// ParseTopOrder returns the order of that name.
func ParseTopOrder(s string) (TopOrder, error) {
	if i := slices.Index(orderNames[:], s); i >= 0 {
		return TopOrder(i), nil
	}
	return 0, fmt.Errorf("unknown order %.100q: use %s", s, strings.Join(orderNames[:], " or "))
}

func (o TopOrder) of(c *TopCost) float64 {
	if o == ByBytes {
		return float64(c.Bytes)
	}
	return c.Seconds
}

// Windows are how far back may be looked.
var topWindows = [...]struct {
	name, title string
	pane        time.Duration
	panes       int64 // the one that fills included
}{
	{"5m", "5 minutes", time.Minute, 6},
	{"1h", "1 hour", 10 * time.Minute, 7},
}

// MaxTopQueries is how many queries a pane may keep.
const MaxTopQueries = 1000

// TopQueries remembers which queries cost a server most, in the last minutes and in the
// last hour, in memory that does not grow. Safe for concurrent use.
//
// Time is cut into panes, each of which keeps as many queries as fit by the
// space-saving algorithm (Metwally et al., Efficient Computation of Frequent and
// Top-k Elements in Data Streams, 2005): a query that is not among them takes the
// place of the cheapest and inherits its cost as what it may at most have cost
// before. So a query that costs more than the N-th part of a pane, of N that are
// kept, is never missed.
type TopQueries struct {
	seed maphash.Seed

	mu      sync.Mutex
	windows [len(topWindows)][]pane // by number of the pane modulo their count
}

type pane struct {
	number   int64 // since 1970
	sketches [numOrders]sketch
}

// NewTopQueries returns one that keeps so many queries, 1 to MaxTopQueries, of each pane and
// order.
func NewTopQueries(size int) *TopQueries {
	t := &TopQueries{seed: maphash.MakeSeed()}
	for i, w := range topWindows {
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
func (t *TopQueries) Add(now time.Time, key TopKey, text string, cost TopCost) {
	text = cut(text)
	hash := maphash.Comparable(t.seed, key)
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range topWindows {
		p := t.pane(i, now)
		for o := range p.sketches {
			p.sketches[o].add(&key, hash, text, &cost, TopOrder(o))
		}
	}
}

// pane returns that of now, emptied if it is of another time.
func (t *TopQueries) pane(window int, now time.Time) *pane {
	w := &topWindows[window]
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

// TopQuery is one of those that cost most.
type TopQuery struct {
	TopKey

	// Text is that of one of the queries, without their values if they differ.
	Text string `json:"query,omitempty"`
	TopCost
	// Unseen is how much the query may have cost beyond that, before it was among
	// those that are kept, in the unit of the order: seconds or bytes.
	Unseen float64 `json:"unseen,omitempty"`
}

// TopReport has the queries that cost most, the first one most.
type TopReport struct {
	Window string `json:"window"`
	By     string `json:"by"`
	// From is when the window begins.
	From    time.Time  `json:"from"`
	Queries []TopQuery `json:"queries"`
	// Total is what all requests cost, of those that are not kept, too.
	Total TopCost `json:"total"`
}

// Top returns the queries that cost most in a window: 5m or 1h.
func (t *TopQueries) Top(now time.Time, window string, by TopOrder, most int) (*TopReport, error) {
	for i, w := range topWindows {
		if w.name == window {
			return t.top(i, now, by, most), nil
		}
	}
	return nil, fmt.Errorf("unknown window %.100q: use 5m or 1h", window)
}

// Asked returns the queries that cost most, by the values of the parameters window (5m or
// 1h), by (time or bytes) and limit (20).
func (t *TopQueries) Asked(now time.Time, param func(name string) string) (*TopReport, error) {
	by, err := ParseTopOrder(cmp.Or(param("by"), orderNames[ByTime]))
	if err != nil {
		return nil, err
	}
	limit := cmp.Or(param("limit"), "20")
	most, err := strconv.Atoi(limit)
	if err != nil || most < 1 || most > MaxTopQueries {
		return nil, fmt.Errorf("limit %.100q: use 1 to %d", limit, MaxTopQueries)
	}
	return t.Top(now, cmp.Or(param("window"), topWindows[0].name), by, most)
}

func (t *TopQueries) top(window int, now time.Time, by TopOrder, most int) *TopReport {
	w := &topWindows[window]
	first := now.UnixNano()/int64(w.pane) - w.panes + 1
	r := &TopReport{Window: w.name, By: orderNames[by], From: time.Unix(0, first*int64(w.pane)).UTC(), Queries: []TopQuery{}}
	all := map[TopKey]*TopQuery{}
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
				q = &TopQuery{TopKey: e.key, Text: e.text}
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
	slices.SortFunc(r.Queries, func(a, b TopQuery) int {
		return cmp.Or(cmp.Compare(by.of(&b.TopCost), by.of(&a.TopCost)), cmp.Compare(a.Fingerprint, b.Fingerprint), cmp.Compare(fmt.Sprint(a.TopKey), fmt.Sprint(b.TopKey)))
	})
	r.Queries = r.Queries[:min(max(most, 0), len(r.Queries))]
	return r
}

// mostCosts is how many are shown.
const mostCosts = 20

// Costs are who cost most, for each window, as the page shows it.
func (t *TopQueries) Costs(now time.Time) (all []Window) {
	for i := range topWindows {
		r := t.top(i, now, ByTime, mostCosts)
		w := Window{Name: topWindows[i].title, From: r.From, Seconds: r.Total.Seconds}
		for j := range r.Queries {
			q := &r.Queries[j]
			w.Costs = append(w.Costs, Cost{
				Asker:    Asker{Tenant: q.Tenant, Dashboard: q.Dashboard, Panel: q.Panel, Alert: q.AlertRule, User: q.User, Client: q.Client},
				Endpoint: q.Endpoint, Text: q.Text, TopCost: q.TopCost,
			})
		}
		all = append(all, w)
	}
	return all
}
