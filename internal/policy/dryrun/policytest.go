// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package dryrun replays a query log against a policy, to know who would be
// refused before anybody is.
package dryrun

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/promguard/promguard/internal/proxy/querylog"
	"github.com/promguard/promguard/internal/querylimit"
)

// Report counts what a policy does with the requests of a log. It is also the JSON.
type Report struct {
	Log querylog.Stats `json:"log"`
	// Skipped are entries that cannot be judged: without the whole text of their
	// queries, or of an endpoint that is not open.
	Skipped int `json:"skipped"`
	// Malformed are those that no server answers, whatever the policy.
	Malformed int `json:"malformed"`
	// Judged are all others: Refused of them would be refused, Before of those
	// were so already for what they ask, not with 429 or 503 for when, Warned would get a warning.
	Judged  int `json:"judged"`
	Refused int `json:"refused"`
	Before  int `json:"before"`
	Warned  int `json:"warned"`
	// Limits counts requests by the limit that they exceed and its mode.
	Limits map[string]map[querylimit.Mode]int `json:"limits"`
	// Who counts refused requests by who asked.
	Dashboards map[string]int `json:"dashboards"`
	Alerts     map[string]int `json:"alerts"`
	Tenants    map[string]int `json:"tenants"`
	Clients    map[string]int `json:"clients"`
	// Examples is the first refusal of each limit.
	Examples map[string]string `json:"examples"`
}

// Run judges every request of a log as of the time when it came.
func Run(rules *querylimit.Ruleset, log io.Reader) (*Report, error) {
	r := newReport()
	analyzer := querylimit.NewAnalyzer(analyzerBytes)
	var err error
	r.Log, err = querylog.Read(log, func(e *querylog.Entry) { r.judge(rules, analyzer, e) })
	return r, err
}

// analyzerBytes bounds what is remembered of parsed queries.
const analyzerBytes = 32 << 20

func newReport() *Report {
	return &Report{
		Limits: map[string]map[querylimit.Mode]int{}, Examples: map[string]string{},
		Dashboards: map[string]int{}, Alerts: map[string]int{}, Tenants: map[string]int{}, Clients: map[string]int{},
	}
}

// judge counts a request.
func (r *Report) judge(rules *querylimit.Ruleset, analyzer *querylimit.Analyzer, e *querylog.Entry) {
	req := Request(e)
	if req == nil {
		r.Skipped++
		return
	}
	o, err := Judge(rules, analyzer, req, e)
	if err != nil {
		r.Malformed++
		return
	}
	r.Judged++
	r.count(o, e)
}

// Judge says what comes of a request that Request has made of an entry. The error is
// that of malformed PromQL.
func Judge(rules *querylimit.Ruleset, analyzer *querylimit.Analyzer, req *querylimit.Request, e *querylog.Entry) (*Outcome, error) {
	v, err := rules.Judge(analyzer, req, e.Time)
	if err != nil {
		return nil, err
	}
	return afterwards(v, e), nil
}

func (r *Report) count(o *Outcome, e *querylog.Entry) {
	for _, refusal := range o.Refusals {
		if r.Limits[refusal.Limit] == nil {
			r.Limits[refusal.Limit] = map[querylimit.Mode]int{}
			r.Examples[refusal.Limit] = refusal.Value + " " + refusal.Cause
		}
		r.Limits[refusal.Limit][refusal.Mode]++
	}
	if !o.Refused {
		if len(o.Refusals.Warnings()) > 0 {
			r.Warned++
		}
		return
	}
	r.Refused++
	if e.Code == 422 || cutOff(e) {
		r.Before++
	}
	r.attribute(e)
}

// Outcome is what comes of a request: a verdict, with the limits that an answer
// runs into, not all of which refuse it.
type Outcome struct {
	querylimit.Verdict

	Refused bool
}

// afterwards adds what is known only once there is an answer: how long it took,
// and its bytes as they were sent.
func afterwards(v querylimit.Verdict, e *querylog.Entry) *Outcome {
	o := &Outcome{v, v.Refusals.Err() != nil}
	endpoint := querylimit.FindEndpoint(e.Endpoint)
	if e.Code/100 != 2 && !cutOff(e) {
		return o
	}
	if d := v.Policy.Deadline(endpoint.Class, 0); d > 0 && e.Took > d.Seconds() {
		o.Refusals, o.Refused = append(o.Refusals, v.Policy.RefuseDeadline(endpoint.Class, endpoint.Name, d)), true
	}
	limit, mode := v.Policy.Response(endpoint.Class)
	for _, most := range []int64{limit.WireMax, limit.Max} { // Compressed, there are not fewer.
		if mode != querylimit.ModeOff && most > 0 && e.Bytes > most {
			o.Refusals = append(o.Refusals, v.Policy.RefuseResponse(endpoint.Class, most))
			o.Refused = o.Refused || mode == querylimit.ModeEnforce
			break
		}
	}
	return o
}

