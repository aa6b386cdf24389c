// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"bytes"
	"cmp"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	pageFile = "page.html"
	// maxRows is how many requests are shown at once, more than a screen has room for; each
	// makes the first paint later. The others are found by name.
	maxRows = 30
)

// view is a State as somebody looks at it.
type view struct {
	*State

	// Find is what those have that are shown: of Running Shown, of Found.
	Find     string
	Found    int
	Shown    []*Query
	Waits    int // of all
	Costs    []Window
	Refusals []Refusal

	Explains      bool
	Query, Window string
	Explanation   *Explanation
}

func (p *Page) view(r *http.Request) *view {
	q := r.URL.Query()
	v := &view{State: p.current(), Find: q.Get("find"), Explains: p.source.Explain != nil, Query: q.Get("query"), Window: q.Get("window")}
	find := strings.ToLower(v.Find)
	for i := range v.Running {
		run := &v.Running[i]
		if run.Waits {
			v.Waits++
		}
		if run.has(find, run.ID, run.Endpoint, run.Text) {
			v.Shown = append(v.Shown, run)
		}
	}
	v.Found = len(v.Shown)
	for _, w := range v.State.Costs {
		w.Costs = slices.DeleteFunc(slices.Clone(w.Costs), func(c Cost) bool { return !c.has(find, c.Endpoint, c.Text) })
		v.Costs = append(v.Costs, w)
	}
	for i := range v.State.Refusals {
		if r := &v.State.Refusals[i]; r.has(find, r.Endpoint, r.Text, r.Reason) {
			v.Refusals = append(v.Refusals, *r)
		}
	}
	// Those that hold most are what hurts.
	slices.SortFunc(v.Shown, func(a, b *Query) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), a.Begun.Compare(b.Begun), cmp.Compare(a.ID, b.ID))
	})
	v.Shown = v.Shown[:min(maxRows, v.Found)]
	switch {
	case !v.Explains || strings.TrimSpace(v.Query) == "":
	case len(v.Query) > maxAsked:
		v.Explanation = &Explanation{Error: fmt.Sprintf("Ask for less: %d bytes, and at most %d are explained", len(v.Query), maxAsked)}
	default:
		v.Explanation = p.source.Explain(v.Query, v.Window)
	}
	return v
}

// has says whether who asks, or what else is said of it, has a text in lower case.
func (a *Asker) has(find string, texts ...string) bool {
	texts = append(texts, a.Tenant, a.User, a.Dashboard, a.DashboardTitle, a.Panel, a.PanelTitle, a.Alert, a.Client)
	return find == "" || slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(strings.ToLower(s), find) })
}

func render(name string, v *view) []byte {
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, name, v); err != nil {
		return []byte(template.HTMLEscapeString(err.Error()))
	}
	return b.Bytes()
}

// windows are the ranges that may be explained.
var windows = map[string]string{"": "now", "1h": "last hour", "6h": "last 6 hours", "24h": "last day", "168h": "last week"}

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"age":     func(t, now time.Time) string { return seconds(now.Sub(t).Seconds()) },
	"clock":   func(t time.Time) string { return t.UTC().Format(time.TimeOnly) },
	"code":    tokens,
	"count":   count,
	"percent": func(part, of any) string { return fmt.Sprintf("%.0f%%", 100*min(1, share(part, of))) },
	"seconds": seconds,
	"short":   func(endpoint string) string { return strings.TrimPrefix(endpoint, "/api/v1/") },
	"size":    size,
	"who":     who,
	"windows": func() map[string]string { return windows },
}).ParseFS(files, pageFile))

func share(part, of any) float64 {
	p, o := number(part), number(of)
	if o <= 0 {
		return 0
	}
	return p / o
}

func number(v any) float64 {
	switch n := v.(type) {
	case int64:
		return float64(n)
	case float64:
		return n
	}
	return 0
}

