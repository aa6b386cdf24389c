// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"math"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/timestamp"
	"github.com/prometheus/prometheus/promql/parser"
)

// Estimate is what a request makes a server do, before it does it. It bounds what
// the server would say of a query afterwards with stats=all, but for native
// histograms, which count as more samples than one.
type Estimate struct {
	// Series are those that selectors read: seriesTouched.
	Series float64
	// Held are the samples that are in memory at once: peakSamples.
	Held float64
	// Answer are the samples of the answer, which are in memory as text, too.
	Answer float64
	// Besides is what is made beside them, as samples that take as much: slices that are
	// outgrown where what does not depend on the step is repeated for every step, and
	// labels that are rewritten.
	Besides float64
	// Older is set if the query reads from before the head, where there may be series
	// that the server does not tell of.
	Older bool

	// Samples are read of the time after first, up to last, in milliseconds; of none if
	// last is not after first.
	first, last float64
}

// How many samples others take the place of: one while it is written, and the labels of a
// series.
const (
	sampleWithText = 3.75
	labelsOfSeries = 20
	// usualValue is how many bytes the value of a label has at most, as a rule: servers
	// do not tell.
	usualValue = 64
	// textOfByte is how many of memory a byte takes in an answer, whose buffers grow.
	textOfByte = 2.5
)

// samples is what the limit of that name bounds. What the answer was made of is gone
// when it is written; what was made besides may wait for a collection of garbage.
func (e *Estimate) samples() float64 { return max(e.Held, sampleWithText*e.Answer) + e.Besides }

// Bytes is what the server takes for the request.
func (e *Estimate) Bytes() int64 {
	return int64(min(bytesPerSeries*e.Series+bytesPerSample*e.samples(), math.MaxInt64/2))
}

// estimate returns what a request costs; ok is false if it reads no series, or if
// nobody knows what it reads.
func (a *asked) estimate() (e Estimate, ok bool) {
	if a.known {
		return a.estimated, true
	}
	switch name := a.Endpoint.Name; {
	case a.evaluates() && a.queries[0].unknown == nil:
		e = a.queries[0].estimate(&a.at, a.Head, a.Limit)
	case a.Head != nil && (name == "series" || name == EndpointFederate || name == EndpointRead):
		e = a.estimateSelectors()
	default:
		return e, false
	}
	a.estimated, a.known = e, true
	return e, true
}

// offer returns which step, or which range, makes a range query hold no more than so many
// samples; "" if none does.
func (a *asked) offer(limit int) string {
	if a.Endpoint.Reads != ReadsSteps {
		return ""
	}
	passes := func(e Evaluation) bool {
		other := *a
		other.at, other.known = e, false
		estimate, _ := other.estimate()
		return whole(estimate.samples()) <= limit
	}
	const most = 1 << 20 // times as little
	for times := time.Duration(2); times <= most && float64(times*a.at.Step) < a.at.length()*float64(time.Millisecond); times *= 2 {
		e := a.at
		if e.Step *= times; passes(e) {
			return "Ask for a step of " + text(e.Step) + ", which passes, for a shorter range or for fewer series."
		}
	}
	for times := time.Duration(2); times <= most; times *= 2 {
		e := a.at
		length := e.End.Sub(e.Start) / times
		if e.Start = e.End.Add(-length); length >= e.Step && passes(e) {
			return "Ask for the last " + text(length.Truncate(e.Step)) + ", which pass, or for fewer series."
		}
	}
	return ""
}

// estimateSelectors is estimate of what reads series as they stand.
func (a *asked) estimateSelectors() (e Estimate) {
	for i, q := range a.queries {
		series := q.bounds(a.Head)[0]
		e.Series += series
		switch a.Endpoint.Name {
		case EndpointFederate:
			e.Answer += series
		case EndpointRead:
			w := a.Windows[i]
			e.Answer += series * (1 + float64(between(w.Start.UnixMilli(), w.End.UnixMilli()))/float64(a.Head.Interval))
		}
	}
	if a.Endpoint.Name == "series" && a.Limit > 0 {
		e.Series = min(e.Series, float64(a.Limit))
	}
	return e
}

