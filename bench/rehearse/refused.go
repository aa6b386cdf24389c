// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package rehearse

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/promguard/promguard/internal/cli"
	"github.com/promguard/promguard/internal/policy/dryrun"
	"github.com/promguard/promguard/internal/proxy/querylog"
	"github.com/promguard/promguard/internal/querylimit"
)

// Refusals are what is answered today and would be refused.
type Refusals struct {
	// Judged are requests of logs and expressions of dashboards that the policy was
	// asked about, and Asked questions that the patched server was.
	Judged int `json:"judged"`
	Asked  int `json:"asked"`
	// Refused are different ones, the most frequent first; the first of them are listed.
	// Requests is how many of the logs those are.
	Refused  int `json:"refused"`
	Requests int `json:"requests"`
	// Late had no answer yet when the patched server had been asked for long enough.
	Late int       `json:"late,omitempty"`
	List []Refusal `json:"list,omitempty"`
}

// Refusal is one that would be refused.
type Refusal struct {
	By    string   `json:"by"` // promguard or the patched server
	Limit string   `json:"limit,omitempty"`
	Query string   `json:"query"`
	Who   []string `json:"who"`
	Times int      `json:"times,omitempty"` // in logs
	Any   bool     `json:"any,omitempty"`   // of all values of a dashboard's variables
	// Offer says what to do instead, and why.
	Offer string `json:"offer"`
}

// refusing collects refusals.
type refusing struct {
	byKey map[string]*Refusal
}

func (c *refusing) add(of Refusal) {
	key := of.By + " " + of.Limit + " " + of.Query
	before := c.byKey[key]
	if before == nil {
		if c.byKey == nil {
			c.byKey = map[string]*Refusal{}
		}
		c.byKey[key] = &of
		return
	}
	before.Times += of.Times
	for _, who := range of.Who {
		if len(before.Who) < maxWho && !slices.Contains(before.Who, who) {
			before.Who = append(before.Who, who)
		}
	}
}

// merge adds what was collected to the report.
func (c *refusing) merge(into *Refusals) {
	before, seen := map[string]bool{}, map[string]bool{}
	for _, of := range into.List {
		before[of.Query], seen[of.Query] = true, true
	}
	for _, of := range c.byKey {
		if !seen[of.Query] {
			into.Refused++
		}
		if !before[of.Query] {
			into.Requests += of.Times
		}
		seen[of.Query] = true
		into.List = append(into.List, *of)
	}
	slices.SortFunc(into.List, func(a, b Refusal) int {
		return cmp.Or(cmp.Compare(b.Times, a.Times), cmp.Compare(a.By, b.By), cmp.Compare(a.Query, b.Query), cmp.Compare(a.Limit, b.Limit))
	})
}

// refusedByServer asks the patched server, with its limits of reads, what people ask and
// stock answered.
func (r *rehearsal) refusedByServer(ctx context.Context, a *asked) error {
	var numbers []int
	for _, c := range r.report.Answers.Costs {
		if c.Answered && !a.questions[c.Question].Rule {
			numbers = append(numbers, c.Question)
		}
	}
	found, err := step(r, "refused", append(slices.Clone(r.inputs), a.questions, numbers, r.limit), func() (Refusals, error) {
		var found Refusals
		if len(numbers) == 0 {
			return found, nil
		}
		s, err := r.server(ctx, limitedServer)
		if err != nil {
			return found, err
		}
		var c refusing
		var clock time.Duration
		for i, n := range numbers {
			r.Progress.Count(i, len(numbers))
			if clock > longest {
				found.Late = len(numbers) - i
				break
			}
			q := &a.questions[n]
			of := ask(ctx, s.URL, q)
			clock += of.took
			if ctx.Err() != nil {
				return found, context.Cause(ctx)
			}
			found.Asked++
			if died := r.died(ctx, limitedServer); died != nil {
				c.add(refusalOf(q, "the server ended: "+cli.OneLine(died.Error())))
				break
			}
			if !of.ok() {
				c.add(refusalOf(q, of.refusal()))
			}
		}
		c.merge(&found)
		return found, nil
	})
	r.report.Refused.Asked, r.report.Refused.Refused = found.Asked, found.Refused
	r.report.Refused.Requests, r.report.Refused.List, r.report.Refused.Late = found.Requests, found.List, found.Late
	return err
}

