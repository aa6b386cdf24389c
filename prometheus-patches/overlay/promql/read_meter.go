// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package promql

import (
	"context"
	"errors"
	"fmt"
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
	meterStep = 16 << 10
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
// and raise moves it. All other evaluations have no meter.
//
// What was held once counts until the evaluation ends: so long may the garbage
// collector take.
type readMeter struct {
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
	// joins is how many results the join in progress has made labels for.
	joins int
}

// meter begins to count what the evaluation holds, and returns what ends it: what is
// left then is the result.
func (ev *evaluator) meter(ctx context.Context) (end func()) {
	account := storage.ReadAccountFrom(ctx)
	if account == nil {
		return func() {}
	}
	m := &readMeter{ctx: ctx, account: account, most: ev.maxSamples}
	ev.readMeter = m
	ev.maxSamples = min(m.most, meterStep)
	return func() {
		// To give back stops nothing.
		_ = account.Use(m.bytes(ev.currentSamples) - m.told)
	}
}

func (m *readMeter) bytes(samples int) int64 { return int64(samples)*meterPointBytes + m.results }

// tell tells the account of what is held more than before, and looks at the context.
func (m *readMeter) tell(samples int) error {
	if held := m.bytes(samples); held > m.told {
		more := held - m.told
		m.told = held
		if err := m.account.Use(more); err != nil {
			return err
		}
	}
	if err := m.account.Yield(m.ctx); err != nil {
		return contextErr(err, env)
	}
	return nil
}

// raise panics with the error, unless it says that more samples are held than the
// account was told of: then it tells it, and panics only if they may not be.
func (ev *evaluator) raise(err error) {
	m := ev.readMeter
	if _, tooMany := errors.AsType[ErrTooManySamples](err); !tooMany || m == nil || ev.maxSamples >= m.most || ev.currentSamples > m.most {
		panic(err)
	}
	if err := m.tell(ev.currentSamples); err != nil {
		panic(err)
	}
	ev.maxSamples = min(ev.currentSamples+meterStep, m.most)
}

// eval evaluates the expression. While it does so its operands' results are held;
// afterwards its own.
func (ev *evaluator) eval(ctx context.Context, expr parser.Expr) (parser.Value, annotations.Annotations) {
	m := ev.readMeter
	if m == nil {
		return ev.evalExpr(ctx, expr)
	}
	before := m.results
	v, ws := ev.evalExpr(ctx, expr)
	m.results = before + resultBytes(expr, v)
	if err := m.tell(ev.currentSamples); err != nil {
		panic(err)
	}
	return v, ws
}

// resultBytes returns what a result takes beside its points.
func resultBytes(expr parser.Expr, v parser.Value) int64 {
	mat, ok := v.(Matrix)
	if !ok {
		return 0
	}
	bytes := int64(len(mat)) * meterSeriesBytes
	labelled := buildsLabels(expr)
	for i := range mat {
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

// addPoint is addToSeries, which makes room for a point at each step with the first
// of a series. The evaluator counts those that it has.
func (ev *evaluator) addPoint(ss *Series, ts int64, f float64, h *histogram.FloatHistogram, numSteps int) {
	if m := ev.readMeter; m != nil {
		if ss.Floats == nil && ss.Histograms == nil {
			ev.hold(int64(ss.Metric.ByteSize()))
		}
		if h == nil {
			if ss.Floats == nil {
				ev.hold(int64(min(numSteps, maxPointsSliceSize)) * meterPointBytes)
			}
			m.results -= meterPointBytes
		}
	}
	addToSeries(ss, ts, f, h, numSteps)
}

// addGroupPoint is addToSeries for a group of newGroup. The evaluator counts its
// points when all are there.
func (ev *evaluator) addGroupPoint(ss *Series, ts int64, f float64, h *histogram.FloatHistogram, numSteps int) {
	if ev.readMeter != nil && h != nil {
		ev.hold(int64(h.Size()))
	}
	addToSeries(ss, ts, f, h, numSteps)
}

// newGroup returns the series of a new group of an aggregation, which will have a
// point at each step.
func (ev *evaluator) newGroup(group labels.Labels) Series {
	if ev.readMeter != nil {
		ev.hold(int64(ev.numSteps())*meterPointBytes + meterGroupBytes + int64(group.ByteSize()))
	}
	return Series{Metric: group}
}

// expandLabel tells of the label that label_replace is about to make of the match.
func (ev *evaluator) expandLabel(metric labels.Labels, name, repl string, match []int) {
	if ev.readMeter == nil {
		return
	}
	longest := 0
	for i := 0; i < len(match); i += 2 {
		longest = max(longest, match[i+1]-match[i])
	}
	ev.buildLabel("label_replace", metric, len(name)+len(repl)+strings.Count(repl, "$")*longest)
}

// joinLabel tells of the label that label_join is about to make of the values.
func (ev *evaluator) joinLabel(metric labels.Labels, name string, values []string, sep string) {
	if ev.readMeter == nil {
		return
	}
	size := len(name) + len(sep)*max(0, len(values)-1)
	for _, v := range values {
		size += len(v)
	}
	ev.buildLabel("label_join", metric, size)
}

// countLabel refuses a label that is too long, before count_values makes it of a
// sample.
func (ev *evaluator) countLabel(name string, h *histogram.FloatHistogram) {
	if ev.readMeter == nil {
		return
	}
	size := len(name) + countedFloatBytes
	if h != nil {
		size += countedBucketBytes * h.Size() / 8
	}
	checkLabel("count_values", size)
}

// countedGroup tells of the labels of a new group of count_values.
func (ev *evaluator) countedGroup(group labels.Labels) labels.Labels {
	if ev.readMeter != nil {
		ev.hold(int64(group.ByteSize()))
	}
	return group
}

// buildLabel tells of a label, and refuses one that is too long, before it is made.
func (ev *evaluator) buildLabel(function string, metric labels.Labels, size int) {
	checkLabel(function, size)
	ev.hold(int64(metric.ByteSize()) + int64(size))
}

func checkLabel(function string, size int) {
	if size > maxLabelSize {
		panic(fmt.Errorf("Build shorter labels: %s() may make one of %d bytes here, and at most %d are allowed", function, size, maxLabelSize)) //nolint:staticcheck // It is what a client reads.
	}
}

// joined tells of the labels of a result that a join has made, and of the table in
// which it finds them again: under the labels of both sides.
func (ev *evaluator) joined(metric labels.Labels, enh *EvalNodeHelper) {
	if m := ev.readMeter; m != nil && len(enh.resultMetric) != m.joins {
		m.joins = len(enh.resultMetric)
		ev.hold(int64(len(enh.lblResultBuf)) + int64(metric.ByteSize()))
	}
}

// holdLabels tells of labels that are held as text.
func (ev *evaluator) holdLabels(size int) {
	if ev.readMeter != nil {
		ev.hold(int64(size))
	}
}

// holdStep returns what gives back all that is held from now on: nothing of it is
// left after the step but what becomes its result.
func (ev *evaluator) holdStep() (end func()) {
	m := ev.readMeter
	if m == nil {
		return func() {}
	}
	before := m.results
	return func() { m.results = before }
}

// hold adds bytes to what the expression in progress holds, and tells of many of
// them before they are taken.
func (ev *evaluator) hold(bytes int64) {
	m := ev.readMeter
	m.results += bytes
	m.untold += bytes
	m.holds++
	if m.untold < meterStep*meterPointBytes && m.holds%meterHoldEvery != 0 {
		return
	}
	m.untold = 0
	if err := m.tell(ev.currentSamples); err != nil {
		panic(err)
	}
}
