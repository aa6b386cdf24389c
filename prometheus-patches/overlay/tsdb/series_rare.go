// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"unique"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/metadata"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// rareFields are what most series never have. A series that has none of it points to
// noRareFields, so that all can be read as if they were fields of the series. They are
// written through rare, setOOO, setLastHistogram and setAppender.
type rareFields struct {
	meta unique.Handle[metadata.Metadata]

	// Latest accepted exemplar timestamp, including exemplars awaiting commit.
	// A rolled-back exemplar may conservatively delay eviction until this time.
	lastExemplarTs int64
	// Whether an exemplar timestamp has been recorded, including zero or negative timestamps.
	hasExemplar bool

	ooo *memSeriesOOOFields

	// We keep the last histogram value here (in addition to appending it to the chunk) so we can check for duplicates.
	lastHistogramValue      *histogram.Histogram
	lastFloatHistogramValue *histogram.FloatHistogram

	// The appender of a head chunk that does not have its own.
	app chunkenc.Appender
}

// noRareFields is shared and never written.
var noRareFields rareFields

// rare returns the fields to write one of them.
func (s *memSeries) rare() *rareFields {
	if s.rareFields == &noRareFields {
		s.rareFields = new(rareFields)
	}
	return s.rareFields
}

// setOOO needs no rare fields to say that there is nothing out of order.
func (s *memSeries) setOOO(f *memSeriesOOOFields) {
	if s.ooo != f {
		s.rare().ooo = f
	}
}

// setLastHistogram sets both, of which one at most is not nil. It needs no rare fields
// to say that the last value is none.
func (s *memSeries) setLastHistogram(h *histogram.Histogram, fh *histogram.FloatHistogram) {
	if s.lastHistogramValue != h || s.lastFloatHistogramValue != fh {
		r := s.rare()
		r.lastHistogramValue, r.lastFloatHistogramValue = h, fh
	}
}
