// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/relabel"
	"github.com/promguard/promguard/internal/rules/source"
)

// The test here looks for expressions about which the check is wrong: random ones
// over small random data, with recording rules and alerts between, are evaluated by
// Prometheus's engine with and without what random rules drop. What the check says
// cannot happen must not.

// algebraRules are what profiles are put together from.
var algebraRules = []string{
	thinRule,
	"- {id: thin-a-more, class: thin, histograms: [a], drop_le: [1, 5], bounds: [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50], reason: for a test}\n",
	"- {id: thin-low, class: thin, histograms: [c], drop_le: [0.1, 0.2, 5], bounds: [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50], reason: for a test}\n",
	"- {id: thin-text, class: thin, source_labels: [__name__, le], regex: '(b|c)_bucket;(0\\.2|2(\\.0)?)', reason: for a test}\n",
	"- {id: thin-infinite, class: thin, source_labels: [__name__, le], regex: 'c_bucket;(2(\\.0)?|.Inf)', reason: for a test}\n",
	nameRule("name", "g"),
	nameRule("bucket", "b_bucket"),
	nameRule("names", "h|a_(sum|count)"),
	nameRule("target", "target_info|u"),
	"- {id: kind, class: disjoint, source_labels: [__name__, kind], regex: '[gh];x', reason: for a test}\n",
	"- {id: every-kind, class: value-changing, source_labels: [kind], regex: 'y', reason: for a test}\n",
	"- {id: jobbed, class: unused, source_labels: [__name__], regex: '(g|b_bucket)', jobs: [j1], reason: for a test}\n",
}

var algebraBounds = []float64{0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50}

const (
	algebraSteps = 12
	algebraStep  = 30 * time.Second
	algebraStart = int64(1_700_000_000_000)
)

func algebraTime(step int) int64 { return algebraStart + int64(step)*algebraStep.Milliseconds() }

// memory is storage of few series.
type memory struct{ series []*memorySeries }

type memorySeries struct {
	labels  labels.Labels
	samples []chunks.Sample
}

type floatSample struct {
	t int64
	v float64
}

func (floatSample) ST() int64                     { return 0 }
func (s floatSample) T() int64                    { return s.t }
func (s floatSample) F() float64                  { return s.v }
func (floatSample) H() *histogram.Histogram       { return nil }
func (floatSample) FH() *histogram.FloatHistogram { return nil }
func (floatSample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s floatSample) Copy() chunks.Sample         { return s }

func (m *memory) at(lset labels.Labels) *memorySeries {
	for _, s := range m.series {
		if labels.Equal(s.labels, lset) {
			return s
		}
	}
	s := &memorySeries{labels: lset}
	m.series = append(m.series, s)
	return s
}

func (s *memorySeries) append(t int64, v float64) { s.samples = append(s.samples, floatSample{t, v}) }

// Querier implements storage.Queryable.
func (m *memory) Querier(int64, int64) (storage.Querier, error) { return memoryQuerier{m}, nil }

type memoryQuerier struct{ m *memory }

func (q memoryQuerier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	var found []storage.Series
	for _, s := range q.m.series {
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.labels.Get(m.Name)) }) {
			found = append(found, storage.NewListSeries(s.labels, s.samples))
		}
	}
	sort.Slice(found, func(i, j int) bool { return labels.Compare(found[i].Labels(), found[j].Labels()) < 0 })
	return &listSet{series: found}
}

