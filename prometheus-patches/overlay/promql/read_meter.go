// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package promql

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// What an evaluation holds, in bytes.
const (
	meterPointBytes = 16
	// meterSeriesBytes is what a series of a result takes beside its points and
	// labels, and what the expression around it makes for it: its place in vectors, in
	// tables of results, and in those of signatures.
	meterSeriesBytes = 400
	// meterGroupBytes is what an aggregation makes for a group.
	meterGroupBytes = 320
)

const (
	// meterStep is how many samples are evaluated between two looks at the account.
	meterStep = 4 << 10
	// meterLookEvery is how many elements of a loop are between two looks at the context.
	meterLookEvery = 256
	// meterElementPoints is how many points of a window count as an element.
	meterElementPoints = 64
	// meterHoldEvery is how many labels and groups are made between two of them.
	meterHoldEvery = 256
	// maxLabelSize is the most bytes of the name and the value of a label that is built.
	maxLabelSize = 64 << 10
	// countedFloatBytes and countedBucketBytes are what count_values makes of a number,
	// and of a bucket of a native histogram.
	countedFloatBytes  = 24
	countedBucketBytes = 64
)

// readMeter tells the account of a read what its evaluation holds. The evaluator
// counts the samples it holds, and compares them with its limit in each loop in
// which they grow: for a read that is counted the limit is a step ahead of them,
// and error moves it. All other evaluations have no meter.
//
// It takes the place of the evaluator's querier, which those of subqueries have, too.
//
// What was held once counts until the evaluation ends: so long may the garbage
// collector take.
type readMeter struct {
	storage.Querier
	ctx     context.Context
	account storage.ReadAccount
	// most is the evaluator's own limit of samples.
	most int
	// results are the bytes of the results that the expressions in progress hold,
	// beside their points.
	results int64
	told    int64
	// untold are bytes of results since the account was last told of some, and holds
	// how often there were any.
	untold int64
	holds  int
	// ev is the evaluator in progress, and expr what it evaluates.
	ev   *evaluator
	expr parser.Expr
	// joins is how many results the join in progress has made labels for, and groups
	// how many groups, or signatures, the loop in progress has found.
	joins, groups int
	// looks counts the elements of loops since the evaluation began.
	looks int
}

// readMeter returns the evaluation's meter, or nil.
func (ev *evaluator) readMeter() *readMeter {
	m, _ := ev.querier.(*readMeter)
	return m
}

// meter begins to count what the evaluation holds, and returns what ends it: what is
// left then is the result.
func (ev *evaluator) meter(ctx context.Context) (end func()) {
	account := storage.ReadAccountFrom(ctx)
	if account == nil {
		return func() {}
	}
	m := &readMeter{Querier: ev.querier, ctx: ctx, account: account, most: ev.maxSamples, ev: ev}
	ev.querier = m
	ev.maxSamples = min(m.most, meterStep)
	return func() {
		// To give back stops nothing.
		_ = account.Use(m.bytes() - m.told)
	}
}

func (m *readMeter) bytes() int64 {
	return int64(m.ev.currentSamples)*meterPointBytes + m.results
}

// tell tells the account of what is held more than before, and looks at the context.
func (m *readMeter) tell() {
	if held := m.bytes(); held > m.told {
		more := held - m.told
		m.told = held
		if err := m.account.Use(more); err != nil {
			panic(err)
		}
	}
	m.yield()
}

func (m *readMeter) yield() {
	if err := m.account.Yield(m.ctx); err != nil {
		panic(contextErr(err, env))
	}
}

// look is called for each element of a loop, and looks at the context every so often.
func (m *readMeter) look() {
	if m != nil {
		m.lookWithin(0)
	}
}

// lookWithin is called for each element of a loop that goes through so many points for it,
// which cost a fraction of what an element does: each window of a range vector.
func (m *readMeter) lookWithin(points int) {
	if m == nil {
		return
	}
	before := m.looks / meterLookEvery
	m.looks += 1 + points/meterElementPoints
	if m.looks/meterLookEvery != before {
		m.yield()
	}
}

// error panics with the error, unless it says that more samples are held than the
// account was told of: then it tells it, and panics only if they may not be.
func (ev *evaluator) error(err error) {
	m := ev.readMeter()
	if _, tooMany := errors.AsType[ErrTooManySamples](err); !tooMany || m == nil || ev.maxSamples >= m.most || ev.currentSamples > m.most {
		ev.raise(err)
	}
	m.tell()
	ev.maxSamples = min(ev.currentSamples+meterStep, m.most)
}

