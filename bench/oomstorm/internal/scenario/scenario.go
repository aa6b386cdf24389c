// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package scenario reads files that say what happens to a server, and what must
// come of it.
package scenario

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"github.com/promguard/promguard/bench/oomstorm/internal/family"
	"github.com/promguard/promguard/bench/oomstorm/internal/fill"
	"github.com/promguard/promguard/bench/oomstorm/internal/limit"
	"github.com/promguard/promguard/internal/didyoumean"
	"github.com/promguard/promguard/internal/yamlerr"
)

// Scenario is what happens to each of the binaries.
type Scenario struct {
	Name string `yaml:"-"`
	// Series in the head, before anything is scraped.
	Series int `yaml:"series"`
	// History is how far back they have a sample every minute.
	History time.Duration `yaml:"history"`
	Limit   limit.Spec    `yaml:"limit"`
	Seed    uint64        `yaml:"seed"`
	// Intervals of scrapes and of the rules.
	ScrapeInterval time.Duration `yaml:"scrape_interval"`
	RuleInterval   time.Duration `yaml:"rule_interval"`
	// Series that are scraped: those that stay, and those of pods that a phase
	// can replace.
	Steady   int `yaml:"steady"`
	Churning int `yaml:"churning"`
	// ProbeRate is how often a second the server is asked sum(up), its health
	// and its metrics.
	ProbeRate float64 `yaml:"probe_rate"`
	// Families besides those that are shipped.
	Families []family.Family `yaml:"families"`
	Phases   []Phase         `yaml:"phases"`
	Expect   []Expectation   `yaml:"expect"`
}

// What phases can last until.
const (
	Back      = "back"
	Compacted = "compacted"
)

// Phase is what happens at the same time. Each has figures of its own.
type Phase struct {
	Name string        `yaml:"name"`
	For  time.Duration `yaml:"for"`
	// Until ends the phase before its time: when the server is as it was at rest
	// (back), or when the head was compacted (compacted).
	Until string `yaml:"until"`
	// Restart ends the server at the phase's begin, and starts it again on its
	// data, under the same limit: kill or term.
	Restart string `yaml:"restart"`
	// Compact has the head be compacted.
	Compact bool `yaml:"compact"`
	// Explode is how many new series one target exposes a second.
	Explode int `yaml:"explode"`
	// Churn is how often an hour each of the churning pods is replaced.
	Churn float64 `yaml:"churn"`

	Storm           *Storm       `yaml:"storm"`
	Dashboards      *Dashboards  `yaml:"dashboards"`
	SlowReaders     *SlowReaders `yaml:"slow_readers"`
	IdleConnections int          `yaml:"idle_connections"`
}

// Storm are clients that make one hostile request after the other.
type Storm struct {
	Clients  int           `yaml:"clients"`
	Families []string      `yaml:"families"` // patterns of names; all if none
	Timeout  time.Duration `yaml:"timeout"`
	// Shares of the requests: Leave of the clients leave after 0.2 to 2 s, Gzip
	// accept compressed answers.
	Leave float64 `yaml:"leave"`
	Gzip  float64 `yaml:"gzip"`
}

// Dashboards are clients that ask what innocent people look at.
type Dashboards struct {
	Clients int `yaml:"clients"`
	// Expressions are those of dashboards, Buckets percentiles of all buckets.
	Expressions bool `yaml:"expressions"`
	Buckets     bool `yaml:"buckets"`
	// Rounds ends the phase when everything was asked so often; 0 goes on.
	Rounds int `yaml:"rounds"`
}

// SlowReaders read an answer at so many bytes a second each.
type SlowReaders struct {
	Clients int    `yaml:"clients"`
	Family  string `yaml:"family"`
	Rate    int    `yaml:"rate"`
}

// Expectation is a bound of a figure, or of what a query gives at the end.
type Expectation struct {
	Name   string `yaml:"name"`
	Binary string `yaml:"binary"` // every one if empty
	Phase  string `yaml:"phase"`  // every one if empty
	Figure string `yaml:"figure"`
	// Query is PromQL that the server answers with one value at the phase's end.
	Query   string   `yaml:"query"`
	AtLeast *float64 `yaml:"at_least"`
	AtMost  *float64 `yaml:"at_most"`
	// Times multiplies the bounds with the figure of another binary.
	Times string `yaml:"times"`
}

