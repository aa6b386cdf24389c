// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package report says what a check of drop rules found: as text for people, as
// JSON for programs.
package report

import (
	"fmt"
	"io"

	"github.com/promguard/promguard/internal/cli"
	"github.com/promguard/promguard/internal/relabel"
	"github.com/promguard/promguard/internal/rules/check"
	"github.com/promguard/promguard/internal/rules/evaluate"
	"github.com/promguard/promguard/internal/rules/source"
)

// Report is what was found. Make it with New.
type Report struct {
	Profile string `json:"profile"`
	// Verdict is the worst of all.
	Verdict check.Verdict `json:"verdict"`
	// Expressions counts what was checked, by verdict.
	Expressions Counts `json:"expressions"`
	Rules       []Rule `json:"rules"`
	// Findings are the expressions to which something happens, in the order in
	// which they were read.
	Findings []Finding `json:"findings"`
	Problems []Problem `json:"problems"`
	// Data is set if the expressions were evaluated too.
	Data *Data `json:"data,omitempty"`
}

// Counts are numbers of expressions by verdict.
type Counts struct {
	Total     int `json:"total"`
	Invisible int `json:"invisible"`
	Thinned   int `json:"thinned"`
	Undecided int `json:"undecided"`
	Changed   int `json:"changed"`
	Gone      int `json:"gone"`
}

func (c *Counts) add(v check.Verdict) {
	c.Total++
	switch v {
	case check.Invisible:
		c.Invisible++
	case check.Thinned:
		c.Thinned++
	case check.Undecided:
		c.Undecided++
	case check.Changed:
		c.Changed++
	case check.Gone:
		c.Gone++
	}
}

// Rule is what happens because of one rule.
type Rule struct {
	ID       string        `json:"id"`
	Class    relabel.Class `json:"class"`
	Reason   string        `json:"reason"`
	Verdict  check.Verdict `json:"verdict"`
	Affected int           `json:"affected"`
	// Note is what is odd about the rule though it breaks nothing.
	Note string `json:"note,omitempty"`
	// Dropped are the series of the data that the rule drops.
	Dropped int `json:"dropped,omitempty"`
}

// Finding is what happens to one expression.
type Finding struct {
	File    string          `json:"file"`
	Place   string          `json:"place"`
	Kind    source.Kind     `json:"kind"`
	Expr    string          `json:"expr"`
	Verdict check.Verdict   `json:"verdict"`
	Rules   []check.Finding `json:"rules,omitempty"`
	// Measured is what evaluating the expression said.
	Measured *Measured `json:"measured,omitempty"`
}

// Problem is something that could not be checked.
type Problem struct {
	File  string `json:"file"`
	Place string `json:"place,omitempty"`
	Error string `json:"error"`
}

// Data says what the expressions were evaluated on.
type Data struct {
	Series    int `json:"series"`
	Dropped   int `json:"dropped"`
	Evaluated int `json:"evaluated"`
	// Empty are the expressions that return nothing with or without the rules.
	Empty int `json:"empty"`
	// Failed are those that return an error also without the rules.
	Failed   int `json:"failed"`
	Equal    int `json:"equal"`
	Within   int `json:"within"`
	Outside  int `json:"outside"`
	Vanished int `json:"vanished"`
}

// Measured is what happened to the result of one expression.
type Measured struct {
	Outcome string `json:"outcome"`
	Why     string `json:"why,omitempty"`
}

// Input is what a report is made of.
type Input struct {
	Profile relabel.Profile
	Results []check.Result
	// Notes are by rule.
	Notes    map[string]string
	Problems []source.Problem
	// Data and Measured, one per result, are set if the expressions were
	// evaluated too.
	Data     *evaluate.Data
	Measured []evaluate.Measured
}

