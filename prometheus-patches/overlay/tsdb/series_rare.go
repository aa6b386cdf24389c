// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"unique"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/metadata"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// rareFields are what most series never have. A series that has none of it points to
// noRareFields, so that all can be read as if they were fields of the series. They are
// written through rare, setShardHash, setOOO, setLastHistogram and setAppender.
type rareFields struct {
	// Series labels hash to use for sharding purposes. The value is always 0 when sharding has not
	// been explicitly enabled in TSDB.
	shardHash uint64

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

// setShardHash needs no rare fields to say that sharding is not enabled.
func (s *memSeries) setShardHash(hash uint64) {
	if s.shardHash != hash {
		s.rare().shardHash = hash
	}
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

// replayedFields are rare fields that a replay finds while samples are appended to the
// same series elsewhere. They are set when nobody else has the series any more. Either
// map is written by one goroutine.
type replayedFields struct {
	metadata  map[chunks.HeadSeriesRef]unique.Handle[metadata.Metadata]
	exemplars map[chunks.HeadSeriesRef]int64 // When the latest was.
}

func newReplayedFields() *replayedFields {
	return &replayedFields{map[chunks.HeadSeriesRef]unique.Handle[metadata.Metadata]{}, map[chunks.HeadSeriesRef]int64{}}
}

func (f *replayedFields) exemplar(ref chunks.HeadSeriesRef, ts int64) {
	if last, ok := f.exemplars[ref]; !ok || ts > last {
		f.exemplars[ref] = ts
	}
}

// set sets the fields of the series that still exist.
func (f *replayedFields) set(all *stripeSeries) {
	for ref, m := range f.metadata {
		if s := all.getByID(ref); s != nil {
			s.rare().meta = m
		}
	}
	for ref, ts := range f.exemplars {
		if s := all.getByID(ref); s != nil {
			s.updateExemplarTimestamp(ts)
		}
	}
}