func (memoryQuerier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (memoryQuerier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}
func (memoryQuerier) Close() error { return nil }

type listSet struct {
	series []storage.Series
	next   int
}

func (s *listSet) Next() bool                      { s.next++; return s.next <= len(s.series) }
func (s *listSet) At() storage.Series              { return s.series[s.next-1] }
func (*listSet) Err() error                        { return nil }
func (*listSet) Warnings() annotations.Annotations { return nil }

// world is data with and without what a profile drops, and the rules that are
// evaluated on both.
type world struct {
	rnd           *rand.Rand
	profile       relabel.Profile
	rules         []source.Expression
	full, thinned *memory
	engine        *promql.Engine
	// failed says that rules fail on the data as they are.
	failed bool
}

func newWorld(t testing.TB, engine *promql.Engine, rnd *rand.Rand) *world {
	t.Helper()
	w := &world{rnd: rnd, engine: engine, full: &memory{}}
	var rules strings.Builder
	// Thinning has most of the algebra.
	thins := rnd.IntN(5)
	for _, i := range rnd.Perm(len(algebraRules))[:1+rnd.IntN(3)] {
		if i != thins {
			rules.WriteString(algebraRules[i])
		}
	}
	rules.WriteString(algebraRules[thins])
	w.profile = profile(t, rules.String())
	w.scrape()
	dropper, err := relabel.Compile(w.profile)
	require.NoError(t, err)
	w.thinned = &memory{}
	for _, s := range w.full.series {
		if _, drop := dropper.Drop(s.labels); !drop {
			w.thinned.series = append(w.thinned.series, &memorySeries{labels: s.labels, samples: slices.Clone(s.samples)})
		}
	}
	w.makeRules()
	for step := range algebraSteps {
		for i := range w.rules {
			w.failed = !w.evaluateRule(w.full, i, step) || w.failed
			w.evaluateRule(w.thinned, i, step)
		}
	}
	return w
}

// scrape makes the samples of a few targets, each of which may come or go.
func (w *world) scrape() {
	spelled := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	if w.rnd.IntN(2) == 0 {
		spelled = labels.FormatOpenMetricsFloat
	}
	for _, target := range []string{"j1 x", "j1 y", "j2 x", "j2 z"} {
		job, kind, _ := strings.Cut(target, " ")
		first, last := 0, algebraSteps
		switch w.rnd.IntN(8) {
		case 0:
			continue
		case 1:
			first = w.rnd.IntN(algebraSteps)
		case 2:
			last = w.rnd.IntN(algebraSteps)
		}
		series := func(name string, next func() float64, more ...string) {
			s := w.full.at(labels.FromStrings(append(more, model.MetricNameLabel, name, "job", job, "kind", kind, "instance", kind)...))
			for step := first; step < last; step++ {
				s.append(algebraTime(step), next())
			}
			if last < algebraSteps && len(s.samples) > 0 {
				s.append(algebraTime(last), math.Float64frombits(value.StaleNaN))
			}
		}
		for _, name := range []string{"g", "h", "u"} {
			series(name, func() float64 { return float64(w.rnd.IntN(7)) - 2 })
		}
		info := w.full.at(labels.FromStrings(model.MetricNameLabel, "target_info", "job", job, "instance", kind, "bound", "told"))
		for step := first; step < last; step++ {
			info.append(algebraTime(step), 1)
		}
		for _, name := range []string{"a", "b", "c"} {
			w.histogram(name, spelled, series)
		}
	}
}

// histogram makes the series of a classic histogram.
func (w *world) histogram(name string, spelled func(float64) string, series func(string, func() float64, ...string)) {
	rises := make([][]float64, algebraSteps)
	rare := w.rnd.IntN(2) == 0
	for step := range rises {
		rises[step] = make([]float64, len(algebraBounds)+1)
		for i := range rises[step] {
			if !rare || w.rnd.IntN(8) == 0 {
				rises[step][i] = float64(w.rnd.IntN(6))
			}
		}
	}
	for i := range len(algebraBounds) + 1 {
		le := "+Inf"
		if i < len(algebraBounds) {
			le = spelled(algebraBounds[i])
		}
		count, step := 0.0, 0
		cumulative := func() float64 {
			for _, n := range rises[step%algebraSteps][:i+1] {
				count += n
			}
			step++
			return count
		}
		series(name+"_bucket", cumulative, "le", le)
		if le == "+Inf" {
			count, step = 0, 0
			series(name+"_count", cumulative)
			count, step = 0, 0
			series(name+"_sum", cumulative)
		}
	}
}

func (w *world) makeRules() {
	for i := range w.rnd.IntN(4) {
		e, ok := w.expression(1 + w.rnd.IntN(3))
		if !ok {
			continue
		}
		static := map[string]string{}
		if w.rnd.IntN(4) == 0 {
			static[[]string{"bound", "kind", "le"}[w.rnd.IntN(3)]] = "x"
		}
		if w.rnd.IntN(3) == 0 {
			e.Kind, e.Alert, e.Labels = source.KindAlert, fmt.Sprintf("A%d", i), static
		} else {
			e.Kind, e.Record, e.Labels = source.KindRecord, fmt.Sprintf("rec%d", w.rnd.IntN(2)), static
		}
		w.rules = append(w.rules, e)
	}
}

// evaluateRule appends what a rule records, and reports whether it could.
func (w *world) evaluateRule(m *memory, i, step int) bool {
	e, t := w.rules[i], algebraTime(step)
	rows, err := w.evaluate(m, e.Queries[0], t)
	if err != nil {
		return false
	}
	out := map[string]promql.Sample{}
	for _, row := range rows {
		b := labels.NewBuilder(row.Metric)
		for k, v := range e.Labels {
			b.Set(k, v)
		}
		if e.Record != "" {
			b.Set(model.MetricNameLabel, e.Record)
		} else {
			b.Set(model.MetricNameLabel, "ALERTS_FOR_STATE").Set("alertname", e.Alert)
		}
		lset := b.Labels()
		out[lset.String()] = promql.Sample{Metric: lset, F: row.F}
	}
	if len(out) < len(rows) {
		return false // Prometheus records nothing if two rows get the same labels.
	}
	written := map[*memorySeries]bool{}
	ok := true
	write := func(lset labels.Labels, v float64) {
		s := m.at(lset)
		if n := len(s.samples); n == 0 || s.samples[n-1].T() < t {
			s.append(t, v)
		} else {
			ok = false // Another rule has written it.
		}
		written[s] = true
	}
	for _, key := range slices.Sorted(maps.Keys(out)) {
		row := out[key]
		if e.Record != "" {
			write(row.Metric, row.F)
			continue
		}
		write(row.Metric, 1)
		write(labels.NewBuilder(row.Metric).Set(model.MetricNameLabel, "ALERTS").Set("alertstate", "firing").Labels(), 1)
	}
	// What a rule wrote before and does not any more ends.
	for _, s := range m.series {
		of := e.Record != "" && s.labels.Get(model.MetricNameLabel) == e.Record || e.Alert != "" && s.labels.Get("alertname") == e.Alert
		if n := len(s.samples); of && !written[s] && n > 0 && s.samples[n-1].T() < t && !value.IsStaleNaN(s.samples[n-1].F()) && !w.sharedName(e) {
			s.append(t, math.Float64frombits(value.StaleNaN))
		}
	}
	return ok
}

// sharedName reports whether another rule records the same name.
func (w *world) sharedName(e source.Expression) bool {
	n := 0
	for _, r := range w.rules {
		if e.Record != "" && r.Record == e.Record {
			n++
		}
	}
	return n > 1
}

func (w *world) evaluate(m *memory, e parser.Expr, t int64) (map[string]promql.Sample, error) {
	q, err := w.engine.NewInstantQuery(context.Background(), m, nil, e.String(), time.UnixMilli(t))
	if err != nil {
		return nil, err
	}
	defer q.Close()
	res := q.Exec(context.Background())
	if res.Err != nil {
		return nil, res.Err
	}
	rows := map[string]promql.Sample{}
	switch v := res.Value.(type) {
	case promql.Vector:
		for _, s := range v {
			s.Metric = s.Metric.Copy()
			rows[string(s.Metric.Bytes(nil))] = s
		}
	case promql.Scalar:
		rows[""] = promql.Sample{F: v.V}
	default:
		return nil, fmt.Errorf("a %T", v)
	}
	return rows, nil
}

// undetermined reports whether the engine answers differently each time, as it does
// where topk has to choose between equal values.
func undetermined(t testing.TB, engine *promql.Engine, seed uint64, e parser.Expr) bool {
	t.Helper()
	var once map[string]promql.Sample
	for i := range 50 {
		w := newWorld(t, engine, rand.New(rand.NewPCG(seed, 1)))
		again, _ := w.evaluate(w.full, e, algebraTime(algebraSteps-1))
		if i == 0 {
			once = again
		}
		if wrong([]effect{{}}, nil, once, again) != "" {
			return true
		}
	}
	return false
}

// expression returns a random one that parses, or false.
func (w *world) expression(depth int) (source.Expression, bool) {
	text := w.vector(depth)
	expr, err := parser.NewParser(parser.Options{EnableExperimentalFunctions: true, EnableBinopFillModifiers: true}).ParseExpr(text)
	if err != nil {
		return source.Expression{}, false
	}
	return source.Expression{Place: text, Kind: source.KindPanel, Text: text, Queries: []parser.Expr{expr}}, true
}

func (w *world) pick(of ...string) string { return of[w.rnd.IntN(len(of))] }

func (w *world) selector() string {
	name := w.pick("a_bucket", "a_bucket", "a_bucket", "b_bucket", "c_bucket", "c_bucket", "a_count", "g", "h", "u", `{__name__=~"[ab]_bucket"}`, `{__name__=~"g|u"}`)
	if len(w.rules) > 0 && w.rnd.IntN(4) == 0 {
		name = w.pick("rec0", "rec0", "rec1", "rec1", "ALERTS", "ALERTS_FOR_STATE", `{__name__=~"rec.|ALERTS"}`)
	}
	if strings.HasPrefix(name, "{") {
		return name
	}
	var matchers []string
	if w.rnd.IntN(4) == 0 {
		matchers = append(matchers, w.pick(`job="j1"`, `job!="j1"`, `kind="x"`, `kind!="x"`, `kind=~"y|z"`, `kind=~"x|z"`))
	}
	switch {
	case strings.HasSuffix(name, "_bucket") && w.rnd.IntN(4) == 0:
		matchers = append(matchers, w.pick(`le="+Inf"`, `le="0.2"`, `le="0.5"`, `le=~"2(\\.0)?"`, `le=~"2(\\.0)?|.Inf"`, `le!="+Inf"`, `le!="0.2"`, `le!=""`, `le=~".+"`, `le=~"0.5|5(\\.0)?|.Inf"`))
	case strings.HasPrefix(name, "ALERTS") && w.rnd.IntN(2) == 0:
		matchers = append(matchers, w.pick(`alertname="A0"`, `alertname!="A1"`, `alertname=~"A[12]"`, `le="0.2"`, `le!="0.2"`))
	}
	return name + "{" + strings.Join(matchers, ",") + "}"
}

func (w *world) label() string { return w.pick("le", "le", "bound", "bound", "job", "kind") }

func (w *world) labels() string {
	var out []string
	for range w.rnd.IntN(3) {
		out = append(out, w.label())
	}
	return strings.Join(out, ",")
}

func (w *world) constant() string {
	return w.pick("0", "1", "2", "-1", "0.2", "0.3", "0.5", "3", "7", "1e9", "0.15")
}

// matrix is a range vector.
func (w *world) matrix(depth int) string {
	if depth > 1 && w.rnd.IntN(4) == 0 {
		return "(" + w.vector(depth-1) + ")[3m:30s]"
	}
	s := w.selector() + "[" + w.pick("1m", "3m", "5m") + "]"
	if w.rnd.IntN(10) == 0 {
		s += " offset 1m"
	}
	return s
}

func (w *world) scalar(depth int) string {
	if depth > 1 && w.rnd.IntN(6) == 0 {
		return "scalar(" + w.vector(depth-1) + ")"
	}
	return w.constant()
}

// vector is an instant vector, of all that there is but limitk, which chooses
// otherwise each time.
func (w *world) vector(depth int) string {
	if depth <= 0 {
		return w.selector()
	}
	v := func() string { return w.vector(depth - 1) }
	switch w.rnd.IntN(15) {
	case 0:
		return w.selector()
	case 12:
		// What a copy of a label tells.
		copied := w.pick(`label_replace(%s, "bound", "$1", "le", "(.*)")`, `label_join(%s, "bound", "", "le")`, `label_replace(%s, "bound", "$1", "job", "(.*)")`)
		copied = fmt.Sprintf(copied, w.vector(min(depth-1, w.rnd.IntN(2))))
		if w.rnd.IntN(2) == 0 {
			return w.pick("group", "group", "count", "min") + " by (bound) (" + copied + ")"
		}
		one := fmt.Sprintf(`label_replace(vector(1), "bound", %q, "", "")`, w.pick("0.1", "0.2", "1", "2", "2.0", "5", "j1"))
		return "(" + one + " " + w.pick("and", "unless") + " on (bound) " + copied + ")"
	case 1:
		if w.rnd.IntN(8) == 0 {
			return "info(" + v() + w.pick("", "", `, {bound="told"}`, `, {bound=~".*"}`, `, {__name__=~"target_info|u"}`) + ")"
		}
		return w.pick("rate", "increase", "irate", "sum_over_time", "avg_over_time", "max_over_time", "min_over_time", "last_over_time", "first_over_time",
			"count_over_time", "present_over_time", "absent_over_time", "changes", "resets", "delta", "deriv", "stddev_over_time", "idelta", "ts_of_max_over_time",
			"rate", "rate", "increase") + "(" + w.matrix(depth) + ")"
	case 2:
		return w.pick("abs", "ceil", "floor", "exp", "sgn", "sqrt", "timestamp", "sort", "sort_desc", "absent", "round", "absent", "hour", "ln") + "(" + v() + ")"
	case 3:
		return w.pick("clamp_min", "clamp_max") + "(" + v() + "," + w.scalar(depth) + ")"
	case 4, 13, 14:
		q := w.pick("0.5", "0.9", "0.99", "0", "1", "0.3", "1.5")
		switch w.rnd.IntN(6) {
		case 0:
			return "histogram_fraction(0, " + w.constant() + ", " + v() + ")"
		case 1:
			return "histogram_quantiles(" + v() + `, "bound", ` + q + ", 0.7)"
		case 2:
			return "histogram_quantile(" + q + ", " + v() + ")"
		}
		name := w.pick("a", "b", "c")
		inner := w.pick("rate("+name+"_bucket[3m])", name+"_bucket", "sum by (le) (rate("+name+"_bucket[3m]))", "sum by (le, job) ("+name+"_bucket)",
			"rec0", "sum by (le, job) ("+w.vector(min(depth-1, 1))+")", "sum by (le, job) ("+w.vector(0)+")")
		return "histogram_quantile(" + q + ", " + inner + ")"
	case 5:
		src, dst := w.label(), w.label()
		if w.rnd.IntN(3) == 0 {
			return fmt.Sprintf("label_join(%s, %q, %q, %q, %q)", v(), dst, "-", src, w.label())
		}
		return fmt.Sprintf("label_replace(%s, %q, %q, %q, %q)", v(), dst, w.pick("$1", "y", "", "0.2", "+Inf", "x$1"), src, w.pick("(.*)", "(.+)", "0.2", "(x)", "", "(0.*)"))
	case 6, 7, 8:
		op := w.pick("sum", "avg", "min", "max", "count", "group", "group", "stddev", "stdvar", "topk", "bottomk", "quantile", "count_values", "limit_ratio", "sum", "count", "max")
		grouping := w.pick("", " by ("+w.labels()+")", " without ("+w.labels()+")", " by ("+w.labels()+")")
		param := ""
		switch op {
		case "topk", "bottomk":
			param = w.pick("1", "2", "5") + ", "
		case "quantile":
			param = w.pick("0.5", "0.9") + ", "
		case "count_values":
			param = strconv.Quote(w.label()) + ", "
		case "limit_ratio":
			param = w.pick("0.5", "-0.5") + ", "
		}
		return op + grouping + " (" + param + v() + ")"
	case 9:
		op := w.pick("+", "-", "*", "/", "%", "^", "==", "!=", ">", "<", ">=", "<=", "> bool", "<= bool", "== bool")
		if w.rnd.IntN(2) == 0 {
			return "(" + v() + " " + op + " " + w.scalar(depth) + ")"
		}
		return "(" + w.scalar(depth) + " " + op + " " + v() + ")"
	case 10:
		op := w.pick("and", "or", "unless")
		return "(" + v() + " " + op + " " + w.pick("", "", "on ("+w.labels()+") ", "ignoring ("+w.labels()+") ") + w.vectorOrOne(depth) + ")"
	}
	op := w.pick("+", "-", "*", "/", "==", "!=", ">", "<", "> bool", "<= bool")
	match := w.pick("", "", "on ("+w.labels()+") ", "ignoring ("+w.labels()+") ")
	if match != "" {
		match += w.pick("", "group_left ("+w.labels()+") ", "group_right ("+w.labels()+") ", "group_left () ")
	}
	if w.rnd.IntN(8) == 0 {
		match += w.pick("fill (0) ", "fill_left (1) ", "fill_right (2) ")
	}
	return "(" + v() + " " + op + " " + match + v() + ")"
}

func (w *world) vectorOrOne(depth int) string {
	if w.rnd.IntN(5) == 0 {
		return w.pick("vector(1)", `label_replace(vector(1), "bound", "0.2", "", "")`, `label_replace(vector(1), "le", "0.2", "", "")`)
	}
	return w.vector(depth - 1)
}

// wrong says what of the effects of the rules, applied one after the other, is not
// so on the data, or returns "".
func wrong(effects []effect, rules []*rule, full, thinned map[string]promql.Sample) string {
	var may effect
	bound, near, thins := Bound{}, false, []*rule{}
	for i, e := range effects {
		if e.undecided != "" {
			return ""
		}
		if e.empty && len(thinned) > 0 {
			return fmt.Sprintf("rule %s leaves nothing, they say, and there are %d rows", rules[i].ID, len(thinned))
		}
		may.lose = may.lose || e.lose || e.empty
		may.gain = may.gain || e.gain
		may.move = may.move || e.move
		if e.thin != nil {
			thins = append(thins, rules[i])
		}
		if e.near != nil {
			near, bound = true, bound.And(e.near.bound)
		}
	}
	for key, f := range full {
		n, ok := thinned[key]
		le := f.Metric.Get(model.BucketLabel)
		switch {
		case !ok && !may.lose && !slices.ContainsFunc(thins, func(r *rule) bool { return r.le.Contains(le) }):
			return fmt.Sprintf("%s is lost", f.Metric)
		case !ok || may.move || closeEnough(f.F, n.F) || near && bound.Holds(f.F, n.F):
		default:
			return fmt.Sprintf("%s was %g and is %g", f.Metric, f.F, n.F)
		}
	}
	for key, n := range thinned {
		if _, ok := full[key]; !ok && !may.gain {
			return fmt.Sprintf("%s is new", n.Metric)
		}
	}
	return ""
}

// closeEnough allows for the order in which numbers are added up.
func closeEnough(a, b float64) bool {
	return a == b || math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) <= 1e-9*max(math.Abs(a), math.Abs(b))
}