// eval evaluates the expression. While it does so its operands' results are held;
// afterwards its own.
func (ev *evaluator) eval(ctx context.Context, expr parser.Expr) (parser.Value, annotations.Annotations) {
	m := ev.readMeter()
	if m == nil {
		return ev.evalExpr(ctx, expr)
	}
	before, outer, around := m.results, m.ev, m.expr
	m.ev, m.expr = ev, expr
	v, ws := ev.evalExpr(ctx, expr)
	if around == nil {
		m.sortResult(v)
	}
	m.results = before + m.resultBytes(expr, v)
	m.tell()
	if copied, ok := around.(*parser.StepInvariantExpr); ok {
		m.copies(copied.Expr, v, outer.numSteps())
	}
	m.ev, m.expr = outer, around
	return v, ws
}

// copies tells of the copies of a result that does not depend on the step, before they
// are made: histograms are not copied, but pointed at.
func (m *readMeter) copies(expr parser.Expr, v parser.Value, steps int) {
	mat, ok := v.(Matrix)
	if !ok || isRange(expr) {
		return
	}
	for i := range mat {
		for _, p := range mat[i].Histograms {
			more := int64(steps-1) * meterPointBytes
			m.hold(more)
			m.results -= more * int64(p.size())
		}
	}
}

// resultBytes returns what a result takes beside its points.
func (m *readMeter) resultBytes(expr parser.Expr, v parser.Value) int64 {
	mat, ok := v.(Matrix)
	if !ok {
		return 0
	}
	bytes := int64(len(mat)) * meterSeriesBytes
	labelled := buildsLabels(expr)
	for i := range mat {
		m.look()
		for n := range mat[i].Histograms {
			bytes -= sharedBytes(mat[i].Histograms[:n], mat[i].Histograms[n].H)
		}
		bytes += int64(cap(mat[i].Floats)-len(mat[i].Floats)) * meterPointBytes
		if labelled {
			bytes += int64(mat[i].Metric.ByteSize())
		}
	}
	return bytes
}

// buildsLabels says whether the labels of the expression's results are its own.
func buildsLabels(expr parser.Expr) bool {
	switch e := expr.(type) {
	case *parser.Call, *parser.BinaryExpr, *parser.UnaryExpr:
		return true
	case *parser.AggregateExpr:
		return e.Op != parser.TOPK && e.Op != parser.BOTTOMK && e.Op != parser.LIMITK && e.Op != parser.LIMIT_RATIO
	default:
		return false
	}
}

// rangeEval calls the function for each step, which finds the meter where upstream's
// functions have no evaluator.
func (ev *evaluator) rangeEval(ctx context.Context, matching *parser.VectorMatching, funcCall func([]Vector, Matrix, [][]EvalSeriesHelper, *EvalNodeHelper) (Vector, annotations.Annotations), exprs ...parser.Expr) (Matrix, annotations.Annotations) {
	m := ev.readMeter()
	if m == nil {
		return ev.rangeEvalSteps(ctx, matching, funcCall, exprs...)
	}
	_, counts := m.expr.(*parser.AggregateExpr)
	return ev.rangeEvalSteps(ctx, matching, func(v []Vector, mat Matrix, helpers [][]EvalSeriesHelper, enh *EvalNodeHelper) (Vector, annotations.Annotations) {
		enh.readMeter = m
		ev.maxSamples = min(ev.currentSamples+meterStep, m.most) // Steps look as often as the first.
		before := m.results
		result, ws := funcCall(v, mat, helpers, enh)
		if counts {
			m.results = before // Of the groups of count_values nothing is left but its result.
		}
		return result, ws
	}, exprs...)
}

// holdPoint tells of the first point of a series, which makes room for one at each
// step. The evaluator counts those that it has.
func (ev *evaluator) holdPoint(ss *Series, h *histogram.FloatHistogram, numSteps int) {
	if m := ev.readMeter(); m != nil {
		m.holdPoint(ss, h, numSteps)
	}
}

func (m *readMeter) holdPoint(ss *Series, h *histogram.FloatHistogram, numSteps int) {
	m.look()
	m.results -= sharedBytes(ss.Histograms, h)
	if ss.Floats == nil && ss.Histograms == nil {
		m.hold(int64(ss.Metric.ByteSize()))
	}
	if h == nil {
		if ss.Floats == nil {
			m.hold(int64(min(numSteps, maxPointsSliceSize)) * meterPointBytes)
		}
		m.results -= meterPointBytes
	}
}

// sharePoint is called before a histogram is put behind the points of a series. The
// evaluator counts all of it, although the point before may have the same: steps finer
// than scrapes point at one.
func (ev *evaluator) sharePoint(points []HPoint, h *histogram.FloatHistogram) {
	if m := ev.readMeter(); m != nil {
		m.results -= sharedBytes(points, h)
	}
}