// size prints bytes for people.
func size(n int64) string {
	f, units := float64(n), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for f >= 1000 && len(units) > 1 {
		f, units = f/1024, units[1:]
	}
	if f >= 10 || units[0] == "B" {
		return fmt.Sprintf("%.0f %s", f, units[0])
	}
	return fmt.Sprintf("%.1f %s", f, units[0])
}

// count prints a number with a narrow space between thousands.
func count(v any) string {
	s := fmt.Sprint(v)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "\u202f" + s[i:]
	}
	return s
}

func seconds(s float64) string {
	switch {
	case s >= 3600:
		return fmt.Sprintf("%.0fh %02.0fm", float64(int(s)/3600), float64(int(s)%3600/60))
	case s >= 60:
		return fmt.Sprintf("%dm %02ds", int(s)/60, int(s)%60)
	case s >= 10:
		return fmt.Sprintf("%.0fs", s)
	}
	return fmt.Sprintf("%.1fs", max(0, s))
}

// part is one way of saying who asks. Find leads to what else that one asks.
type part struct{ Kind, Text, Find string }

// who names the asker, the most telling first.
func who(a Asker) []part {
	var parts []part
	add := func(kind, text, find string) {
		if text != "" {
			parts = append(parts, part{kind, text, "?find=" + url.QueryEscape(find)})
		}
	}
	add("alert", a.Alert, a.Alert)
	add("user", a.User, a.User)
	if a.DashboardTitle != "" && a.Dashboard != "" {
		add("dashboard", a.DashboardTitle+" ("+a.Dashboard+")", a.Dashboard)
	} else {
		add("dashboard", cmp.Or(a.DashboardTitle, a.Dashboard), cmp.Or(a.Dashboard, a.DashboardTitle))
	}
	add("panel", cmp.Or(a.PanelTitle, a.Panel), cmp.Or(a.PanelTitle, a.Panel))
	add("tenant", a.Tenant, a.Tenant)
	if len(parts) == 0 {
		add("client", a.Client, a.Client)
	}
	return parts
}

// token is a piece of PromQL with its class for the eye.
type token struct{ Class, Text string }

var lexed = regexp.MustCompile("(?s)(\"(?:[^\"\\\\]|\\\\.)*\"|'(?:[^'\\\\]|\\\\.)*'|`[^`]*`)" + // string
	`|\b(by|without|on|ignoring|group_left|group_right|bool|offset|and|or|unless|atan2)\b` + // keyword
	`|([a-zA-Z_][a-zA-Z0-9_]*)(\s*\()` + // function
	`|([a-zA-Z_:][a-zA-Z0-9_:.]*)` + // name
	`|([0-9][0-9a-zA-Z.]*)`) // number

var tokenClasses = [...]string{1: "str", 2: "kw", 3: "fn", 5: "", 6: "num"}

// tokens cuts a query into pieces, as far as people look.
func tokens(text string) (list []token) {
	text = cut(text)
	at := 0
	add := func(class string, end int) {
		if end > at {
			list = append(list, token{class, text[at:end]})
			at = end
		}
	}
	for _, m := range lexed.FindAllStringSubmatchIndex(text, -1) {
		add("", m[0])
		for group, class := range tokenClasses {
			if group > 0 && group != 4 && m[2*group] >= 0 {
				add(class, m[2*group+1])
			}
		}
	}
	add("", len(text))
	return list
}

// Bar is how far a gauge is, as an attribute of SVG.
func (g Gauge) Bar() string {
	return strconv.FormatFloat(100*min(1, share(g.Used, g.Of)), 'f', 1, 64) + "%"
}

// Level is how full a gauge is.
func (g Gauge) Level() Level {
	switch s := share(g.Used, g.Of); {
	case s >= 0.85:
		return Bad
	case s >= 0.7:
		return Warn
	}
	return Good
}

// Text says how full a gauge is.
func (g Gauge) Text() string {
	say := func(n int64) string { return count(n) }
	if g.Bytes {
		say = size
	}
	if g.Of == 0 {
		return say(g.Used)
	}
	return say(g.Used) + " of " + say(g.Of)
}
