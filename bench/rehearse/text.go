// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package rehearse

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/promguard/promguard/bench/oomstorm/storm"
	"github.com/promguard/promguard/internal/cli"
	"github.com/promguard/promguard/internal/rules/check"
	"github.com/promguard/promguard/internal/rules/estimate"
)

// Write writes the page: for people the verdict first, then what it stands on.
func (r *Report) Write(w io.Writer, format string) error {
	if format == cli.JSON {
		return cli.WriteJSON(w, r)
	}
	p := &page{}
	p.verdict(r)
	if r.Restart != nil {
		p.restart(r)
	}
	if r.Answers != nil {
		p.answers(r.Answers)
	}
	p.refused(&r.Refused)
	if r.Rules != nil {
		p.rules(r.Rules, r.Scrapes)
	}
	if r.Storm != nil {
		p.storm(r.Storm)
	}
	if len(r.Notes) > 0 {
		p.line("")
		for _, n := range r.Notes {
			p.line("%s", n)
		}
	}
	_, err := io.WriteString(w, p.String())
	return err
}

type page struct{ strings.Builder }

func (p *page) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

func (p *page) verdict(r *Report) {
	p.line("%s", map[Verdict]string{Go: "GO", NoGo: "NO-GO", Unknown: "COULD NOT SAY"}[r.Verdict])
	for _, reason := range r.Reasons {
		p.line("  - %s", reason)
	}
	for _, of := range r.Unknown {
		p.line("  ? %s: %s", of.What, of.Why)
	}
	p.line("")
	switch c := r.Recording; {
	case c != nil:
		p.line("Recording %s: %d series, %d samples, %s.", c.Path, c.Series, c.Samples, mib(c.Bytes))
	default:
		p.line("A look at %s, without a recording.", r.Live)
	}
	if to := r.Restart; to != nil {
		p.line("stock    %s", strings.TrimSpace(to.Stock.Version+" "+strings.Join(to.Stock.Args, " ")))
		p.line("patched  %s", strings.TrimSpace(to.Patched.Version+" "+strings.Join(to.Patched.Args, " ")))
	}
}

func (p *page) table(write func(row func(cells ...string))) {
	tw := tabwriter.NewWriter(p, 0, 0, 2, ' ', 0)
	write(func(cells ...string) { fmt.Fprintln(tw, strings.Join(cells, "\t")) })
	_ = tw.Flush() // To memory.
}

func (p *page) restart(r *Report) {
	s, o := &r.Restart.Stock, &r.Restart.Patched
	p.line("")
	p.table(func(row func(...string)) {
		row("RESTART", "stock", "patched")
		if o.Failed != "" {
			row("time", seconds(s.Seconds), "did not start")
			return
		}
		row("time", seconds(s.Seconds), seconds(o.Seconds))
		row("processor", seconds(s.CPUSeconds), seconds(o.CPUSeconds))
		row("peak memory", mib(s.PeakBytes), mib(o.PeakBytes))
		row("series then", strconv.FormatInt(s.Series, 10), strconv.FormatInt(o.Series, 10))
	})
	switch to := r.Restart; {
	case to.Equal:
		p.line("The heads are the same, in each of %d samples.", to.Samples)
	case to.Differ != "":
		p.line("%s", firstLine(to.Differ))
	}
}

func (p *page) answers(a *Answers) {
	p.line("")
	p.line("ANSWERS  %d of %s compared (%s of query logs): %d differ", a.Compared, count(a.Questions, "different question"), count(a.Logged, "request"), a.Differing)
	if a.Compared > 0 {
		p.line("  stock took %s for them, patched %s; %d were empty", seconds(a.StockSeconds), seconds(a.PatchedSeconds), a.Empty)
	}
	if a.Failed > 0 {
		p.line("  %d had no answer by stock, as %s", a.Failed, a.FailedAs)
	}
	for _, d := range a.Differ[:min(len(a.Differ), maxShown)] {
		p.line("  %s", short(d.Query))
		p.line("    asked by %s", strings.Join(d.Who, "; "))
		p.line("    %s", d.What)
	}
	p.more(len(a.Differ[:min(len(a.Differ), maxShown)]), a.Differing)
}

// maxShown bounds what is listed of a kind: the page is one. JSON has more.
const maxShown = 5

func (p *page) more(shown, of int) {
	if of > shown {
		p.line("  and %d more", of-shown)
	}
}

func (p *page) refused(r *Refusals) {
	p.line("")
	p.line("REFUSED  %d of what is answered today (%s of query logs); the policy judged %d, the patched server was asked %d", r.Refused, count(r.Requests, "request"), r.Judged, r.Asked)
	shown := r.List[:min(len(r.List), maxShown)]
	for i := range shown {
		of := &shown[i]
		all := ""
		if of.Any {
			all = ", of all values of its variables"
		}
		p.line("  %s%s", short(of.Query), all)
		times := ""
		if of.Times > 0 {
			times = fmt.Sprintf(" %d times", of.Times)
		}
		p.line("    asked%s by %s", times, strings.Join(of.Who, "; "))
		p.line("    %s: %s", of.By, of.Offer)
	}
	p.more(len(shown), r.Refused)
}