//go:embed shipped
var shipped embed.FS

// Shipped are the names of the scenarios that come with the program.
func Shipped() (names []string) {
	files, _ := fs.Glob(shipped, "shipped/*.yaml")
	for _, f := range files {
		names = append(names, strings.TrimSuffix(strings.TrimPrefix(f, "shipped/"), ".yaml"))
	}
	return names
}

//go:embed expressions.yaml
var expressions []byte

// Expressions are what dashboards ask: those in a file, or else those that are
// shipped.
func Expressions(file string) (list []string, err error) {
	text := expressions
	if file != "" {
		if text, err = os.ReadFile(file); err != nil {
			return nil, err
		}
	}
	var entries []struct{ Expr string }
	err = yaml.Unmarshal(text, &entries)
	for _, e := range entries {
		list = append(list, e.Expr)
	}
	return list, err
}

// Text is that of the scenario that is shipped under a name, or else in a file.
func Text(name string) ([]byte, error) {
	if slices.Contains(Shipped(), name) {
		return shipped.ReadFile("shipped/" + name + ".yaml")
	}
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) && !strings.ContainsAny(name, "./") {
		return nil, fmt.Errorf("%q is neither a file nor one of %s%s", name, strings.Join(Shipped(), ", "), didyoumean.Hint(name, Shipped()))
	}
	return text, err
}

// Load reads a scenario by its name or from a file.
func Load(name string) (*Scenario, error) {
	text, err := Text(name)
	if err != nil {
		return nil, err
	}
	s, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("scenario %s: %w", name, err)
	}
	s.Name = name
	return s, nil
}