func TestNoExpressionChangesInAWayThatTheCheckRulesOut(t *testing.T) {
	expressions, seed := 600, uint64(1)
	if text := os.Getenv("PROMGUARD_RULES_EXPRESSIONS"); text != "" {
		_, err := fmt.Sscan(text, &expressions)
		require.NoError(t, err)
		_, err = fmt.Sscan(os.Getenv("PROMGUARD_RULES_SEED"), &seed)
		require.NoError(t, err)
	}
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 1_000_000, Timeout: time.Hour, LookbackDelta: 2 * algebraStep,
		NoStepSubqueryIntervalFn: func(int64) int64 { return algebraStep.Milliseconds() },
		Parser:                   parser.NewParser(parser.Options{EnableExperimentalFunctions: true, EnableBinopFillModifiers: true}),
	})
	verdicts := map[Verdict]int{}
	wrongs := 0
	for n := 0; n < expressions; seed++ {
		w := newWorld(t, engine, rand.New(rand.NewPCG(seed, 1)))
		if w.failed {
			continue
		}
		exprs := slices.Clone(w.rules)
		for range 30 {
			if e, ok := w.expression(1 + w.rnd.IntN(4)); ok {
				exprs = append(exprs, e)
			}
		}
		c, err := New(w.profile, nil)
		require.NoError(t, err)
		results := c.Check(exprs)
		var walkers []*walker
		for _, r := range c.rules {
			walkers = append(walkers, c.walk(r, exprs))
		}
		for i, r := range results {
			full, err := w.evaluate(w.full, exprs[i].Queries[0], algebraTime(algebraSteps-1))
			if err != nil {
				continue
			}
			n++
			verdicts[r.Verdict]++
			var effects []effect
			for _, walker := range walkers {
				effects = append(effects, walker.expression(exprs[i]))
			}
			thinned, err := w.evaluate(w.thinned, exprs[i].Queries[0], algebraTime(algebraSteps-1))
			why := ""
			switch {
			case err == nil:
				why = wrong(effects, c.rules, full, thinned)
			case r.Verdict == Invisible || r.Verdict == Thinned:
				why = err.Error()
			}
			if why == "" || undetermined(t, engine, seed, exprs[i].Queries[0]) {
				continue
			}
			var rules strings.Builder
			for _, rule := range w.rules {
				fmt.Fprintf(&rules, "\n    %s%s%v: %s", rule.Record, rule.Alert, rule.Labels, rule.Text)
			}
			var ids []string
			for _, rule := range c.rules {
				ids = append(ids, rule.ID)
			}
			t.Errorf("seed %d, profile of %v: %s is %s, but %s%s", seed, ids, r.Expression.Text, r.Verdict, why, rules.String())
			wrongs++
			if wrongs == 20 {
				t.FailNow()
			}
		}
	}
	t.Logf("verdicts: %v", verdicts)
	for _, v := range []Verdict{Invisible, Thinned, Changed, Gone} {
		require.NotZero(t, verdicts[v], v)
	}
}
