// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package promql

// wholeLabels puts the labels of the series together that an operator or a function gets:
// it hashes them, or what it makes of them, at each step. Labels that are longer than what
// a series takes besides stay packed.
func (ev *evaluator) wholeLabels(mat Matrix) Matrix {
	steps := ev.numSteps()
	if steps == 1 {
		return mat
	}
	m, most := ev.readMeter(), meterSeriesBytes+uint64(steps)*meterPointBytes
	for i := range mat {
		m.look()
		size := mat[i].Metric.ByteSize()
		if size > most {
			continue
		}
		whole, made := mat[i].Metric.Whole()
		if made && m != nil {
			m.hold(int64(size))
		}
		mat[i].Metric = whole
	}
	return mat
}