// Parse reads a scenario.
func Parse(text []byte) (*Scenario, error) {
	s := &Scenario{
		History: 5 * time.Minute, Seed: 1, ScrapeInterval: 2 * time.Second, RuleInterval: 2 * time.Second,
		Steady: 4000, Churning: 4000, ProbeRate: 5,
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	err := dec.Decode(s)
	if errors.Is(err, io.EOF) {
		return nil, errors.New("the file is empty")
	}
	if err != nil {
		return nil, didyoumean.Field(yamlerr.Locate(text, err), Scenario{})
	}
	for i := range s.Phases {
		if st := s.Phases[i].Storm; st != nil && st.Timeout == 0 {
			st.Timeout = time.Minute
		}
	}
	return s, s.check()
}

// AllFamilies are those that are shipped and the scenario's own.
func (s *Scenario) AllFamilies() []family.Family {
	all, _ := family.Merge(family.Shipped(), s.Families) // check has looked.
	return all
}

// Span is how long the phases take together, at most.
func (s *Scenario) Span() (span time.Duration) {
	for _, p := range s.Phases {
		span += p.For
	}
	return span
}

// UntilCompaction is from the begin of the first phase to that of the one that
// compacts; false if none does.
func (s *Scenario) UntilCompaction() (until time.Duration, ok bool) {
	for _, p := range s.Phases {
		if p.Compact {
			return until, true
		}
		until += p.For
	}
	return 0, false
}

// maxSpan keeps the samples that are written ahead within what a head takes
// beside new ones.
const maxSpan = 40 * time.Minute

// problems collects what is wrong.
type problems []error

func (p *problems) add(format string, args ...any) { *p = append(*p, fmt.Errorf(format, args...)) }

func (p *problems) within(what string, value, least, most float64) {
	if !(value >= least && value <= most) {
		p.add("%s must be from %v to %v, got %v", what, least, most, value)
	}
}

func (p *problems) duration(what string, value, least, most time.Duration) {
	if value < least || value > most {
		p.add("%s must be from %s to %s, got %s", what, least, most, value)
	}
}

func (s *Scenario) check() error {
	var p problems
	p.within("series", float64(s.Series), fill.MinSeries, 1e8)
	p.within("steady", float64(s.Steady), fill.MinCluster, 1e7)
	p.within("churning", float64(s.Churning), fill.MinCluster, 1e7)
	p.within("probe_rate", s.ProbeRate, 0.1, 100)
	p.duration("history", s.History, time.Minute, 2*time.Hour)
	p.duration("scrape_interval", s.ScrapeInterval, 100*time.Millisecond, time.Minute)
	p.duration("rule_interval", s.RuleInterval, 100*time.Millisecond, time.Minute)
	if _, err := family.Merge(family.Shipped(), s.Families); err != nil {
		p.add("families: %w", err)
	}
	for i := range s.Families {
		if err := s.Families[i].Check(); err != nil {
			p.add("families: %w", err)
		}
	}
	if len(s.Phases) == 0 {
		p.add("phases: there is none")
	}
	seen, early := map[string]bool{}, false
	for i := range s.Phases {
		ph := &s.Phases[i]
		if ph.Name == "" || strings.ContainsAny(ph.Name, " /=") || seen[ph.Name] {
			p.add("phase %d: the name %q must be one word that no other phase has", i+1, ph.Name)
		}
		seen[ph.Name] = true
		// The data are such that a head can be compacted at one time only.
		if ph.Compact && early {
			p.add("phase %s: only one phase can compact, and none before it can have until or rounds", ph.Name)
		}
		early = early || ph.Compact || ph.Until != "" || ph.Dashboards != nil && ph.Dashboards.Rounds > 0
		s.checkPhase(&p, ph)
	}
	p.duration("the phases together", s.Span(), 0, maxSpan)
	for i := range s.Expect {
		s.Expect[i].check(&p, i, seen)
	}
	return errors.Join(p...)
}

func (s *Scenario) checkPhase(p *problems, ph *Phase) {
	in := "phase " + ph.Name + ": "
	p.duration(in+"for", ph.For, time.Second, maxSpan)
	if !slices.Contains([]string{"", "kill", "term"}, ph.Restart) {
		p.add("%srestart must be kill or term, got %q", in, ph.Restart)
	}
	if !slices.Contains([]string{"", Back, Compacted}, ph.Until) {
		p.add("%suntil must be back or compacted, got %q", in, ph.Until)
	}
	p.within(in+"explode", float64(ph.Explode), 0, 1e6)
	p.within(in+"churn", ph.Churn, 0, 3600)
	p.within(in+"idle_connections", float64(ph.IdleConnections), 0, 50_000)
	if st := ph.Storm; st != nil {
		p.within(in+"storm: clients", float64(st.Clients), 1, 10_000)
		p.duration(in+"storm: timeout", st.Timeout, time.Millisecond, time.Hour)
		p.within(in+"storm: leave", st.Leave, 0, 1)
		p.within(in+"storm: gzip", st.Gzip, 0, 1)
		if _, err := family.Find(s.AllFamilies(), st.Families); err != nil {
			p.add("%sstorm: families: %w", in, err)
		}
	}
	if d := ph.Dashboards; d != nil {
		p.within(in+"dashboards: clients", float64(d.Clients), 1, 1000)
		p.within(in+"dashboards: rounds", float64(d.Rounds), 0, 1000)
		if !d.Expressions && !d.Buckets {
			p.add("%sdashboards: expressions or buckets must be true", in)
		}
	}
	if r := ph.SlowReaders; r != nil {
		p.within(in+"slow_readers: clients", float64(r.Clients), 1, 1000)
		p.within(in+"slow_readers: rate", float64(r.Rate), 1, 1e9)
		if found, err := family.Find(s.AllFamilies(), []string{r.Family}); err != nil || len(found) != 1 {
			p.add("%sslow_readers: family must be the name of one, got %q", in, r.Family)
		}
	}
}

func (e *Expectation) check(p *problems, i int, phases map[string]bool) {
	in := fmt.Sprintf("expect %d (%s): ", i+1, e.Name)
	if e.Name == "" {
		p.add("%sit needs a name", in)
	}
	if e.Phase != "" && !phases[e.Phase] {
		p.add("%sthere is no phase %q", in, e.Phase)
	}
	if e.AtLeast == nil && e.AtMost == nil {
		p.add("%sat_least or at_most is missing", in)
	}
	switch {
	case (e.Figure == "") == (e.Query == ""):
		p.add("%sit needs either a figure or a query", in)
	case e.Figure != "" && !slices.Contains(Figures, e.Figure):
		p.add("%sthere is no figure %q%s", in, e.Figure, didyoumean.Hint(e.Figure, Figures))
	case e.Query != "":
		if _, err := parser.NewParser(parser.Options{}).ParseExpr(e.Query); err != nil {
			p.add("%squery: %w", in, err)
		}
		if e.Phase == "" {
			p.add("%sa query needs a phase, at whose end it is asked", in)
		}
	}
}