func (p *page) rules(r *DropRules, s *Scrapes) {
	p.line("")
	p.line("DROP RULES  profile %s", r.Profile)
	if e := r.Saves; e != nil {
		p.saves(e)
	}
	if s != nil {
		p.line("  save %.0f %% of the processor time of scrapes: %s for each scrape of %d series without them, %s with them, %s by stock",
			100*s.saved(), milliseconds(s.Patched), s.Series, milliseconds(s.Dropping), milliseconds(s.Stock))
	}
	c := r.Check
	if c == nil {
		return
	}
	p.line("  touch %d of %s: %d thinned, %d undecided, %d changed, %d gone; %d places not read",
		c.Expressions.Total-c.Expressions.Invisible, count(c.Expressions.Total, "expression"), c.Expressions.Thinned, c.Expressions.Undecided, c.Expressions.Changed, c.Expressions.Gone, len(c.Problems))
	shown := 0
	for _, v := range []check.Verdict{check.Gone, check.Changed, check.Undecided, check.Thinned} {
		for _, f := range c.Findings {
			if f.Verdict != v || shown == maxShown {
				continue
			}
			shown++
			p.line("  %s  %s: %s", strings.ToUpper(string(v)), f.File, f.Place)
			for _, why := range f.Sentences() {
				p.line("    %s", why)
			}
		}
	}
	p.more(shown, len(c.Findings))
	for _, of := range c.Problems[:min(len(c.Problems), maxShown)] {
		p.line("  NOT READ  %s: %s", strings.TrimSuffix(of.File+": "+of.Place, ": "), of.Error)
	}
	p.more(min(len(c.Problems), maxShown), len(c.Problems))
}

func (p *page) saves(e *estimate.Estimate) {
	of := ""
	if e.Of.Series > 0 {
		of = fmt.Sprintf(" of %d (%.1f %%)", e.Of.Series, 100*float64(e.Total.Series)/float64(e.Of.Series))
	}
	if e.Of.Series == 0 && e.HeadSeries > 0 {
		of = fmt.Sprintf(" of %d in memory", e.HeadSeries)
	}
	about := ""
	if e.ExitCode() != 0 {
		about = "at least "
	}
	p.line("  drop %s%d series%s: %s of memory, %s of log and %s of blocks a day, %.0f samples a second", about, e.Total.Series, of,
		mib(int64(e.Total.MemoryBytes)), mib(int64(e.Total.WALBytesPerDay)), mib(int64(e.Total.BlockBytesPerDay)), e.Total.SamplesPerSecond)
	if e.AlreadyDropped > 0 {
		p.line("  %d series are dropped already by the server's own configuration", e.AlreadyDropped)
	}
}

func (p *page) storm(s *Storms) {
	p.line("")
	p.line("STORM  %d clients ask the %d heaviest queries for %s under %s", s.Clients, len(s.Queries), seconds(s.Seconds), mib(s.Limit))
	p.table(func(row func(...string)) {
		row("", "", "peak", "answered", "refused", "cut", "late")
		for _, of := range []struct {
			name string
			r    *storm.OwnResult
		}{{"stock", &s.Stock}, {"patched", &s.Patched}} {
			lived := "lives"
			if !of.r.Alive {
				lived = fmt.Sprintf("%s in %s, after %s", of.r.Ended, of.r.EndedIn, seconds(of.r.LivedSec))
			}
			row("  "+of.name, lived, mib(of.r.PeakBytes), strconv.Itoa(of.r.Answered), strconv.Itoa(of.r.Refused), strconv.Itoa(of.r.Cut), strconv.Itoa(of.r.Late))
		}
	})
}

// count is a number of things.
func count(n int, thing string) string {
	switch {
	case n == 1:
		return "1 " + thing
	case strings.HasSuffix(thing, "y"):
		return fmt.Sprintf("%d %sies", n, strings.TrimSuffix(thing, "y"))
	case strings.HasPrefix(thing, "file or"):
		return fmt.Sprintf("%d files or expressions", n)
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// maxQuery is how much of a query a line has.
const maxQuery = 160

func short(query string) string {
	if r := []rune(query); len(r) > maxQuery {
		return string(r[:maxQuery]) + "..."
	}
	return query
}

func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	if d >= 10*time.Second {
		return d.Round(time.Second).String()
	}
	return d.Round(time.Millisecond).String()
}

func milliseconds(s float64) string { return fmt.Sprintf("%.0f ms", 1000*s) }

func mib(bytes int64) string {
	if bytes >= 10<<30 {
		return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
	}
	return fmt.Sprintf("%.0f MiB", float64(bytes)/(1<<20))
}
