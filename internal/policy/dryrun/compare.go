// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package dryrun

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/promguard/promguard/internal/proxy/querylog"
	"github.com/promguard/promguard/internal/querylimit"
)

// Comparison is what two policies do with the requests of the same log.
type Comparison struct {
	Before, After *Report
	// Answered requests were answered in full, and both policies judged them:
	// Already of those would be refused by the one before, too, and Worse would get
	// less by the one after only, an error or a part of what they asked for.
	// Unanswered were judged, and were not answered in full.
	Answered, Already, Worse, Unanswered int
	// Limits counts the requests that would get less, by each limit that is why.
	Limits map[string]int
	// Examples is the first such request of each limit.
	Examples map[string]string
}

// Compare judges every request of a log twice as of the time when it came. Of one
// without a time, only what does not depend on that is known.
func Compare(before, after *querylimit.Ruleset, log io.Reader) (*Comparison, error) {
	c := &Comparison{Before: newReport(), After: newReport(), Limits: map[string]int{}, Examples: map[string]string{}}
	analyzer := querylimit.NewAnalyzer(analyzerBytes)
	stats, err := querylog.Read(log, func(e *querylog.Entry) {
		was, is := c.Before.judge(before, analyzer, e), c.After.judge(after, analyzer, e)
		if was != nil && is != nil {
			c.compare(e, was, is)
		}
	})
	c.Before.Log, c.After.Log = stats, stats
	return c, err
}

func (c *Comparison) compare(e *querylog.Entry, was, is *outcome) {
	if !Answered(e) {
		c.Unanswered++
		return
	}
	c.Answered++
	if was.refused {
		c.Already++
		return
	}
	worse := is.worseThan(was)
	if len(worse) == 0 {
		return
	}
	c.Worse++
	for _, limit := range worse {
		c.Limits[limit]++
		if c.Limits[limit] == 1 {
			c.Examples[limit] = example(e)
		}
	}
}

// worseThan returns the limits by which a request that is let through by was gets
// less: an error, the beginning of a list, or a shorter time.
func (o *outcome) worseThan(was *outcome) []string {
	var limits []string
	for _, r := range o.Refusals {
		if r.Mode == querylimit.ModeEnforce && (o.refused || !was.enforces(r.Limit)) {
			limits = append(limits, r.Limit)
		}
	}
	if l := o.SetLimit; l != nil && (was.SetLimit == nil || *l < *was.SetLimit) {
		limits = append(limits, querylimit.LimitResults)
	}
	if s := o.SetStart; s != nil && (was.SetStart == nil || s.After(*was.SetStart)) {
		limits = append(limits, querylimit.LimitMetadataRange)
	}
	return limits
}

// enforces reports whether a limit refuses the request or cuts its answer.
func (o *outcome) enforces(limit string) bool {
	return slices.ContainsFunc(o.Refusals, func(r *querylimit.Refusal) bool {
		return r.Limit == limit && r.Mode == querylimit.ModeEnforce
	})
}

// example names a request, for people.
func example(e *querylog.Entry) string {
	const most = 200
	text := e.Endpoint
	if len(e.Queries) > 0 {
		text += fmt.Sprintf(" %.*q", most, e.Queries[0])
	}
	if !e.Time.IsZero() {
		text += " of " + e.Time.UTC().Format("2006-01-02 15:04:05")
	}
	return text
}

// WriteProof says whether nothing that was answered gets less, of how many
// requests that is known, and of which it is not.
func (c *Comparison) WriteProof(w io.Writer) {
	fmt.Fprintf(w, "checked: %d requests that were answered", c.Answered)
	if c.Already > 0 {
		fmt.Fprintf(w, ", of which the policy as it is would refuse %d", c.Already)
	}
	if c.Worse == 0 {
		fmt.Fprintln(w, "; none of them is newly refused or gets a shorter answer")
	} else {
		fmt.Fprintf(w, "; %d of them would be newly refused or get a shorter answer\n", c.Worse)
	}
	fmt.Fprintf(w, "not checked: %d not answered in full, %s\n", c.Unanswered, c.After.leftOut())
	for _, limit := range slices.Sorted(maps.Keys(c.Limits)) {
		fmt.Fprintf(w, "limit %s: %d, such as %s\n", limit, c.Limits[limit], c.Examples[limit])
	}
}
