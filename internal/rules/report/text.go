// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/promguard/promguard/internal/rules/check"
)

// writeText writes the report for a terminal, what is worst last: there it is
// seen.
func (r *Report) writeText(w io.Writer) error {
	b := bufio.NewWriter(w)
	for _, v := range []check.Verdict{check.Thinned, check.Undecided, check.Changed, check.Gone} {
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

func (r *Report) writeFindings(b *bufio.Writer, v check.Verdict) {
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
	for _, v := range []check.Verdict{check.Gone, check.Changed, check.Undecided, check.Thinned} {
		told, limit := 0, maxSentences
		if v == check.Undecided {
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
		if rule.Verdict == check.Changed || rule.Verdict == check.Gone {
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
