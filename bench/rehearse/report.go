// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package rehearse

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/promguard/promguard/internal/rules/check"
	"github.com/promguard/promguard/internal/rules/report"
)

// Verdict is what a rehearsal comes to.
type Verdict string

// The verdicts.
const (
	Go      Verdict = "go"
	NoGo    Verdict = "no-go"
	Unknown Verdict = "unknown"
)

// Report is the page. Of what was not looked at, the parts are nil.
type Report struct {
	Verdict Verdict `json:"verdict"`
	// Reasons are those of a no-go, Unknown is what could not be told, and Notes are to
	// be known besides.
	Reasons []string `json:"reasons,omitempty"`
	Unknown []Lack   `json:"unknown,omitempty"`
	Notes   []string `json:"notes,omitempty"`

	Live      string     `json:"live,omitempty"` // the server that was looked at
	Recording *Recording `json:"recording,omitempty"`
	Restart   *Restarts  `json:"restart,omitempty"`
	Answers   *Answers   `json:"answers,omitempty"`
	Refused   Refusals   `json:"refused"`
	Rules     *DropRules `json:"drop_rules,omitempty"`
	Scrapes   *Scrapes   `json:"scrapes,omitempty"`
	Storm     *Storms    `json:"storm,omitempty"`
}

// Lack is what could not be told.
type Lack struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

func (r *Report) lack(what, format string, args ...any) {
	r.Unknown = append(r.Unknown, Lack{what, fmt.Sprintf(format, args...)})
}

func (r *Report) reason(format string, args ...any) {
	r.Reasons = append(r.Reasons, fmt.Sprintf(format, args...))
}

func (r *Report) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// ExitCode is 0 for go, 1 for no-go, and 2 if it could not be told.
func (r *Report) ExitCode() int {
	return map[Verdict]int{Go: 0, NoGo: 1, Unknown: 2}[r.Verdict]
}

const (
	// A restart is worse if it takes so many times what stock's does, and more than what
	// is noise of one start.
	worseTimes   = 1.5
	noiseSeconds = 10
	noiseBytes   = 128 << 20
)

// settle comes to the verdict.
func (r *Report) settle() {
	r.settleRestart()
	r.settleAnswers()
	if n := r.Refused.Refused; n > 0 {
		of := r.Refused.List[0]
		r.reason("%s that %s answered today would be refused, as by %s: %s", count(n, "query"), map[bool]string{true: "is", false: "are"}[n == 1], of.By, short(of.Query))
	}
	if n := r.Refused.Late; n > 0 {
		r.reason("after %s the patched server, with its limits, had not answered %s of %d that stock answered in %s", longest, count(n, "question"), n+r.Refused.Asked, askFor)
	}
	r.settleRules()
	r.settleStorm()
	switch {
	case len(r.Reasons) > 0:
		r.Verdict = NoGo
	case len(r.Unknown) > 0:
		r.Verdict = Unknown
	default:
		r.Verdict = Go
	}
}

func (r *Report) settleRestart() {
	if c := r.Recording; c != nil {
		if c.Corrupt != "" {
			r.note("The log is corrupt, and was replayed up to there: %s.", c.Corrupt)
		}
		r.note("The recording has no blocks: queries were answered from the head, of the last hours.")
	}
	to := r.Restart
	if to == nil {
		return
	}
	s, p := to.Stock, to.Patched
	switch {
	case p.Failed != "":
		r.reason("the patched server does not start: %s", firstLine(p.Failed))
		return
	case to.Differ != "":
		r.reason("%s", to.Differ)
	}
	if p.Seconds > worseTimes*s.Seconds+noiseSeconds {
		r.reason("the restart takes %s, and %s with stock", seconds(p.Seconds), seconds(s.Seconds))
	}
	if float64(p.PeakBytes) > worseTimes*float64(s.PeakBytes)+noiseBytes {
		r.reason("the restart takes %s of memory, and %s with stock", mib(p.PeakBytes), mib(s.PeakBytes))
	}
}

func (r *Report) settleAnswers() {
	a := r.Answers
	if a == nil {
		return
	}
	if a.Compared == 0 {
		why := "nothing was asked: give --query-log, --dashboards or --rule-files"
		if a.Questions > 0 {
			why = fmt.Sprintf("stock answered none of %s, as %s", count(a.Questions, "question"), a.FailedAs)
		}
		r.lack("answers", "%s", why)
	} else if a.Empty == a.Compared {
		r.lack("answers", "all were empty: what is asked is not in the recording")
	}
	if a.Logged == 0 && a.Compared > 0 {
		r.note("No query log was given: what people ask besides dashboards is not known.")
	}
	if n := a.Differing; n > 0 {
		r.reason("%s of %d %s, as of %s: %s", count(n, "answer"), a.Compared, map[bool]string{true: "differs", false: "differ"}[n == 1], short(a.Differ[0].Query), a.Differ[0].What)
	}
	if a.Slow {
		r.reason("in the %s in which stock answered %s, the patched server answered %d", seconds(a.StockSeconds), count(a.Compared, "question"), a.Within)
	}
	if a.NotAsked > 0 {
		r.note("%s of %d had no time: the most frequent were asked first.", count(a.NotAsked, "question"), a.Questions)
	}
}

func (r *Report) settleRules() {
	if r.Rules == nil {
		return
	}
	switch s := r.Scrapes; {
	case s == nil:
		if r.Live != "" {
			r.note("What drop rules save of a scrape's processor time is not measured without a recording.")
		}
	case s.Failed != "":
		r.note("What drop rules save of a scrape's processor time was not measured: %s.", s.Failed)
		r.Scrapes = nil
	}
	if r.Rules.Check == nil {
		return
	}
	c := r.Rules.Check
	if n := c.Expressions.Changed + c.Expressions.Gone; n > 0 {
		i := slices.IndexFunc(c.Findings, func(f report.Finding) bool { return f.Verdict == check.Changed || f.Verdict == check.Gone })
		r.reason("drop rules break %s, as %s: %s", count(n, "expression"), c.Findings[i].File, c.Findings[i].Place)
	}
	if n := c.Expressions.Undecided; n > 0 {
		r.lack("drop rules", "%s could not be decided", count(n, "expression"))
	}
	if n := len(c.Problems); n > 0 {
		r.lack("drop rules", "%s could not be read", count(n, "file or expression"))
	}
}

func (r *Report) settleStorm() {
	s := r.Storm
	if s == nil {
		return
	}
	switch {
	case !s.Patched.Alive && s.Stock.Alive:
		r.reason("the patched server does not live in a storm under %s, and stock does: %s in %s", mib(s.Limit), s.Patched.Ended, s.Patched.EndedIn)
	case !s.Patched.Alive:
		r.reason("the patched server does not live in a storm under %s, nor does stock: %s in %s", mib(s.Limit), s.Patched.Ended, s.Patched.EndedIn)
	}
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return cmp.Or(strings.TrimSpace(line), "no reason is known")
}