// sharedBytes returns what the evaluator counts too much for a histogram behind the points.
func sharedBytes(points []HPoint, h *histogram.FloatHistogram) int64 {
	if h == nil || len(points) == 0 || points[len(points)-1].H != h {
		return 0
	}
	return int64(HPoint{H: h}.size()-1) * meterPointBytes
}

// holdGroup tells of the histogram that an aggregation has made of a group in a step:
// the evaluator counts it when all are there. What is sorted of it next is sorted
// before, with looks at the context.
func (ev *evaluator) holdGroup(op parser.ItemType, heap vectorByValueHeap, h *histogram.FloatHistogram) {
	m := ev.readMeter()
	if m == nil {
		return
	}
	m.look()
	switch op {
	case parser.QUANTILE:
		m.sort(heap)
	case parser.TOPK:
		m.sort(sort.Reverse(heap))
	case parser.BOTTOMK:
		m.sort(sort.Reverse(vectorByReverseValueHeap(heap)))
	}
	if h != nil {
		m.hold(int64(h.Size()))
	}
}

// grouped is called for each series that is put into a group, and tells of the group
// that the one before has made, which will have a point at each step.
func (ev *evaluator) grouped(groups Matrix) {
	m := ev.readMeter()
	if m == nil {
		return
	}
	m.look()
	if len(groups) > m.groups {
		group := groups[len(groups)-1]
		m.hold(int64(ev.numSteps())*meterPointBytes + meterGroupBytes + int64(group.Metric.ByteSize()))
	}
	m.groups = len(groups)
}

// signed is called for the signature of each series of a join, with how many there were
// before, and tells of it if the one before was new: each is held once, as text.
func (ev *evaluator) signed(signature string, signatures int) {
	m := ev.readMeter()
	if m == nil {
		return
	}
	m.look()
	if signatures > m.groups {
		m.hold(int64(len(signature)))
	}
	m.groups = signatures
}

// expandLabel tells of the label that label_replace is about to make of the match, if
// there is one.
func (ev *evaluator) expandLabel(metric labels.Labels, name, repl string, match []int) {
	m := ev.readMeter()
	m.look()
	if m == nil || match == nil {
		return
	}
	longest := 0
	for i := 0; i < len(match); i += 2 {
		longest = max(longest, match[i+1]-match[i])
	}
	m.buildLabel("label_replace", metric, len(name)+len(repl)+strings.Count(repl, "$")*longest)
}

// joinLabel tells of the label that label_join is about to make of the values.
func (ev *evaluator) joinLabel(metric labels.Labels, name string, values []string, sep string) {
	m := ev.readMeter()
	if m == nil {
		return
	}
	m.look()
	size := len(name) + len(sep)*max(0, len(values)-1)
	for _, v := range values {
		size += len(v)
	}
	m.buildLabel("label_join", metric, size)
}

// countLabel refuses a label that is too long, before count_values makes it of a
// sample, and tells of the group that the sample before has made, of which buf has the
// labels.
func (enh *EvalNodeHelper) countLabel(name string, h *histogram.FloatHistogram, buf []byte, groups int) {
	m := enh.readMeter
	if m == nil {
		return
	}
	m.look()
	size := len(name) + countedFloatBytes
	if h != nil {
		size += countedBucketBytes * h.Size() / 8
	}
	checkLabel("count_values", size)
	if groups > m.groups {
		m.hold(int64(len(buf)))
	}
	m.groups = groups
}

// buildLabel tells of a label, and refuses one that is too long, before it is made.
func (m *readMeter) buildLabel(function string, metric labels.Labels, size int) {
	checkLabel(function, size)
	m.hold(int64(metric.ByteSize()) + int64(size))
}

func checkLabel(function string, size int) {
	if size > maxLabelSize {
		panic(fmt.Errorf("Build shorter labels: %s() may make one of %d bytes here, and at most %d are allowed", function, size, maxLabelSize)) //nolint:staticcheck // It is what a client reads.
	}
}

// joined tells of the labels of a result that a join has made, and of the table in
// which it finds them again: under the labels of both sides.
func (enh *EvalNodeHelper) joined(metric labels.Labels) {
	if enh.readMeter != nil {
		enh.readMeter.joined(enh, metric)
	}
}

func (m *readMeter) joined(enh *EvalNodeHelper, metric labels.Labels) {
	m.look()
	if len(enh.resultMetric) != m.joins {
		m.joins = len(enh.resultMetric)
		m.hold(int64(len(enh.lblResultBuf)) + int64(metric.ByteSize()))
	}
}

// hold adds bytes to what the expression in progress holds, and tells of many of
// them before they are taken.
func (m *readMeter) hold(bytes int64) {
	m.results += bytes
	m.untold += bytes
	m.holds++
	if m.untold < meterStep*meterPointBytes && m.holds%meterHoldEvery != 0 {
		return
	}
	m.untold = 0
	m.tell()
}