// bounds is how many series each selector has at most, in the order in which they are
// evaluated; it is worked out once for each state of the server.
func (q *Query) bounds(h *Head) []float64 {
	known := q.known.Load()
	if known == nil || known.head != h {
		known = &knownBounds{head: h, series: make([]float64, len(q.selectors))}
		looks := maxLooks
		for i := range q.selectors {
			known.series[i] = 1
			if h != nil {
				known.series[i] = h.bound(q.selectors[i], &looks)
			}
		}
		q.known.Store(known)
	}
	return known.series
}

// knownBounds remembers bounds.
type knownBounds struct {
	head   *Head
	series []float64
}

func (q *Query) estimate(at *Evaluation, h *Head, limit int) Estimate {
	expr, err := q.resolve(at)
	if err != nil {
		return Estimate{} // The server does not evaluate it either.
	}
	x := estimator{head: h, bounds: q.bounds(h), lookback: milliseconds(at.lookback()), subqueryStep: at.subqueryStep()}
	x.first, x.last = math.Inf(1), math.Inf(-1)
	start := float64(timestamp.FromTime(at.Start))
	length := max(at.length(), 0)
	g := grid{start, start + length, max(milliseconds(at.Step), length/maxSteps, 1)}
	out := x.eval(expr, g)
	if limit > 0 && out.now > float64(limit) {
		out.now = float64(limit)
	}
	x.Held = out.peak
	x.Besides += textOfByte * out.now * out.value / bytesPerSample
	x.Answer = out.now * out.steps
	if expr.Type() == parser.ValueTypeMatrix {
		x.Answer = out.held
	}
	return x.Estimate
}

// maxSteps is more than any server evaluates of a range query.
const maxSteps = 30_000

// grid are the moments for which an expression is evaluated, in milliseconds.
type grid struct{ start, end, step float64 }

func (g grid) steps() float64 { return math.Floor((g.end-g.start)/g.step) + 1 }

// estimator follows Prometheus's engine through an expression.
type estimator struct {
	Estimate

	head         *Head
	bounds       []float64 // of the selectors that were not evaluated yet
	lookback     float64   // in milliseconds
	subqueryStep time.Duration
}

// result is what the engine has of an expression.
type result struct {
	// series has all of a range query, now those of one moment at most.
	series, now float64
	// steps is for how many moments there is room.
	steps float64
	// held are the samples in memory afterwards, and peak on the way there.
	held, peak float64
	// renamed is set if series have labels that those of the server have not, and value is
	// how many bytes the longest one has that a function has made.
	renamed bool
	value   float64
}

// then returns the result of an operator over r.
func (r result) then(series, now float64) result {
	out := result{series: series, now: now, steps: r.steps, held: series * r.steps, renamed: r.renamed, value: r.value}
	out.peak = max(r.peak, r.held+out.held)
	return out
}

// stepwise is then of an operator that gathers what there is at each moment.
func (r result) stepwise(series, now float64) result {
	out := r.then(series, now)
	out.peak += r.now
	return out
}

// beside returns what is in memory once both are evaluated.
func (r result) beside(o result) result {
	return result{
		series: r.series + o.series, now: r.now + o.now, steps: max(r.steps, o.steps),
		held: r.held + o.held, peak: max(r.peak, r.held+o.peak), renamed: r.renamed || o.renamed,
		value: max(r.value, o.value),
	}
}

// eval returns the result of an expression. Nearly every operator makes the labels of its
// result anew.
func (x *estimator) eval(expr parser.Expr, g grid) result {
	r := x.evalOnce(expr, g)
	x.Besides += r.series * r.value / bytesPerSample
	return r
}

func (x *estimator) evalOnce(expr parser.Expr, g grid) result {
	switch n := expr.(type) {
	case *parser.VectorSelector:
		r, _ := x.selector(n, g, 0)
		return r
	case *parser.MatrixSelector:
		r, samples := x.selector(n.VectorSelector.(*parser.VectorSelector), g, n.Range)
		r.held *= samples
		r.peak = r.held
		return r
	case *parser.SubqueryExpr:
		r, _ := x.subquery(n, g)
		return r
	case *parser.ParenExpr:
		return x.eval(n.Expr, g)
	case *parser.UnaryExpr:
		return x.eval(n.Expr, g)
	case *parser.StepInvariantExpr: // Of an expression that is resolved for its times.
		r := x.eval(n.Expr, grid{g.start, g.start, g.step})
		r.steps = g.steps()
		x.Besides += r.series * outgrown(r.steps)
		return r.then(r.series, r.now)
	case *parser.Call:
		return x.call(n, g)
	case *parser.AggregateExpr:
		return x.aggregation(n, g)
	case *parser.BinaryExpr:
		return x.binary(n, g)
	case *parser.StringLiteral:
		return result{}
	}
	return result{steps: g.steps()}.then(1, 1) // a number
}

