// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package check proves what drop rules do to the expressions that an
// installation evaluates, without data: for every rule and every expression
// whether the rule's series are provably invisible to it, whether quantiles move
// within a stated bound, or what else happens.
//
// A rule and a series selector are sets of series; whether they meet is decided
// label by label with automata. Where they meet, the expression is followed from
// the selector to its result, through absent, unless, or, aggregations and
// joins, and through recording rules.
//
// The check errs on one side: invisible and thinned hold for any data, whereas
// changed says that the result may change.
package check

import (
	"encoding/binary"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/promguard/promguard/internal/relabel"
	"github.com/promguard/promguard/internal/rules/automaton"
	"github.com/promguard/promguard/internal/rules/source"
)

// Verdict says what a rule does to an expression. They are ordered from nothing
// to the worst.
type Verdict string

// The verdicts.
const (
	// Invisible: the result is the same on any data.
	Invisible Verdict = "invisible"
	// Thinned: quantiles move within the bound, or rows of single bounds are
	// missing while all others are exact.
	Thinned Verdict = "thinned"
	// Undecided: it could not be checked.
	Undecided Verdict = "undecided"
	// Changed: results may change beyond any bound.
	Changed Verdict = "changed"
	// Gone: there is no result any more.
	Gone Verdict = "gone"
)

var severity = []Verdict{Invisible, Thinned, Undecided, Changed, Gone}

// Worst returns the worst of the verdicts, Invisible if there are none.
func Worst(verdicts ...Verdict) Verdict {
	worst := 0
	for _, v := range verdicts {
		worst = max(worst, slices.Index(severity, v))
	}
	return severity[worst]
}

// Finding is what one rule does to one expression, other than nothing.
type Finding struct {
	Rule    string        `json:"rule"`
	Class   relabel.Class `json:"class"`
	Verdict Verdict       `json:"verdict"`
	// Why is a sentence for the person who has to decide.
	Why string `json:"why"`
	// Bound is set if the verdict is Thinned and values move.
	Bound *Bound `json:"bound,omitempty"`
	// Example is a series that the rule drops and the expression reads.
	Example string `json:"example,omitempty"`
}

// Result is what a profile does to one expression.
type Result struct {
	Expression source.Expression
	Verdict    Verdict
	// Findings has an entry per rule whose verdict is not Invisible.
	Findings []Finding
}

// Checker checks expressions against the rules of a profile. It is not safe for
// concurrent use.
type Checker struct {
	// Progress, if it is set, is told how many of the rules have been checked.
	Progress func(done, of int)

	rules []*rule
	// layouts are the finite bounds of histograms, by name without _bucket.
	layouts   map[string][][]float64
	selectors map[*parser.VectorSelector]*selector
	// same has them by what they are made of: many expressions select the same.
	same map[string]*selector
}

// New makes a Checker. layouts are the bounds that histograms were seen with, by
// name without _bucket; of others those are taken that the rules state. The error
// is that of a profile that is not valid.
func New(p relabel.Profile, layouts map[string][][]float64) (*Checker, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	c := &Checker{layouts: map[string][][]float64{}, selectors: map[*parser.VectorSelector]*selector{}, same: map[string]*selector{}}
	answers := &automaton.Answers{}
	for _, r := range p.Rules {
		compiled, err := newRule(r, answers)
		if err != nil {
			return nil, fmt.Errorf("rule %s: %w", r.ID, err)
		}
		c.rules = append(c.rules, compiled)
		if r.Thinning == nil {
			continue
		}
		for _, h := range r.Thinning.Histograms {
			c.layouts[h] = append(c.layouts[h], r.Thinning.Bounds)
		}
	}
	maps.Copy(c.layouts, layouts)
	return c, nil
}