// Answered reports whether the request was answered in full.
func Answered(e *querylog.Entry) bool {
	return e.Code/100 == 2 && e.Aborted == "" && !cutOff(e)
}

// cutOff reports whether a limit kept the request from being answered in full.
func cutOff(e *querylog.Entry) bool {
	return slices.ContainsFunc(e.Limits, func(limit string) bool {
		return strings.HasSuffix(limit, ":"+querylimit.ModeEnforce.String())
	})
}

func (r *Report) attribute(e *querylog.Entry) {
	switch {
	case e.AlertRule != "":
		r.Alerts[e.AlertRule]++
	case e.Alert:
		r.Alerts["(without a name)"]++
	case e.Dashboard != "":
		r.Dashboards[e.Dashboard]++
	default:
		r.Clients[strings.TrimSpace(e.Client+" "+e.UserAgent)]++
	}
	if e.Tenant != "" {
		r.Tenants[e.Tenant]++
	}
}

// Request returns what the rules look at, or nil if the entry does not have it.
func Request(e *querylog.Entry) *querylimit.Request {
	endpoint := querylimit.FindEndpoint(e.Endpoint)
	if endpoint == nil {
		return nil
	}
	req := &querylimit.Request{
		Endpoint: endpoint, Texts: e.Queries, Label: e.Label, Limit: -1,
		Who: querylimit.Subject{
			Tenant: e.Tenant, Dashboard: e.Dashboard, Panel: e.Panel, User: e.User, UserAgent: e.UserAgent, Alert: e.Alert, AlertRule: e.AlertRule,
		},
		Step: seconds(e.Step), Lookback: seconds(e.Lookback),
	}
	if e.Limit != nil {
		req.Limit = *e.Limit
	}
	if e.Start != nil {
		req.Start, req.Given = *e.Start, true
	}
	if e.End != nil {
		req.End = *e.End
	}
	one := endpoint.Takes == querylimit.TakesExpr || endpoint.Takes == querylimit.TakesBareExpr
	if e.Cut || one && len(e.Queries) != 1 || len(e.Queries) == 0 && len(e.Fingerprints) > 0 {
		return nil // Redacted, or not whole.
	}
	return req
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// top is how many of those who would be refused are named.
const top = 10

// Write says in words and tables what would happen.
func (r *Report) Write(w io.Writer) {
	fmt.Fprintf(w, "%d requests: would refuse %d (%s), of which %d were refused before; would warn %d (%s)\n",
		r.Judged, r.Refused, percent(r.Refused, r.Judged), r.Before, r.Warned, percent(r.Warned, r.Judged))
	if rest := r.Skipped + r.Malformed + r.Log.Broken + r.Log.Rules; rest > 0 {
		fmt.Fprintf(w, "not judged: %s\n", r.leftOut())
	}
	r.writeLimits(w)
	for _, who := range []struct {
		title  string
		counts map[string]int
	}{{"dashboard", r.Dashboards}, {"alert rule", r.Alerts}, {"tenant", r.Tenants}, {"other client", r.Clients}} {
		writeTop(w, who.title, who.counts)
	}
}

// leftOut counts what is not judged.
func (r *Report) leftOut() string {
	return fmt.Sprintf("%d malformed, %d redacted, cut or of other endpoints, %d evaluations of rules by the server itself, %d lines that are not entries",
		r.Malformed, r.Skipped, r.Log.Rules, r.Log.Broken)
}

func percent(n, of int) string {
	if of == 0 {
		return "0 %"
	}
	return fmt.Sprintf("%.2g %%", 100*float64(n)/float64(of))
}

func (r *Report) writeLimits(w io.Writer) {
	if len(r.Limits) == 0 {
		return
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nLIMIT\tENFORCE\tWARN\tOBSERVE\tFOR EXAMPLE")
	for _, limit := range slices.Sorted(maps.Keys(r.Limits)) {
		m := r.Limits[limit]
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%s\n", limit, m[querylimit.ModeEnforce], m[querylimit.ModeWarn], m[querylimit.ModeObserve], r.Examples[limit])
	}
	_ = t.Flush() // Printing fails in no way that matters.
}

func writeTop(w io.Writer, title string, counts map[string]int) {
	if len(counts) == 0 {
		return
	}
	names := slices.Sorted(maps.Keys(counts))
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(counts[b], counts[a]) })
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\nREFUSED\tBY %s (%d)\n", strings.ToUpper(title), len(names))
	for _, name := range names[:min(top, len(names))] {
		fmt.Fprintf(t, "%d\t%s\n", counts[name], name)
	}
	_ = t.Flush() // Printing fails in no way that matters.
}