func refusalOf(q *Question, offer string) Refusal {
	return Refusal{By: "the patched server", Query: q.Query, Who: q.Who, Times: q.Times, Any: q.Any, Offer: offer}
}

func (a *answer) refusal() string {
	if a.err != nil {
		return "no answer: " + cli.OneLine(a.err.Error())
	}
	return fmt.Sprintf("%d %s: %s", a.code, http.StatusText(a.code), cli.OneLine(a.said))
}

// analyzerBytes bounds what is remembered of parsed queries.
const analyzerBytes = 32 << 20

// refusedByPolicy judges the requests of logs, and the panels of dashboards.
func (r *rehearsal) refusedByPolicy(k *known, a *asked) error {
	var c refusing
	analyzer := querylimit.NewAnalyzer(analyzerBytes)
	judge := func(e *querylog.Entry, text string, who []string, times int, anyValue bool) {
		req := dryrun.Request(e)
		if req == nil {
			return
		}
		k.complete(req)
		o, err := dryrun.Judge(r.Rules, analyzer, req, e)
		if err != nil {
			return
		}
		r.report.Refused.Judged++
		for _, refusal := range o.Refusals {
			if o.Refused && refusal.Mode == querylimit.ModeEnforce {
				c.add(Refusal{By: "promguard", Limit: refusal.Limit, Query: text, Who: who, Times: times, Any: anyValue, Offer: refusal.Error()})
				return
			}
		}
	}
	for _, path := range r.QueryLogs {
		if err := eachAnswered(path, func(e *querylog.Entry) {
			judge(e, textOf(e), []string{who(e)}, 1, false)
		}); err != nil {
			return fmt.Errorf("--query-log: %w", err)
		}
	}
	for i := range a.questions {
		q := &a.questions[i]
		if !q.Rule && q.Times == 0 {
			judge(r.entryOf(q), q.Query, q.Who, 0, q.Any)
		}
	}
	c.merge(&r.report.Refused)
	r.report.Refused.List = r.report.Refused.List[:min(len(r.report.Refused.List), maxTold)]
	return nil
}

func eachAnswered(path string, do func(*querylog.Entry)) error {
	log, err := os.Open(path)
	if err != nil {
		return err
	}
	defer log.Close()
	_, err = querylog.Read(log, func(e *querylog.Entry) {
		if dryrun.Answered(e) {
			do(e)
		}
	})
	return err
}

// textOf is what an entry asks, in one line.
func textOf(e *querylog.Entry) string {
	if q, _, ok := ofEntry(e); ok {
		return q.Query
	}
	if len(e.Queries) == 0 {
		return e.Endpoint
	}
	return e.Endpoint + " " + cli.OneLine(fmt.Sprint(e.Queries))
}

// entryOf is a question as if it had been logged now.
func (r *rehearsal) entryOf(q *Question) *querylog.Entry {
	start, end := time.UnixMilli(q.Start), time.UnixMilli(q.End)
	return &querylog.Entry{
		Time: r.at, Endpoint: q.Endpoint, Queries: []string{q.Query}, Start: &start, End: &end, Step: float64(q.Step) / 1000,
		Dashboard: q.Dashboard, Code: http.StatusOK,
	}
}

// complete adds what the proxy would know of the server.
func (k *known) complete(req *querylimit.Request) {
	if k == nil {
		return
	}
	req.Head, req.SubqueryStep, req.UnknownPromQL = k.Head, k.SubqueryStep, k.Unknown
	req.Lookback = cmp.Or(req.Lookback, k.Lookback)
}
