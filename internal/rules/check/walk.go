// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"slices"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/promguard/promguard/internal/rules/automaton"
	"github.com/promguard/promguard/internal/rules/source"
)

// walker finds what one rule does to expressions.
type walker struct {
	*Checker
	rule *rule
	// recorded has what the rule does to the results of recording rules.
	recorded map[string][]recorded
	// met remembers how the rule and selectors lie to each other.
	met map[*selector]meeting
}

// meeting is what rule.meeting returned.
type meeting struct {
	how     meet
	example string
	err     error
}

// recorded is what a rule does to the result of one recording rule.
type recorded struct {
	labels map[string]string
	effect effect
}

// expr returns the effect on the value of an expression.
func (w *walker) expr(e parser.Expr) effect {
	e = source.Bare(e)
	switch e := e.(type) {
	case *parser.NumberLiteral, *parser.StringLiteral:
		return effect{}
	case *parser.VectorSelector:
		return w.selector(e)
	case *parser.MatrixSelector:
		in := w.expr(e.VectorSelector)
		if len(in.via) > 0 {
			// What is recorded may be missing at some times only.
			return in.counted()
		}
		return in
	case *parser.SubqueryExpr:
		return w.expr(e.Expr).counted()
	case *parser.UnaryExpr:
		return unary(e, w.expr(e.Expr))
	case *parser.Call:
		return w.call(e)
	case *parser.AggregateExpr:
		return w.aggregate(e)
	case *parser.BinaryExpr:
		return w.binary(e)
	}
	return effect{undecided: fmt.Sprintf("%T is not known to this check", e)}
}

func unary(e *parser.UnaryExpr, in effect) effect {
	if e.Op != parser.SUB {
		return in
	}
	if in.near != nil {
		return scaled(in, -1)
	}
	return in.part()
}

func (w *walker) selector(vs *parser.VectorSelector) effect {
	s, err := w.selectorOf(vs)
	if err != nil {
		return effect{undecided: err.Error()}
	}
	return w.selected(s)
}

// selected returns the effect on what a selector selects: of scraped series and
// of recorded ones.
func (w *walker) selected(s *selector) effect {
	met, ok := w.met[s]
	if !ok {
		met.how, met.example, met.err = w.rule.meeting(s)
		w.met[s] = met
	}
	if met.err != nil {
		return effect{undecided: fmt.Sprintf("%s: %s", s.text, met.err)}
	}
	scraped := w.scraped(s, met.how, met.example)
	for _, name := range w.recordedNames(s) {
		in, ok := w.fromRecorded(s, name)
		if !ok {
			continue
		}
		if s.name == "" {
			// Series of other names may still be there, and have the bounds.
			in = in.roughRows().some()
		}
		switch {
		case in.none():
			scraped = scraped.some()
		case scraped.none():
			scraped = in
		default:
			scraped = either(scraped, in)
		}
	}
	return scraped
}

// some is the effect on what there are other series beside.
func (e effect) some() effect {
	if e.empty {
		e.empty, e.lose = false, true
	}
	return e
}

// fromRecorded returns the effect on the series of one recorded name, or false if
// none is selected. Several rules may record series of it.
func (w *walker) fromRecorded(s *selector, name string) (out effect, ok bool) {
	gone := true
	for _, r := range w.recorded[name] {
		if !s.mayHave(r.labels) {
			continue
		}
		in := readRecorded(s, name, r.effect)
		gone = gone && in.empty
		if !ok {
			out, ok = in, true
		} else {
			out = either(out, in)
		}
	}
	if !gone {
		out = out.some()
	}
	return out, ok
}

func (w *walker) scraped(s *selector, m meet, example string) effect {
	if m == disjoint {
		return effect{}
	}
	if s.anyName {
		return effect{undecided: fmt.Sprintf("a variable names the metric of %s, which may be one that the rule drops, such as %s", s.text, example), example: example}
	}
	if m == covered {
		return effect{empty: true, why: fmt.Sprintf("drops all that %s selects", s.text), example: example}
	}
	if w.rule.bounds && !w.rule.le.Contains("+Inf") && s.selects(model.BucketLabel, "+Inf") && w.rule.coversNames(s) {
		return effect{
			thin:    &thin{rule: w.rule, histograms: w.rule.histograms(s), partial: s.anyBound || !s.allBounds(w.rule.answers), filtered: s.anyBound},
			why:     fmt.Sprintf("drops some of the bounds of %s", s.text),
			example: example,
		}
	}
	return effect{lose: true, why: fmt.Sprintf("drops %s, which %s selects", example, s.text), example: example}
}

// readRecorded returns what the effect on a recorded series becomes where a
// selector reads it.
func readRecorded(s *selector, name string, e effect) effect {
	if e.thin != nil {
		le := s.matchers[model.BucketLabel]
		missing, kept := leOf(e.thin.rule, le)
		switch {
		case !missing:
			return effect{}
		case !kept:
			e = effect{empty: true, example: e.example, why: e.why, via: e.via}
		case !s.selects(model.BucketLabel, "+Inf"):
			e = e.rough("")
		case s.anyBound:
			e = e.filter()
		case !s.allBounds(e.thin.rule.answers):
			e = e.part()
		}
	}
	if !e.none() {
		e.via = append(slices.Clone(e.via), name)
	}
	return e
}

// leOf reports whether the matchers of le select bounds that the rule drops, and
// such that it keeps.
func leOf(r *rule, matchers []*automaton.Set) (missing, kept bool) {
	_, missing, err := r.answers.Witness(append(slices.Clone(matchers), r.le)...)
	if err != nil {
		return true, true
	}
	_, kept, err = r.answers.Witness(append(slices.Clone(matchers), r.le.Not())...)
	return missing, kept || err != nil
}

