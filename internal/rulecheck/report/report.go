// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package report says what a check of drop rules found: as text and HTML for
// people, as JSON for programs.
package report

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/promguard/promguard/internal/relabel"
	"github.com/promguard/promguard/internal/rulecheck"
	"github.com/promguard/promguard/internal/rulecheck/replay"
	"github.com/promguard/promguard/internal/rulecheck/source"
)

// Formats of a report.
const (
	FormatText = "text"
	FormatJSON = "json"
	FormatHTML = "html"
)

// Formats returns the names of the formats.
func Formats() []string { return []string{FormatText, FormatJSON, FormatHTML} }

// Report is what was found. Make it with New.
type Report struct {
	Profile string `json:"profile"`
	// Verdict is the worst of all.
	Verdict rulecheck.Verdict `json:"verdict"`
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

func (c *Counts) add(v rulecheck.Verdict) {
	c.Total++
	switch v {
	case rulecheck.Invisible:
		c.Invisible++
	case rulecheck.Thinned:
		c.Thinned++
	case rulecheck.Undecided:
		c.Undecided++
	case rulecheck.Changed:
		c.Changed++
	case rulecheck.Gone:
		c.Gone++
	}
}

// Rule is what happens because of one rule.
type Rule struct {
	ID       string            `json:"id"`
	Class    relabel.Class     `json:"class"`
	Reason   string            `json:"reason"`
	Verdict  rulecheck.Verdict `json:"verdict"`
	Affected int               `json:"affected"`
	// Note is what is odd about the rule though it breaks nothing.
	Note string `json:"note,omitempty"`
	// Dropped are the series of the data that the rule drops.
	Dropped int `json:"dropped,omitempty"`
}

// Finding is what happens to one expression.
type Finding struct {
	File    string              `json:"file"`
	Place   string              `json:"place"`
	Kind    source.Kind         `json:"kind"`
	Expr    string              `json:"expr"`
	Verdict rulecheck.Verdict   `json:"verdict"`
	Rules   []rulecheck.Finding `json:"rules,omitempty"`
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
	Results []rulecheck.Result
	// Notes are by rule.
	Notes    map[string]string
	Problems []source.Problem
	// Data and Measured, one per result, are set if the expressions were
	// evaluated too.
	Data     *replay.Data
	Measured []replay.Measured
}

// New makes a report.
func New(in Input) *Report {
	r := &Report{Profile: in.Profile.Name, Findings: []Finding{}, Problems: []Problem{}}
	index := map[string]int{}
	for i, rule := range in.Profile.Rules {
		index[rule.ID] = i
		r.Rules = append(r.Rules, Rule{
			ID: rule.ID, Class: rule.Class, Reason: rule.Reason, Verdict: rulecheck.Invisible, Note: in.Notes[rule.ID],
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
		if f.Verdict == rulecheck.Invisible {
			continue
		}
		for _, finding := range res.Findings {
			rule := &r.Rules[index[finding.Rule]]
			rule.Verdict = rulecheck.Worst(rule.Verdict, finding.Verdict)
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

func (r *Report) addData(d *replay.Data) {
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
func (r *Report) addMeasured(f *Finding, m replay.Measured) {
	f.Measured = &Measured{Outcome: string(m.Outcome), Why: m.Why}
	d := r.Data
	switch m.Outcome {
	case replay.Skipped:
		return
	case replay.Failed:
		d.Failed++
		return
	case replay.Equal:
		d.Equal++
		if m.Rows == 0 {
			d.Empty++
		}
		// An empty result says nothing, and one that is equal is no proof.
		if f.Verdict != rulecheck.Invisible && f.Verdict != rulecheck.Thinned && m.Rows > 0 {
			f.Measured.Why = sameOnData
		}
	case replay.Within:
		d.Within++
	case replay.Changed:
		d.Outside++
	case replay.Gone:
		d.Vanished++
	}
	d.Evaluated++
	measured := map[replay.Outcome]rulecheck.Verdict{
		replay.Within: rulecheck.Changed, replay.Changed: rulecheck.Changed, replay.Gone: rulecheck.Gone,
	}[m.Outcome]
	switch {
	case measured == "" || f.Verdict == rulecheck.Thinned && m.Outcome == replay.Within:
	case f.Verdict == rulecheck.Invisible || f.Verdict == rulecheck.Thinned:
		// One of the two is wrong, and the data are not.
		f.Verdict = measured
		f.Measured.Why = "The proof says otherwise; please report this. " + f.Measured.Why
	default:
		f.Verdict = rulecheck.Worst(f.Verdict, measured)
	}
}

// settle takes the worst verdict of all.
func (r *Report) settle() {
	r.Verdict = rulecheck.Invisible
	for _, f := range r.Findings {
		r.Verdict = rulecheck.Worst(r.Verdict, f.Verdict)
	}
}

// ExitCode is 0 if the rules are proved to break nothing, 1 if they would break
// something, and 2 if something could not be checked.
func (r *Report) ExitCode() int {
	switch {
	case r.Verdict == rulecheck.Changed || r.Verdict == rulecheck.Gone:
		return 1
	case r.Verdict == rulecheck.Undecided || len(r.Problems) > 0:
		return 2
	}
	return 0
}

// Write writes the report. The error is an unknown format or w's.
func (r *Report) Write(w io.Writer, format string) error {
	switch format {
	case FormatText:
		return r.writeText(w)
	case FormatJSON:
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	case FormatHTML:
		return page.Execute(w, r)
	}
	return fmt.Errorf("unknown format %q: use one of %s", format, strings.Join(Formats(), ", "))
}

// writeText writes the report for a terminal, what is worst last: there it is
// seen.
func (r *Report) writeText(w io.Writer) error {
	b := bufio.NewWriter(w)
	for _, v := range []rulecheck.Verdict{rulecheck.Thinned, rulecheck.Undecided, rulecheck.Changed, rulecheck.Gone} {
		r.writeFindings(b, v)
	}
	if len(r.Problems) > 0 {
		fmt.Fprintf(b, "NOT CHECKED\n\n")
		for _, p := range r.Problems {
			place := ""
			if p.Place != "" {
				place = ": " + p.Place
			}
			fmt.Fprintf(b, "%s%s\n    %s\n", p.File, place, oneLine(p.Error))
		}
		fmt.Fprintln(b)
	}
	for _, rule := range r.Rules {
		if rule.Note != "" {
			fmt.Fprintf(b, "NOTE rule %s: %s.\n", rule.ID, rule.Note)
		}
	}
	r.writeSummary(b)
	return b.Flush()
}

func (r *Report) writeFindings(b *bufio.Writer, v rulecheck.Verdict) {
	first := true
	for _, f := range r.Findings {
		if f.Verdict != v {
			continue
		}
		if first {
			fmt.Fprintf(b, "%s\n\n", strings.ToUpper(string(v)))
			first = false
		}
		fmt.Fprintf(b, "%s: %s\n", f.File, f.Place)
		for _, why := range f.Sentences() {
			fmt.Fprintf(b, "    %s\n", why)
		}
	}
	if !first {
		fmt.Fprintln(b)
	}
}

// maxSentences bounds what is told of one expression and verdict.
const maxSentences = 5

// Sentences returns what is to be said of the finding, the worst first.
func (f Finding) Sentences() []string {
	var out []string
	measured := ""
	if f.Measured != nil {
		measured = f.Measured.Why
	}
	if measured != "" && measured != sameOnData {
		out = append(out, measured)
	}
	for _, v := range []rulecheck.Verdict{rulecheck.Gone, rulecheck.Changed, rulecheck.Undecided, rulecheck.Thinned} {
		told, limit := 0, maxSentences
		if v == rulecheck.Undecided {
			// What cannot be told of one rule can seldom be told of another.
			limit = 1
		}
		for _, rule := range f.Rules {
			if rule.Verdict != v {
				continue
			}
			told++
			if told <= limit {
				out = append(out, rule.Why)
			}
		}
		if told > limit {
			out = append(out, "And so for "+plural(told-limit, "more rule")+".")
		}
	}
	if measured == sameOnData {
		out = append(out, measured)
	}
	return out
}

func (r *Report) writeSummary(b *bufio.Writer) {
	c := r.Expressions
	fmt.Fprintf(b, "%s, %s of profile %s: %d invisible, %d thinned, %d undecided, %d changed, %d gone; %s not checked.\n",
		plural(c.Total, "expression"), plural(len(r.Rules), "rule"), r.Profile, c.Invisible, c.Thinned, c.Undecided, c.Changed, c.Gone, plural(len(r.Problems), "place"))
	if d := r.Data; d != nil {
		fmt.Fprintf(b, "%d series, %d dropped (%s); %d expressions evaluated: %d equal (%d of them empty), %d within the bound, %d changed, %d gone; %d cannot be evaluated on the data, rules or not.\n",
			d.Series, d.Dropped, percent(d.Dropped, d.Series), d.Evaluated, d.Equal, d.Empty, d.Within, d.Outside, d.Vanished, d.Failed)
	}
	fmt.Fprintln(b, r.Conclusion())
}

// Conclusion says in a sentence what the report means.
func (r *Report) Conclusion() string {
	switch r.ExitCode() {
	case 0:
		return "PROVED: no expression loses or changes anything beyond the bounds above."
	case 1:
		broken := r.Expressions.Changed + r.Expressions.Gone
		text := fmt.Sprintf("WOULD BREAK %s, which the data show and no rule explains.", plural(broken, "expression"))
		if rules := r.breaking(); len(rules) > 0 {
			text = fmt.Sprintf("WOULD BREAK %s, because of %s.", plural(broken, "expression"), strings.Join(rules, ", "))
		}
		if len(r.Problems) > 0 || r.Expressions.Undecided > 0 {
			text += " Not all could be checked."
		}
		return text
	}
	return "COULD NOT CHECK everything; what could be checked does not break."
}

// breaking returns the rules that break something.
func (r *Report) breaking() []string {
	var out []string
	for _, rule := range r.Rules {
		if rule.Verdict == rulecheck.Changed || rule.Verdict == rulecheck.Gone {
			out = append(out, rule.ID)
		}
	}
	return out
}

func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

func percent(part, of int) string {
	if of == 0 {
		return "0 %"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(of))
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
