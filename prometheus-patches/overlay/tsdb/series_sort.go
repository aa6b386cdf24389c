// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !slicelabels && !dedupelabels

package tsdb

import (
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
)

// sortByLabels sorts series by their labels, first by their names, and then the series
// of each name by the rest: neither puts labels together. It ends soon after done says
// so, with the series in any order.
func sortByLabels(series []*memSeries, done func() bool) {
	named := make([]namedSeries, len(series))
	for i, s := range series {
		named[i] = nameOf(s)
	}
	slices.SortFunc(named, func(a, b namedSeries) int {
		if done() {
			return 0 // All are equal, which ends the sort.
		}
		return compareNames(a, b)
	})
	var rest []restOfSeries
	for len(named) > 0 {
		n := 1
		for n < len(named) && named[n].name == named[0].name && named[0].name != "" {
			n++
		}
		rest = sortRest(rest[:0], named[:n], done)
		for i := range named[:n] {
			series[i] = named[i].series
		}
		series, named = series[n:], named[n:]
	}
}

// namedSeries is a series whose first label is its name, which is empty if it is not.
type namedSeries struct {
	name   string
	series *memSeries
}

func nameOf(s *memSeries) namedSeries {
	r := s.lset.reader()
	if l, ok := r.next(); ok && l.Name == labels.MetricName {
		return namedSeries{l.Value, s}
	}
	return namedSeries{"", s}
}

func compareNames(a, b namedSeries) int {
	if a.name == "" || b.name == "" {
		return compareLabels(a.series, b.series)
	}
	return strings.Compare(a.name, b.name)
}

// restOfSeries are the labels of a series that come after its name.
type restOfSeries struct {
	labels packedReader
	series *memSeries
}

// sortRest sorts series of one name. It returns its buffer.
func sortRest(rest []restOfSeries, named []namedSeries, done func() bool) []restOfSeries {
	if len(named) < 2 {
		return rest
	}
	for _, n := range named {
		r := n.series.lset.reader()
		r.next()
		rest = append(rest, restOfSeries{r, n.series})
	}
	slices.SortFunc(rest, func(a, b restOfSeries) int {
		if done() {
			return 0
		}
		return compareReaders(a.labels, b.labels)
	})
	for i := range rest {
		named[i].series = rest[i].series
	}
	return rest
}