// New makes a report.
func New(in Input) *Report {
	r := &Report{Profile: in.Profile.Name, Findings: []Finding{}, Problems: []Problem{}}
	index := map[string]int{}
	for i, rule := range in.Profile.Rules {
		index[rule.ID] = i
		r.Rules = append(r.Rules, Rule{
			ID: rule.ID, Class: rule.Class, Reason: rule.Reason, Verdict: check.Invisible, Note: in.Notes[rule.ID],
		})
	}
	if in.Data != nil {
		r.addData(in.Data)
	}
	for i, res := range in.Results {
		f := Finding{
			File: res.Expression.File, Place: res.Expression.Place, Kind: res.Expression.Kind, Expr: res.Expression.Text,
			Verdict: res.Verdict, Rules: res.Findings,
		}
		if in.Measured != nil {
			r.addMeasured(&f, in.Measured[i])
		}
		r.Expressions.add(f.Verdict)
		if f.Verdict == check.Invisible {
			continue
		}
		for _, finding := range res.Findings {
			rule := &r.Rules[index[finding.Rule]]
			rule.Verdict = check.Worst(rule.Verdict, finding.Verdict)
			rule.Affected++
		}
		r.Findings = append(r.Findings, f)
	}
	for _, p := range in.Problems {
		r.Problems = append(r.Problems, Problem{File: p.File, Place: p.Place, Error: p.Err.Error()})
	}
	if len(in.Results) == 0 && len(in.Problems) == 0 {
		r.Problems = append(r.Problems, Problem{File: "nothing was found", Error: "there is no expression in what was given"})
	}
	r.settle()
	return r
}

func (r *Report) addData(d *evaluate.Data) {
	r.Data = &Data{Series: d.Series, Dropped: d.Dropped}
	for i, n := range d.PerRule {
		r.Rules[i].Dropped = n
	}
	for _, rule := range d.Unguarded {
		r.Problems = append(r.Problems, Problem{
			File:  "rule " + rule.ID,
			Error: fmt.Sprintf("it drops series, but is only for installations that have %s, and the data have none: leave it out", rule.Requires),
		})
	}
}

// sameOnData is said where the proof sees a danger that the data do not show.
const sameOnData = "Evaluated on the data, the result is the same."

// addMeasured counts an outcome and lets it make a verdict worse, never better.
func (r *Report) addMeasured(f *Finding, m evaluate.Measured) {
	f.Measured = &Measured{Outcome: string(m.Outcome), Why: m.Why}
	d := r.Data
	switch m.Outcome {
	case evaluate.Skipped:
		return
	case evaluate.Failed:
		d.Failed++
		return
	case evaluate.Equal:
		d.Equal++
		if m.Rows == 0 {
			d.Empty++
		}
		// An empty result says nothing, and one that is equal is no proof.
		if f.Verdict != check.Invisible && f.Verdict != check.Thinned && m.Rows > 0 {
			f.Measured.Why = sameOnData
		}
	case evaluate.Within:
		d.Within++
	case evaluate.Changed:
		d.Outside++
	case evaluate.Gone:
		d.Vanished++
	}
	d.Evaluated++
	measured := map[evaluate.Outcome]check.Verdict{
		evaluate.Within: check.Changed, evaluate.Changed: check.Changed, evaluate.Gone: check.Gone,
	}[m.Outcome]
	switch {
	case measured == "" || f.Verdict == check.Thinned && m.Outcome == evaluate.Within:
	case f.Verdict == check.Invisible || f.Verdict == check.Thinned:
		// One of the two is wrong, and the data are not.
		f.Verdict = measured
		f.Measured.Why = "The proof says otherwise; please report this. " + f.Measured.Why
	default:
		f.Verdict = check.Worst(f.Verdict, measured)
	}
}

// settle takes the worst verdict of all.
func (r *Report) settle() {
	r.Verdict = check.Invisible
	for _, f := range r.Findings {
		r.Verdict = check.Worst(r.Verdict, f.Verdict)
	}
}

// ExitCode is 0 if the rules are proved to break nothing, 1 if they would break
// something, and 2 if something could not be checked.
func (r *Report) ExitCode() int {
	switch {
	case r.Verdict == check.Changed || r.Verdict == check.Gone:
		return 1
	case r.Verdict == check.Undecided || len(r.Problems) > 0:
		return 2
	}
	return 0
}

// Write writes the report, as text unless the format is cli.JSON.
func (r *Report) Write(w io.Writer, format string) error {
	if format == cli.JSON {
		return cli.WriteJSON(w, r)
	}
	return r.writeText(w)
}
