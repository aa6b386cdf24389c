// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !slicelabels && !dedupelabels

package tsdb

import (
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
)

// sortByLabels sorts series by their labels: by their first, which mostly is the name, and
// those with the same by the rest. Neither puts labels together. It ends soon after done
// says so, with the series in any order.
func sortByLabels(series []*memSeries, done func() bool) {
	firsts := make([]firstLabel, len(series))
	for i, s := range series {
		r := s.lset.reader()
		l, _ := r.next()
		firsts[i] = firstLabel{l, s}
	}
	sortUntil(firsts, done, func(a, b firstLabel) int {
		if a.Name != b.Name {
			return strings.Compare(a.Name, b.Name)
		}
		return strings.Compare(a.Value, b.Value)
	})
	rest := restOfLabels{done: done}
	for len(firsts) > 0 {
		n := 1
		for n < len(firsts) && firsts[n].Label == firsts[0].Label {
			n++
		}
		rest.sort(firsts[:n])
		for i := range firsts[:n] {
			series[i] = firsts[i].series
		}
		series, firsts = series[n:], firsts[n:]
	}
}

func sortUntil[T any](s []T, done func() bool, compare func(a, b T) int) {
	slices.SortFunc(s, func(a, b T) int {
		if done() {
			return 0 // All are equal, which ends the sort.
		}
		return compare(a, b)
	})
}

// firstLabel is the first label of a series, empty if it has none.
type firstLabel struct {
	labels.Label
	series *memSeries
}

// restOfLabels sorts series by the labels that come after their first. It has the buffers
// for that.
type restOfLabels struct {
	done    func() bool
	pieces  []pieceOfSeries
	readers []readerOfSeries
}

type pieceOfSeries struct {
	labels string
	series *memSeries
}

type readerOfSeries struct {
	labels packedReader
	series *memSeries
}

func (r *restOfLabels) sort(group []firstLabel) {
	if len(group) > 1 && !r.sortPieces(group) {
		r.sortReaders(group)
	}
}

// sortPieces sorts series of each of which the rest is one piece, and returns false if it
// is not: most metrics differ in their names alone from others with the same base.
func (r *restOfLabels) sortPieces(group []firstLabel) bool {
	r.pieces = slices.Grow(r.pieces[:0], len(group))
	for _, f := range group {
		after := f.series.lset.reader()
		after.next()
		left, ok := after.left()
		if !ok {
			return false
		}
		r.pieces = append(r.pieces, pieceOfSeries{left, f.series})
	}
	sortUntil(r.pieces, r.done, func(a, b pieceOfSeries) int { return labels.Compare(asLabels(a.labels), asLabels(b.labels)) })
	for i := range r.pieces {
		group[i].series = r.pieces[i].series
	}
	return true
}

func (r *restOfLabels) sortReaders(group []firstLabel) {
	r.readers = slices.Grow(r.readers[:0], len(group))
	for _, f := range group {
		after := f.series.lset.reader()
		after.next()
		r.readers = append(r.readers, readerOfSeries{after, f.series})
	}
	sortUntil(r.readers, r.done, func(a, b readerOfSeries) int { return compareReaders(a.labels, b.labels) })
	for i := range r.readers {
		group[i].series = r.readers[i].series
	}
}
