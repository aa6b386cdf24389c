// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// manyLabels is for how many labels there is room on the stack.
const manyLabels = 32

// addToPostings adds a new series. The postings keep what is packed, not the labels that
// the series was made from.
func (h *Head) addToPostings(s *memSeries) {
	h.postings.AddLabels(storage.SeriesRef(s.ref), s.lset.appendLabels(make([]labels.Label, 0, manyLabels)))
}

func (x *replayIndexer) addPostings(s *memSeries) {
	x.postings.Add(storage.SeriesRef(s.ref), s.lset.appendLabels(make([]labels.Label, 0, manyLabels)))
}

// Labels implements storage.Labels.
func (s *memSeries) Labels() labels.Labels { return s.labels() }

// SeriesOf returns what has the labels of a series, or nil if there is none with the
// reference.
func (h *Head) SeriesOf(ref storage.SeriesRef) storage.Labels {
	if s := h.series.getByID(chunks.HeadSeriesRef(ref)); s != nil {
		return s
	}
	return nil
}