// outgrown returns for how many samples more than n there is room at most, in all the
// slices that append makes one after another on the way to n.
func outgrown(n float64) float64 {
	const doubled = 512 // of 16 bytes: up to here the allocator rounds none up
	sum := 1.0
	for room := 1.0; room < n; {
		if room < doubled {
			room *= 2
			sum += room
		} else {
			room *= 1.25
			room += 192
			sum += 1.25 * room
		}
	}
	return sum - n
}

// selector is a selector of so much time before each moment, 0 being an instant. It
// returns how many samples of a series that has at most, too.
func (x *estimator) selector(n *parser.VectorSelector, g grid, window time.Duration) (r result, samples float64) {
	series := x.bounds[0]
	x.bounds = x.bounds[1:]
	x.Series += series
	steps, samples := x.reach(n, g, window)
	r = result{series: series, now: series, steps: steps, held: series * steps}
	r.peak = r.held + samples
	return r, samples
}

// reach returns for how many moments there is room, which is for all if there can be any
// sample, and how many samples in a window.
func (x *estimator) reach(n *parser.VectorSelector, g grid, window time.Duration) (steps, samples float64) {
	at, offset, back, ahead := g, milliseconds(n.OriginalOffset), milliseconds(window), 0.0
	if n.Timestamp != nil {
		at.start, at.end = float64(*n.Timestamp), float64(*n.Timestamp)
	}
	if window == 0 || n.Anchored || n.Smoothed {
		back += x.lookback
	}
	if n.Smoothed {
		ahead = x.lookback
	}
	first := at.start - offset - back
	x.first, x.last = min(x.first, first), max(x.last, at.end-offset+ahead)
	steps, interval := g.steps(), unknownInterval
	if x.head != nil {
		interval = x.head.Interval
		x.Older = x.Older || first < float64(x.head.Since.UnixMilli())
		if at.end-offset+ahead < float64(x.head.Oldest.UnixMilli()) {
			steps = 0
		}
	}
	if samples = 1; window > 0 {
		samples += math.Floor((back + ahead) / milliseconds(interval))
	}
	return steps, samples
}

// subquery returns what is in memory of a subquery, and how many of its steps are in
// one window.
func (x *estimator) subquery(n *parser.SubqueryExpr, g grid) (r result, samples float64) {
	step := n.Step
	if step <= 0 {
		step = x.subqueryStep
	}
	if n.Timestamp != nil {
		g.start, g.end = float64(*n.Timestamp), float64(*n.Timestamp)
	}
	offset, reach := milliseconds(n.OriginalOffset), milliseconds(n.Range)
	inner := grid{g.start - offset - reach, g.end - offset, milliseconds(step)}
	r = x.eval(n.Expr, inner)
	return r, reach/inner.step + 1
}

func (x *estimator) call(n *parser.Call, g grid) result {
	var in result
	ranged := false
	for _, arg := range n.Args {
		switch arg := bare(arg).(type) {
		case *parser.MatrixSelector:
			ranged = true
			r, _ := x.selector(arg.VectorSelector.(*parser.VectorSelector), g, arg.Range)
			in = in.beside(r)
		case *parser.SubqueryExpr:
			r, samples := x.subquery(arg, g)
			r.steps = g.steps()
			out := r.then(r.series, r.series)
			out.peak += samples
			in = in.beside(out)
			ranged = true
		default:
			in = in.beside(x.eval(arg, g))
		}
	}
	if len(n.Args) == 0 {
		in.steps = g.steps()
	}
	switch n.Func.Name {
	case "absent", "absent_over_time", "scalar", "vector", "time", "pi":
		in.steps = g.steps()
		return in.stepwise(1, 1)
	case "histogram_quantile", "histogram_fraction":
		if of, ok := bare(n.Args[len(n.Args)-1]).(*parser.AggregateExpr); ok {
			series := x.groups(of, in, labels.BucketLabel)
			return in.stepwise(series, series)
		}
	case "label_replace", "label_join":
		in.renamed, in.value = true, max(in.value, built(n, max(in.value, usualValue)))
		x.Besides += labelsOfSeries * in.series
		return in
	case "info":
		x.first -= x.lookback // Of target_info, too, the last sample counts.
		if len(n.Args) == 1 && x.head != nil {
			x.Series += float64(x.head.count(labels.MetricName, "target_info"))
		}
		in.renamed = true
	}
	if ranged {
		return in
	}
	return in.stepwise(max(in.series, 1), max(in.now, 1))
}

