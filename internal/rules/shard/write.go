// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/promguard/promguard/internal/cli"
	"github.com/promguard/promguard/internal/rules/report"
	"github.com/promguard/promguard/internal/rules/source"
)

// Report says which rules may run in a shard.
type Report struct {
	Rules []Rule `json:"rules"`
	// SingleTargets are the jobs of which all series were taken to be in one shard.
	SingleTargets []string         `json:"single_targets"`
	Problems      []report.Problem `json:"problems"`
}

// Rule is one rule, or a query of an alert's template.
type Rule struct {
	File    string `json:"file"`
	Place   string `json:"place"`
	Expr    string `json:"expr"`
	InShard bool   `json:"in_shard"`
	Why     string `json:"why,omitempty"`
}

// NewReport judges the rules that were found.
func NewReport(found source.Found, single []string) *Report {
	r := &Report{Rules: []Rule{}, SingleTargets: append([]string{}, single...), Problems: []report.Problem{}}
	for _, res := range Check(found.Expressions, single) {
		e := res.Expression
		r.Rules = append(r.Rules, Rule{File: e.File, Place: e.Place, Expr: e.Text, InShard: res.Why == "", Why: res.Why})
	}
	for _, p := range found.Problems {
		r.Problems = append(r.Problems, report.Problem{File: p.File, Place: p.Place, Error: p.Err.Error()})
	}
	if len(r.Rules) == 0 && len(r.Problems) == 0 {
		r.Problems = append(r.Problems, report.Problem{File: "nothing was found", Error: "there is no rule in what was given"})
	}
	return r
}

// may counts the rules that may run in a shard.
func (r *Report) may() int {
	n := 0
	for _, rule := range r.Rules {
		if rule.InShard {
			n++
		}
	}
	return n
}

// ExitCode is 0 if all rules may run in a shard, 1 if not, and 2 if some could not be
// read and the others may.
func (r *Report) ExitCode() int {
	switch {
	case r.may() < len(r.Rules):
		return 1
	case len(r.Problems) > 0:
		return 2
	}
	return 0
}

// Write writes the report, as text unless the format is JSON.
func (r *Report) Write(w io.Writer, format string) error {
	if format == cli.JSON {
		return cli.WriteJSON(w, r)
	}
	b := bufio.NewWriter(w)
	section(b, "IN EACH SHARD", r.Rules, func(rule Rule) (string, string, string, bool) {
		return rule.File, rule.Place, "", rule.InShard
	})
	section(b, "OVER ALL SHARDS", r.Rules, func(rule Rule) (string, string, string, bool) {
		return rule.File, rule.Place, rule.Why, !rule.InShard
	})
	section(b, "NOT CHECKED", r.Problems, func(p report.Problem) (string, string, string, bool) {
		return p.File, p.Place, p.Error, true
	})
	fmt.Fprintf(b, "%d rules: %d may run in each shard, %d over all shards only; %d not checked.\n",
		len(r.Rules), r.may(), len(r.Rules)-r.may(), len(r.Problems))
	return b.Flush()
}

// section writes those of the list that belong below the title.
func section[T any](b *bufio.Writer, title string, list []T, line func(T) (file, place, why string, in bool)) {
	first := true
	for _, x := range list {
		file, place, why, in := line(x)
		if !in {
			continue
		}
		if first {
			fmt.Fprintf(b, "%s\n\n", title)
			first = false
		}
		fmt.Fprintln(b, strings.TrimSuffix(file+": "+place, ": "))
		if why != "" {
			fmt.Fprintln(b, "    "+strings.Join(strings.Fields(why), " "))
		}
	}
	if !first {
		fmt.Fprintln(b)
	}
}