// Concerns returns a function that says whether series of a metric's name can
// matter to the check: an expression may read them, or a rule drop them.
func (c *Checker) Concerns(exprs []source.Expression) func(name string) bool {
	byName := map[string]bool{}
	var others []*selector
	add := func(matchers []*labels.Matcher) {
		// What does not compile has been told by Check.
		if s, err := c.shared(matchers); err == nil && s.name != "" {
			byName[s.name] = true
		} else if err == nil {
			others = append(others, s)
		}
	}
	for _, e := range exprs {
		if e.Listing != nil {
			add(e.Listing.Matchers)
		}
		for _, q := range e.Queries {
			for _, matchers := range parser.ExtractSelectors(q) {
				add(matchers)
			}
		}
	}
	return func(name string) bool {
		return byName[name] ||
			slices.ContainsFunc(c.rules, func(r *rule) bool { return r.name == nil || r.name.Contains(name) }) ||
			slices.ContainsFunc(others, func(s *selector) bool { return s.selects(model.MetricNameLabel, name) })
	}
}

// Check returns a result for every expression, in their order. Recording rules
// among them are followed into the expressions that read what they record.
func (c *Checker) Check(exprs []source.Expression) []Result {
	results := make([]Result, len(exprs))
	for i, e := range exprs {
		results[i] = Result{Expression: e, Verdict: Invisible}
	}
	for n, r := range c.rules {
		if c.Progress != nil {
			c.Progress(n, len(c.rules))
		}
		w := c.walk(r, exprs)
		for i, e := range exprs {
			f, ok := w.finding(e)
			if !ok {
				continue
			}
			results[i].Findings = append(results[i].Findings, f)
			results[i].Verdict = Worst(results[i].Verdict, f.Verdict)
		}
	}
	return results
}

// walk returns what finds the effects of the rule, with those on what the
// expressions record.
func (c *Checker) walk(r *rule, exprs []source.Expression) *walker {
	w := &walker{Checker: c, rule: r, met: map[*selector]meeting{}}
	w.record(exprs)
	return w
}

// record finds what the rule does to recorded series, until nothing new is
// found. A chain of recording rules that is longer than the number of passes,
// or a circle, is left undecided.
func (w *walker) record(exprs []source.Expression) {
	const passes = 12
	for range passes {
		next := map[string][]recorded{}
		n := 0
		for _, e := range exprs {
			if e.Record == "" && e.Alert == "" {
				continue
			}
			in := w.expression(e)
			if in.thin != nil && e.Labels[model.BucketLabel] != "" {
				in = in.rough("")
			}
			if !in.none() {
				n++
			}
			// Rules on which there is no effect count too: what they record is
			// still there.
			if e.Record != "" {
				next[e.Record] = append(next[e.Record], recorded{labels: e.Labels, effect: in})
				continue
			}
			r := recorded{labels: maps.Clone(e.Labels), effect: in.alerts(e.Labels)}
			if r.labels == nil {
				r.labels = map[string]string{}
			}
			r.labels[model.AlertNameLabel] = e.Alert
			for _, name := range []string{"ALERTS", "ALERTS_FOR_STATE"} {
				next[name] = append(next[name], r)
			}
		}
		same := sameRecorded(w.recorded, next)
		w.recorded = next
		if n == 0 || same {
			return
		}
	}
	for name := range w.recorded {
		for i := range w.recorded[name] {
			w.recorded[name][i].effect = effect{undecided: "recording rules read each other in a circle, or in too long a chain: " + name}
		}
	}
}

// alerts returns the effect on the series ALERTS and ALERTS_FOR_STATE of an alert
// with the effect, which say that there are rows and not which values they have.
func (e effect) alerts(added map[string]string) effect {
	for _, v := range added {
		// A template may put the value, or le, into a label.
		if source.HasMarker(v) && !e.none() && e.undecided == "" && !e.empty {
			e = e.rough("")
			e.lose, e.gain = true, true
		}
	}
	e = e.part()
	e.near, e.move = nil, false
	if e.none() {
		return effect{}
	}
	return e
}

func sameRecorded(a, b map[string][]recorded) bool {
	return maps.EqualFunc(a, b, func(a, b []recorded) bool {
		return slices.EqualFunc(a, b, func(a, b recorded) bool { return sameEffect(a.effect, b.effect) })
	})
}

func sameEffect(a, b effect) bool {
	if (a.thin == nil) != (b.thin == nil) || a.undecided != b.undecided || !reflect.DeepEqual(a.near, b.near) {
		return false
	}
	if a.thin != nil && (a.thin.partial != b.thin.partial || a.thin.filtered != b.thin.filtered || !slices.Equal(a.thin.histograms, b.thin.histograms)) {
		return false
	}
	return a.empty == b.empty && a.lose == b.lose && a.gain == b.gain && a.move == b.move
}