func (w *walker) call(e *parser.Call) effect {
	if e.Func.Name == "info" {
		return w.info(e)
	}
	var in effect
	for _, arg := range e.Args {
		in = both(in, w.expr(arg))
	}
	if in.none() {
		return in
	}
	if !slices.Contains(monotone, e.Func.Name) {
		in = in.part()
	}
	switch e.Func.Name {
	case "absent", "absent_over_time":
		return absent(in)
	case "histogram_quantile":
		return w.quantile(in, e.Args[:1])
	case "histogram_quantiles":
		return w.quantile(in, e.Args[2:])
	case "histogram_fraction":
		return in.counted().moved("histogram_fraction reads between bounds, and " + in.why)
	case "scalar":
		if in.lose || in.gain || in.empty || in.thin != nil {
			return effect{move: true, why: in.why + ", so that scalar() becomes NaN or another value", example: in.example, via: in.via}
		}
		return in
	case "timestamp", "present_over_time", "count_over_time":
		if in.near != nil && !in.changes() {
			return effect{}
		}
		return in
	case "label_replace", "label_join":
		if in.thin != nil && slices.ContainsFunc(labelsOf(e), func(l string) bool { return l == model.BucketLabel || source.HasMarker(l) }) {
			return in.rough("")
		}
		return in
	case "max_over_time", "min_over_time":
		return in
	case "avg_over_time", "last_over_time", "first_over_time", "quantile_over_time":
		return in.mixed()
	case "sort", "sort_desc", "sort_by_label", "sort_by_label_desc":
		return in
	}
	if in.near != nil {
		return in.moved(in.why)
	}
	return in
}

// labelsOf returns the labels that label_replace or label_join reads and writes: a
// copy of le tells bounds apart as le does, and nothing here follows it.
func labelsOf(e *parser.Call) []string {
	args := slices.Concat(e.Args[1:2], e.Args[3:])
	if e.Func.Name == "label_replace" {
		args = args[:2]
	}
	var out []string
	for _, arg := range args {
		if s, ok := source.Bare(arg).(*parser.StringLiteral); ok {
			out = append(out, s.Val)
		}
	}
	return out
}

// monotone are the functions that leave counts that grow with the bound as such,
// and those that are looked at by themselves.
var monotone = []string{
	"rate", "increase", "irate", "sum_over_time", "avg_over_time", "max_over_time", "min_over_time", "last_over_time",
	"first_over_time", "quantile_over_time", "count_over_time", "present_over_time", "ceil", "floor", "round", "exp", "sgn",
	"clamp", "clamp_max", "clamp_min", "label_replace", "label_join", "sort", "sort_desc",
	"sort_by_label", "sort_by_label_desc", "histogram_quantile", "histogram_quantiles", "histogram_fraction",
}

// mixed notes that values were added up: a threshold may then be crossed though
// no quantile crossed it. The relative bound holds on, and only that.
func (e effect) mixed() effect {
	if e.near == nil {
		return e
	}
	if e.near.bound.Low > 0 || e.near.signs {
		return e.moved(e.why + ", and how far the result is off is not known")
	}
	n := *e.near
	n.plain, n.merged = false, nil
	e.near = &n
	return e
}

// info adds labels of other series to the rows of its first argument: where those
// series are gone, the rows are there without the labels. They are those of
// target_info, unless the second argument names others.
func (w *walker) info(e *parser.Call) effect {
	in := w.expr(e.Args[0])
	matchers := []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, "target_info")}
	if len(e.Args) > 1 {
		if vs, ok := e.Args[1].(*parser.VectorSelector); ok {
			matchers = slices.DeleteFunc(slices.Clone(matchers), func(*labels.Matcher) bool { return slices.ContainsFunc(vs.LabelMatchers, isName) })
			matchers = append(matchers, vs.LabelMatchers...)
		}
	}
	s, err := w.shared(matchers)
	if err != nil {
		return effect{undecided: err.Error()}
	}
	added := w.selected(s)
	added.near, added.move = nil, false
	if added.none() {
		return in
	}
	added = added.some().rough("")
	if added.undecided == "" {
		added.lose, added.gain = true, true
		added.why += ", so that info adds no labels"
	}
	return both(in.rough(""), added)
}

func isName(m *labels.Matcher) bool { return m.Name == labels.MetricName }

func absent(in effect) effect {
	if in.thin != nil && in.thin.filtered {
		in = in.rough("")
	}
	switch {
	case in.undecided != "":
		return in
	case in.empty:
		return effect{gain: true, why: in.why + ", so that absent() is always true", example: in.example, via: in.via}
	case in.lose:
		return effect{gain: true, lose: in.gain, why: in.why + ", so that absent() may become true", example: in.example, via: in.via}
	case in.gain:
		return effect{lose: true, why: in.why, example: in.example, via: in.via}
	}
	// Rows that move, or bounds beside +Inf that go, leave something there.
	return effect{}
}

func (w *walker) recordedNames(s *selector) []string {
	if s.name != "" {
		return []string{s.name}
	}
	var out []string
	for name := range w.recorded {
		if s.selects(model.MetricNameLabel, name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// selects reports whether the matchers of a label allow the value.
func (s *selector) selects(label, value string) bool {
	return !slices.ContainsFunc(s.matchers[label], func(set *automaton.Set) bool { return !set.Contains(value) })
}

// mayHave reports whether series with these labels can be selected.
func (s *selector) mayHave(labels map[string]string) bool {
	for name, value := range labels {
		if !source.HasMarker(value) && !s.selects(name, value) {
			return false
		}
	}
	return true
}
