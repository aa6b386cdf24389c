// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// State is what the page shows, and its JSON.
type State struct {
	Program string    `json:"program"`
	Version string    `json:"version"`
	At      time.Time `json:"at"`
	// Health is a word: Level says whether it is good.
	Health string `json:"health"`
	Level  Level  `json:"level"`
	// Detail says what is given up, or how far the start is.
	Detail string `json:"detail,omitempty"`
	// Gauges are what is used of what there is.
	Gauges []Gauge `json:"gauges"`

	Running []Query `json:"running"`
	// NoStop is why requests cannot be stopped; empty if they can.
	NoStop string `json:"noStop,omitempty"`
	// Costs are who cost most, for each window.
	Costs     []Window  `json:"costs"`
	Refusals  []Refusal `json:"refusals"`
	NewSeries *Adders   `json:"newSeries,omitempty"`
	Drops     *Drops    `json:"drops,omitempty"`
	Policy    Policy    `json:"policy"`
}

// Level is how bad something is.
type Level string

// The levels.
const (
	Good Level = "good"
	Warn Level = "warn"
	Bad  Level = "bad"
)

// Gauge is how much is used of something, in bytes or in pieces.
type Gauge struct {
	Name  string `json:"name"`
	Used  int64  `json:"used"`
	Of    int64  `json:"of"` // 0: nobody knows
	Bytes bool   `json:"bytes"`
}

// Asker is who asks, as far as that is known.
type Asker struct {
	Tenant         string `json:"tenant,omitempty"`
	User           string `json:"user,omitempty"`
	Dashboard      string `json:"dashboard,omitempty"` // UID
	DashboardTitle string `json:"dashboardTitle,omitempty"`
	Panel          string `json:"panel,omitempty"`
	PanelTitle     string `json:"panelTitle,omitempty"`
	Alert          string `json:"alert,omitempty"`
	Client         string `json:"client,omitempty"`
}

// Query is a request that runs, or waits.
type Query struct {
	Asker

	ID       string    `json:"id"`
	Begun    time.Time `json:"begun"`
	Waits    bool      `json:"waits"`
	Endpoint string    `json:"endpoint"`
	Text     string    `json:"query,omitempty"`
	Series   int64     `json:"series"`
	// Bytes are those that it holds, or is expected to take, and Allowed what it may
	// have; 0 if nobody knows.
	Bytes   int64 `json:"bytes"`
	Allowed int64 `json:"allowed,omitempty"`
}

// Window is who cost most since From.
type Window struct {
	Name    string    `json:"name"`
	From    time.Time `json:"from"`
	Seconds float64   `json:"seconds"` // of all
	Costs   []Cost    `json:"costs"`
}

// Cost is what the requests of one origin and shape cost together.
type Cost struct {
	Asker
	TopCost

	Endpoint string `json:"endpoint"`
	Text     string `json:"query,omitempty"`
}

// Refusal is what was refused, stopped or warned of, and what was said.
type Refusal struct {
	Asker

	Reason   string    `json:"reason"`
	Warned   bool      `json:"warned"` // and let through
	Endpoint string    `json:"endpoint"`
	Text     string    `json:"query,omitempty"`
	Offer    string    `json:"offer"` // what the client was told, the way out first
	Count    int       `json:"count"`
	Last     time.Time `json:"last"`
}

// Adders are who added series since From.
type Adders struct {
	From    time.Time `json:"from"`
	Created uint64    `json:"created"`
	Refused uint64    `json:"refused"`
	Adders  []Adder   `json:"adders"`
}

// Adder is a set of new series that have labels in common.
type Adder struct {
	Name    string  `json:"name"`
	Created uint64  `json:"created"`
	Refused uint64  `json:"refused"`
	Share   float64 `json:"share"`
	// Relabel and Limit are lines of YAML that drop the series, or bound them.
	Relabel string `json:"relabel,omitempty"`
	Limit   string `json:"limit,omitempty"`
}

// Drops are the drop rules in force.
type Drops struct {
	Profile string `json:"profile"`
	Dropped int64  `json:"dropped"` // series since the start
	Rules   []Drop `json:"rules"`
}

