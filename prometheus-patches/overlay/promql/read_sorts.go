// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package promql

import (
	"slices"
	"sort"

	"github.com/facette/natsort"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/annotations"
)

// sortWithinLeast is how many elements are sorted with looks at the context. Fewer
// are sorted within milliseconds.
const sortWithinLeast = 1024

// meteredSort looks at the context while it is sorted, and panics when that has ended.
type meteredSort struct {
	sort.Interface
	m *readMeter
}

func (s meteredSort) Less(i, j int) bool {
	s.m.look()
	return s.Interface.Less(i, j)
}

// sort sorts as the sort package does, so that what is equal gets the same order. To
// sort it again takes one pass, and changes nothing.
func (m *readMeter) sort(data sort.Interface) {
	if data.Len() >= sortWithinLeast {
		sort.Sort(meteredSort{data, m})
	}
}

// sortResult sorts the result of a range query, or of a range selector, before the
// engine does, which has no context then.
func (m *readMeter) sortResult(v parser.Value) {
	instant := m.ev.interval == 1 && m.expr.Type() != parser.ValueTypeMatrix
	if mat, ok := v.(Matrix); ok && !instant {
		m.sort(mat)
	}
}

// Upstream's functions that sort have no context. Those of values are given what is
// sorted already; labels are too slow to compare once more.
func init() {
	FunctionCalls["sort"] = sortedBefore(FunctionCalls["sort"], func(v Vector) sort.Interface { return vectorByReverseValueHeap(v) })
	FunctionCalls["sort_desc"] = sortedBefore(FunctionCalls["sort_desc"], func(v Vector) sort.Interface { return vectorByValueHeap(v) })
	FunctionCalls["sort_by_label"] = sortedByLabel(FunctionCalls["sort_by_label"], func(s sort.Interface) sort.Interface { return s })
	FunctionCalls["sort_by_label_desc"] = sortedByLabel(FunctionCalls["sort_by_label_desc"], sort.Reverse)
}

func sortedBefore(upstream FunctionCall, by func(Vector) sort.Interface) FunctionCall {
	return func(v []Vector, mat Matrix, args parser.Expressions, enh *EvalNodeHelper) (Vector, annotations.Annotations) {
		if enh.readMeter != nil {
			v[0] = filterFloats(v[0])
			enh.readMeter.sort(sort.Reverse(by(v[0])))
		}
		return upstream(v, mat, args, enh)
	}
}

func sortedByLabel(upstream FunctionCall, direction func(sort.Interface) sort.Interface) FunctionCall {
	return func(v []Vector, mat Matrix, args parser.Expressions, enh *EvalNodeHelper) (Vector, annotations.Annotations) {
		if enh.readMeter == nil || len(v[0]) < sortWithinLeast {
			return upstream(v, mat, args, enh)
		}
		enh.readMeter.sort(direction(vectorByLabels{v[0], stringSliceFromArgs(args[1:])}))
		return v[0], nil
	}
}

// vectorByLabels is the order of sort_by_label.
type vectorByLabels struct {
	Vector
	names []string
}

func (v vectorByLabels) Len() int      { return len(v.Vector) }
func (v vectorByLabels) Swap(i, j int) { v.Vector[i], v.Vector[j] = v.Vector[j], v.Vector[i] }
func (v vectorByLabels) Less(i, j int) bool {
	a, b := v.Vector[i].Metric, v.Vector[j].Metric
	for _, name := range v.names {
		if x, y := a.Get(name), b.Get(name); x != y {
			return natsort.Compare(x, y)
		}
	}
	return labels.Compare(a, b) < 0
}

// repeats is ContainsSameLabelset of the vector.
func (ev *evaluator) repeats(v Vector) bool {
	m := ev.readMeter()
	if m == nil {
		return v.ContainsSameLabelset()
	}
	again := m.again(len(v))
	return slices.ContainsFunc(v, func(s Sample) bool { return again(s.Metric) })
}

// repeatsSeries is ContainsSameLabelset of the matrix.
func (ev *evaluator) repeatsSeries(mat Matrix) bool {
	m := ev.readMeter()
	if m == nil {
		return mat.ContainsSameLabelset()
	}
	again := m.again(len(mat))
	return slices.ContainsFunc(mat, func(s Series) bool { return again(s.Metric) })
}

// again returns what says whether it was called with the same labels before.
func (m *readMeter) again(most int) func(labels.Labels) bool {
	seen := make(map[uint64]struct{}, most)
	return func(l labels.Labels) bool {
		m.look()
		before := len(seen)
		seen[l.Hash()] = struct{}{}
		return len(seen) == before
	}
}