// expression returns the effect on all that the expression may ask.
func (w *walker) expression(e source.Expression) effect {
	if e.Listing != nil {
		return w.listing(e.Listing)
	}
	var out effect
	for i, q := range e.Queries {
		in := w.expr(q)
		if i == 0 || in.verdict(e.Kind) != Invisible && Worst(out.verdict(e.Kind), in.verdict(e.Kind)) == in.verdict(e.Kind) {
			out = in
		}
	}
	return out
}

// listing is the effect on the values of a label.
func (w *walker) listing(l *source.Listing) effect {
	if len(l.Matchers) == 0 {
		return effect{undecided: "it asks for labels of every series, so only data can tell whether others than the dropped have them"}
	}
	s, err := w.shared(l.Matchers)
	if err != nil {
		return effect{undecided: err.Error()}
	}
	in := w.selected(s)
	if in.thin != nil && l.Label != model.BucketLabel && model.LegacyValidation.IsValidLabelName(l.Label) && !source.HasMarker(l.Label) && !in.thin.filtered {
		// Every series has a sibling with le="+Inf". Without a label, whole series
		// are asked for; and a variable may name it.
		in.thin = nil
	}
	in.near, in.move = nil, false
	if in.none() {
		return effect{}
	}
	return in
}

// finding returns what is to be told of the rule and the expression.
func (w *walker) finding(e source.Expression) (Finding, bool) {
	in := w.expression(e)
	v := in.verdict(e.Kind)
	if v == Invisible {
		return Finding{}, false
	}
	f := Finding{Rule: w.rule.ID, Class: w.rule.Class, Verdict: v, Example: in.example}
	if v == Thinned {
		f.Bound = &Bound{}
		if in.near != nil {
			f.Bound = &in.near.bound
		}
	}
	f.Why = sentence(e.Kind, w.rule.ID, in, v)
	return f, true
}

func (e effect) verdict(kind source.Kind) Verdict {
	switch {
	case e.undecided != "":
		return Undecided
	case e.empty:
		return Gone
	case e.lose || e.gain || e.move:
		return Changed
	case e.thin != nil && (kind == source.KindAlert || e.thin.filtered):
		// One alert less per bound that is gone; and of rows that were filtered,
		// those of dropped bounds may be all there were.
		return Changed
	case e.thin != nil || e.near != nil:
		return Thinned
	}
	return Invisible
}

func (c *Checker) selectorOf(vs *parser.VectorSelector) (*selector, error) {
	if s := c.selectors[vs]; s != nil {
		return s, nil
	}
	s, err := c.shared(vs.LabelMatchers)
	if err == nil {
		c.selectors[vs] = s
	}
	return s, err
}

// shared returns the same selector for the same matchers.
func (c *Checker) shared(matchers []*labels.Matcher) (*selector, error) {
	var key []byte
	for _, m := range matchers {
		key = append(key, byte(m.Type))
		for _, text := range []string{m.Name, m.Value} {
			key = append(binary.AppendUvarint(key, uint64(len(text))), text...)
		}
	}
	if s := c.same[string(key)]; s != nil {
		return s, nil
	}
	s, err := newSelector(matchers)
	if err == nil {
		c.same[string(key)] = s
	}
	return s, err
}

// dropsBound reports whether any rule drops the bound of the histogram.
func (c *Checker) dropsBound(histogram string, bound float64) bool {
	return slices.ContainsFunc(c.rules, func(r *rule) bool { return r.dropsBound(histogram, bound) })
}

// histograms returns the names without _bucket that a selector may read of those
// that the rule thins.
func (r *rule) histograms(s *selector) []string {
	if name, ok := strings.CutSuffix(s.name, bucketSuffix); ok {
		return []string{name}
	}
	if r.Thinning == nil {
		return nil
	}
	var out []string
	for _, h := range r.Thinning.Histograms {
		if s.selects(labels.MetricName, h+bucketSuffix) {
			out = append(out, h)
		}
	}
	return out
}