// Drop is what a rule has dropped since the start.
type Drop struct {
	Rule   string `json:"rule"`
	Series int64  `json:"series"`
}

// Policy is what is in force.
type Policy struct {
	Hash     string    `json:"hash"`
	Settings []Setting `json:"settings,omitempty"`
}

// PolicyOf returns the policy that settings are.
func PolicyOf(settings []Setting) Policy {
	sum := sha256.Sum256(fmt.Append(nil, settings))
	return Policy{Hash: hex.EncodeToString(sum[:6]), Settings: settings}
}

// Setting is a flag or a limit.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Explanation is what the policy says of a query before it is asked.
type Explanation struct {
	Error    string    `json:"error,omitempty"`
	Passes   bool      `json:"passes"`
	Bytes    int64     `json:"bytes,omitempty"` // that it is expected to take
	Limits   []Finding `json:"limits,omitempty"`
	Refusals []string  `json:"refusals,omitempty"`
}

// Finding is what a limit sees of a query.
type Finding struct {
	Limit    string `json:"limit"`
	Mode     string `json:"mode"`
	Seen     string `json:"seen"`
	Allowed  string `json:"allowed,omitempty"`
	Exceeded bool   `json:"exceeded"`
}

// remembered is how many kinds of refusals are remembered.
const remembered = 50

// maxText bounds what is remembered of a client's text, in bytes.
const maxText = 1 << 10

// Refusals remembers the last kinds of refusals. The zero value is empty; safe for
// concurrent use.
type Refusals struct {
	mu   sync.Mutex
	list map[refusalKey]*Refusal
}

type refusalKey struct {
	asker            Asker
	reason, endpoint string
	warned           bool
}

// Add counts a refusal. What was asked and told last is kept of those of one kind.
func (l *Refusals) Add(r Refusal) {
	r.Text, r.Offer = cut(r.Text), cut(r.Offer)
	key := refusalKey{r.Asker, r.Reason, r.Endpoint, r.Warned}
	l.mu.Lock()
	defer l.mu.Unlock()
	if before := l.list[key]; before != nil {
		r.Count = before.Count
	} else if len(l.list) >= remembered {
		delete(l.list, l.oldest())
	}
	if l.list == nil {
		l.list = map[refusalKey]*Refusal{}
	}
	r.Count++
	r.Last = time.Now()
	l.list[key] = &r
}

func (l *Refusals) oldest() (oldest refusalKey) {
	var at time.Time
	for key, r := range l.list {
		if at.IsZero() || r.Last.Before(at) {
			oldest, at = key, r.Last
		}
	}
	return oldest
}

// List returns the refusals, the last one first.
func (l *Refusals) List() []Refusal {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]Refusal, 0, len(l.list))
	for _, r := range l.list {
		list = append(list, *r)
	}
	slices.SortFunc(list, func(a, b Refusal) int {
		return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.Reason, b.Reason))
	})
	return list
}

// cut returns the beginning of a text, as a copy if that is shorter.
func cut(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + "..."
}

// maxTitles bounds how many dashboards are known by their title.
const maxTitles = 1000

// Titles remembers how dashboards are called. The zero value knows none; safe for
// concurrent use.
type Titles struct {
	mu    sync.RWMutex
	byUID map[string]string
}

// Add remembers a title, unless one of both is empty.
func (t *Titles) Add(uid, title string) {
	title = cut(title)
	if title == "" || uid == "" || t.of(uid) == title {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byUID == nil || len(t.byUID) >= maxTitles {
		t.byUID = map[string]string{}
	}
	t.byUID[strings.Clone(uid)] = strings.Clone(title)
}

func (t *Titles) of(uid string) string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byUID[uid]
}

// fill names the dashboards of a State.
func (t *Titles) fill(s *State) {
	name := func(a *Asker) { a.DashboardTitle = cmp.Or(a.DashboardTitle, t.of(a.Dashboard)) }
	for i := range s.Running {
		name(&s.Running[i].Asker)
	}
	for i := range s.Refusals {
		name(&s.Refusals[i].Asker)
	}
	for _, w := range s.Costs {
		for i := range w.Costs {
			name(&w.Costs[i].Asker)
		}
	}
}
