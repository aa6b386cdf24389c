// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/promguard/promguard/internal/relabel"
	"github.com/promguard/promguard/internal/rules/source"
)

// Report is a file of suggested rules.
type Report struct {
	Evidence    Evidence
	Suggestions []Suggestion
	// Source says whose series were counted, Total how many there are, 0 if that is
	// not known.
	Source string
	Total  int
	// Refused counts candidates that could not be proved. Blockers are expressions
	// that may read any metric.
	Refused  int
	Blockers []source.Expression
	// Recorded are unread results of recording rules: information without a rule.
	Recorded []Suggestion
	Notes    []string
	// InForce warns that the file brings back what the server keeps out now. Seen
	// are what the rules of the profile that it extends do to expressions.
	InForce string
	Seen    []string

	// base is the profile that the file extends.
	base relabel.Profile
}

// ExitCode is 2 if something that may read series could not be read, and 0
// otherwise.
func (r *Report) ExitCode() int {
	if len(r.Evidence.Problems) > 0 {
		return 2
	}
	return 0
}

// rule is the form of a rule in a file.
type rule struct {
	ID           string        `yaml:"id"`
	Class        relabel.Class `yaml:"class"`
	SourceLabels []string      `yaml:"source_labels,flow"`
	Regex        string        `yaml:"regex"`
	Reason       string        `yaml:"reason"`
	Saving       string        `yaml:"saving"`
}

// Write writes the rules as a file that rules check and the patched build take,
// with all that is to be known as comments. What is written is read again first;
// the error is also that it does not say the same.
func (r *Report) Write(w io.Writer) error {
	p := profileOf(r.base, r.Suggestions)
	file := struct {
		Name    string `yaml:"name"`
		Summary string `yaml:"summary"`
		Extends string `yaml:"extends,omitempty"`
		Rules   []rule `yaml:"rules"`
	}{p.Name, p.Summary, r.base.Name, []rule{}}
	for _, x := range p.Rules[len(r.base.Rules):] {
		file.Rules = append(file.Rules, rule{x.ID, x.Class, x.SourceLabels, x.Regex, x.Reason, x.Saving})
	}
	var b bytes.Buffer
	r.comment(&b)
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(file); err != nil {
		return err
	}
	if err := enc.Close(); err != nil {
		return err
	}
	again, err := relabel.ParseProfile("the suggested rules", b.Bytes())
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(again, p) {
		return errors.New("the suggested rules are read as others than they are")
	}
	_, err = w.Write(b.Bytes())
	return err
}

// enough is how long a query log should be: most dashboards are looked at once a
// month.
const enough = 30 * 24 * time.Hour

func (r *Report) comment(b *bytes.Buffer) {
	say := func(format string, args ...any) {
		fmt.Fprintln(b, "# "+printable(fmt.Sprintf(format, args...)))
	}
	dropped := 0
	for _, s := range r.Suggestions {
		dropped += s.Series
	}
	say("Drop rules for what nothing here reads, suggested by promguard rules suggest.")
	switch {
	case len(r.Suggestions) == 0:
		say("There is nothing to suggest for %s.", r.Source)
	case r.Total > 0:
		say("They drop %d of %d series (%.1f %%) of %s.", dropped, r.Total, 100*float64(dropped)/float64(r.Total), r.Source)
	default:
		say("They drop %d series of %s.", dropped, r.Source)
	}
	r.extended(say)
	say("What was searched: %s.", r.Evidence.searched())
	r.doubts(say)
	for _, p := range r.Evidence.Problems {
		say("COULD NOT BE READ, and may read what is dropped: %s", p.Error())
	}
	for i, x := range r.Blockers {
		if i == maxListed {
			say("and %d more.", len(r.Blockers)-i)
			break
		}
		say("May read any metric, so that none can be called unread: %s: %s: %s", x.File, x.Place, x.Text)
	}
	if r.Refused > 0 {
		say("%d further candidates could not be proved and are left out.", r.Refused)
	}
	for _, s := range r.Recorded {
		say("Recorded and not read here; remote write or federation may: %s, %s.", s.Rule.Regex, s.Rule.Saving)
	}
	for _, n := range r.Notes {
		say("%s", n)
	}
}

// extended says what comes of the rules that hold beside those of the file.
func (r *Report) extended(say func(string, ...any)) {
	if r.base.Name == "" {
		say("The file extends no profile: no other drop rules hold where it is loaded.")
	} else {
		say("The file extends the profile %s, which drops its own on top.", r.base.Name)
	}
	if r.InForce != "" {
		say("%s", r.InForce)
	}
	for i, seen := range r.Seen {
		if i == maxListed {
			say("and %d more: rules check tells all.", len(r.Seen)-i)
			break
		}
		say("NOT PROVED, of a rule of the profile %s: %s", r.base.Name, seen)
	}
}

// maxListed bounds how much of a kind is told one by one.
const maxListed = 10

// doubts says what was not searched, and what that means.
func (r *Report) doubts(say func(string, ...any)) {
	e := r.Evidence
	if !e.QueryLogs {
		say("TOO LITTLE EVIDENCE: there is no query log. What people and programs ask ad hoc is not known: a rule may take what somebody looks at tomorrow. Set query_log_file for a month, and search it with --query-log.")
	} else if p := e.Logged; p.From.IsZero() || p.To.Sub(p.From) < enough {
		say("LITTLE EVIDENCE: the query log is of %s. What is asked less often than that is not known.", e.Period())
	}
	if !e.Dashboards {
		say("TOO LITTLE EVIDENCE: no dashboards were searched. What they show is known only as far as the query log has it.")
	}
	if !e.RuleFiles {
		say("TOO LITTLE EVIDENCE: no rule files were searched. A rule may take what an alert needs, which then never fires.")
	}
	say("Not searched in any case: federation, remote read and remote write, other Grafanas, notebooks.")
}

// printable leaves only what fits on a line of a comment.
func printable(s string) string {
	return strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return ' '
		}
		return c
	}, s)
}
