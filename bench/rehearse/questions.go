// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package rehearse

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/promguard/promguard/internal/policy/dryrun"
	"github.com/promguard/promguard/internal/proxy/querylog"
	"github.com/promguard/promguard/internal/rules/source"
)

// Question is PromQL that somebody asks.
type Question struct {
	Endpoint string `json:"endpoint"` // query or query_range
	Query    string `json:"query"`    // in one line
	// Start, End and Step are in milliseconds; of an instant Start is End, and Step 0.
	Start int64 `json:"start_ms"`
	End   int64 `json:"end_ms"`
	Step  int64 `json:"step_ms,omitempty"`
	// Times is how often it is in the query logs, and Who says who asked.
	Times int      `json:"times,omitempty"`
	Who   []string `json:"who"`
	// Dashboard is the UID of one that asks.
	Dashboard string `json:"dashboard,omitempty"`
	// Rule says that only rules ask it, which pass no limit of reads.
	Rule bool `json:"rule,omitempty"`
	// Any says that a variable of a dashboard may have any value in it.
	Any bool `json:"any,omitempty"`
}

// asked is all that is asked.
type asked struct {
	questions []Question
	// fromLogs are the expressions of logs.
	fromLogs []source.Expression
	logs     int // requests in them that can be asked
}

const (
	// maxQuestions bounds how many different ones of logs are asked.
	maxQuestions = 100_000
	// maxWho bounds who is told of one question.
	maxWho = 5
	// Dashboards ask for an hour, as in oomstorm.
	dashboardRange = time.Hour
	dashboardStep  = 15 * time.Second
)

// questions are those of logs, the most frequent first, then those of dashboards and
// rules.
func (r *rehearsal) questions() (*asked, error) {
	a := &asked{}
	byKey := map[string]*Question{}
	for _, path := range r.QueryLogs {
		if err := a.readLog(path, byKey); err != nil {
			return nil, fmt.Errorf("--query-log: %w", err)
		}
	}
	keys := slices.Sorted(maps.Keys(byKey))
	slices.SortStableFunc(keys, func(x, y string) int { return cmp.Compare(byKey[y].Times, byKey[x].Times) })
	for _, e := range r.Found.Expressions {
		for _, q := range r.ofExpression(e) {
			if before := byKey[q.key()]; before != nil {
				before.add(q.Who[0])
				before.Rule = before.Rule && q.Rule
				continue
			}
			byKey[q.key()] = &q
			keys = append(keys, q.key())
		}
	}
	for _, key := range keys {
		q := byKey[key]
		r.place(q)
		a.questions = append(a.questions, *q)
	}
	return a, nil
}

// key is equal for what is asked again at another time.
func (q *Question) key() string {
	return fmt.Sprint(q.Endpoint, " ", q.End-q.Start, " ", q.Step, " ", q.Query)
}

func (q *Question) add(who string) {
	if who != "" && len(q.Who) < maxWho && !slices.Contains(q.Who, who) {
		q.Who = append(q.Who, who)
	}
}

// place moves a question into the recording, if it is of another time.
func (r *rehearsal) place(q *Question) {
	if shift := r.at.UnixMilli() - q.End; shift < 0 || r.Recording != "" && q.End < r.from.UnixMilli() {
		q.Start, q.End = q.Start+shift, q.End+shift
	}
}

func (a *asked) readLog(path string, byKey map[string]*Question) error {
	log, err := os.Open(path)
	if err != nil {
		return err
	}
	defer log.Close()
	stats, err := querylog.Read(log, func(e *querylog.Entry) {
		q, expr, ok := ofEntry(e)
		if !ok {
			return
		}
		a.logs++
		before := byKey[q.key()]
		if before == nil && len(byKey) >= maxQuestions {
			return
		}
		if before == nil {
			byKey[q.key()] = &q
			a.fromLogs = append(a.fromLogs, source.Expression{File: path, Place: "asked by " + cmp.Or(q.Who[0], "somebody"), Kind: source.KindQuery, Text: q.Query, Queries: []parser.Expr{expr}})
			return
		}
		before.Times++
		before.add(q.Who[0])
		if q.End > before.End {
			before.Start, before.End = q.Start, q.End
		}
	})
	if err == nil && stats.Entries == 0 && stats.Rules == 0 {
		err = fmt.Errorf("%s: no line of it is of a query log of promguard or of Prometheus", path)
	}
	return err
}

// ofEntry is the question of an entry that was answered; false if it has none.
func ofEntry(e *querylog.Entry) (q Question, expr parser.Expr, ok bool) {
	if e.Endpoint != "query" && e.Endpoint != "query_range" || len(e.Queries) != 1 || e.Cut || !dryrun.Answered(e) {
		return q, nil, false
	}
	expr, err := source.Parse(e.Queries[0])
	if err != nil {
		return q, nil, false
	}
	q = Question{Endpoint: e.Endpoint, Query: expr.String(), Times: 1, Who: []string{who(e)}}
	end := e.Time
	if e.End != nil {
		end = *e.End
	}
	q.Start, q.End = end.UnixMilli(), end.UnixMilli()
	if e.Endpoint == "query_range" {
		if e.Start == nil || e.Step <= 0 || e.Start.After(end) {
			return q, nil, false
		}
		q.Start, q.Step = e.Start.UnixMilli(), int64(e.Step*1000)
	}
	return q, expr, q.Step > 0 || e.Endpoint == "query"
}

// who says who made a request, as far as the log does.
func who(e *querylog.Entry) string {
	switch {
	case e.AlertRule != "":
		return "alert rule " + e.AlertRule
	case e.Dashboard != "":
		return strings.TrimSpace("dashboard " + e.Dashboard + " " + e.User)
	case e.User != "":
		return "user " + e.User
	}
	return strings.TrimSpace("client " + e.Client + " " + e.UserAgent)
}

// ofExpression are the questions of a rule or a panel: those of its variants.
func (r *rehearsal) ofExpression(e source.Expression) (all []Question) {
	for _, expr := range e.Queries {
		text := expr.String()
		q := Question{Endpoint: "query", Dashboard: e.Dashboard, Who: []string{e.File + ": " + e.Place}, Start: r.at.UnixMilli(), End: r.at.UnixMilli()}
		switch e.Kind {
		case source.KindAlert, source.KindRecord:
			q.Rule = true
		case source.KindPanel:
			q.Endpoint, q.Step = "query_range", dashboardStep.Milliseconds()
			q.Start -= dashboardRange.Milliseconds()
		}
		if source.HasMarker(text) {
			if text, q.Any = source.Evaluable(expr); !q.Any || source.HasMarker(text) {
				continue
			}
		}
		q.Query = text
		all = append(all, q)
	}
	return all
}