// built returns how many bytes a label has that a function makes of values of so many, with
// its name.
func built(n *parser.Call, value float64) float64 {
	text := func(i int) string {
		if s, ok := bare(n.Args[i]).(*parser.StringLiteral); ok {
			return s.Val
		}
		return ""
	}
	if n.Func.Name == "label_join" { // Of a vector, to a name, with a separator, from names.
		return float64(len(text(1))) + float64(len(n.Args)-3)*(float64(len(text(2)))+value)
	}
	// Of a vector, to a name, a replacement.
	return float64(len(text(1)+text(2))) + float64(strings.Count(text(2), "$"))*value
}

// bare takes parentheses off, and what says that an expression is evaluated once.
func bare(expr parser.Expr) parser.Expr {
	for {
		switch n := expr.(type) {
		case *parser.ParenExpr:
			expr = n.Expr
		case *parser.StepInvariantExpr:
			switch n.Expr.(type) {
			case *parser.MatrixSelector, *parser.SubqueryExpr:
				expr = n.Expr
			default:
				return expr
			}
		default:
			return expr
		}
	}
}

func (x *estimator) aggregation(n *parser.AggregateExpr, g grid) result {
	in := x.eval(n.Expr, g)
	if n.Param != nil {
		in = x.eval(n.Param, g).beside(in)
	}
	groups := x.groups(n, in, "")
	switch n.Op {
	case parser.TOPK, parser.BOTTOMK, parser.LIMITK:
		now := min(in.now, groups*literal(n.Param))
		return in.then(min(in.series, now*in.steps), now)
	case parser.LIMIT_RATIO:
		return in.then(in.series, in.now)
	case parser.COUNT_VALUES: // Each value that there ever is makes a series, with room for all steps.
		in.renamed = true
		if x.head == nil { // A single series most often has one.
			return in.stepwise(in.series, in.now)
		}
		return in.stepwise(in.series*in.steps, in.now)
	}
	return in.then(groups, groups)
}

// groups returns how many groups an aggregation makes of what is in it, if one label is
// left out.
func (x *estimator) groups(n *parser.AggregateExpr, in result, without string) float64 {
	switch {
	case n.Without:
		return in.series
	case x.head == nil || in.renamed:
		if len(n.Grouping) == 0 {
			return min(in.series, 1)
		}
		return in.series
	}
	return x.head.groups(in.series, n.Grouping, without)
}

// literal returns the value of a number, or +Inf if it is computed.
func literal(e parser.Expr) float64 {
	switch n := bare(e).(type) {
	case *parser.StepInvariantExpr:
		return literal(n.Expr)
	case *parser.NumberLiteral:
		if n.Val < math.MaxInt32 { // Nor NaN.
			return max(n.Val, 0)
		}
	}
	return math.Inf(1)
}

func (x *estimator) binary(n *parser.BinaryExpr, g grid) result {
	l, r := x.eval(n.LHS, g), x.eval(n.RHS, g)
	both := l.beside(r)
	if n.VectorMatching == nil { // One side is a number at least.
		return both.stepwise(max(l.series, r.series), max(l.now, r.now))
	}
	m := n.VectorMatching
	switch {
	case n.Op == parser.LOR || m.FillValues.LHS != nil || m.FillValues.RHS != nil:
		return both.stepwise(both.series, both.now)
	case n.Op == parser.LAND || n.Op == parser.LUNLESS || m.Card == parser.CardManyToOne:
		return both.stepwise(l.series, l.now)
	case m.Card == parser.CardOneToMany:
		return both.stepwise(r.series, r.now)
	}
	return both.stepwise(min(l.series, r.series), min(l.now, r.now))
}
