// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"errors"
	"fmt"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/index"
	"github.com/prometheus/prometheus/tsdb/tombstones"
	"github.com/prometheus/prometheus/util/annotations"
)

// seriesLabelsSet has the labels of the series that newBlockSeriesSet has, and no
// samples. A list of a million series must not leave a million series of garbage
// behind: each is a few bytes of an array of many.
type seriesLabelsSet struct {
	index      IndexReader
	chunks     ChunkReader
	tombstones tombstones.Reader
	p          index.Postings
	mint, maxt int64

	curr    *seriesLabels
	free    []seriesLabels
	chks    []chunks.Meta
	builder labels.ScratchBuilder
	err     error
}

// seriesLabelsBatch is how many series are allocated at a time.
const seriesLabelsBatch = 128

func newSeriesLabelsSet(ir IndexReader, cr ChunkReader, t tombstones.Reader, p index.Postings, mint, maxt int64) storage.SeriesSet {
	return &seriesLabelsSet{index: ir, chunks: cr, tombstones: t, p: p, mint: mint, maxt: maxt}
}

func (s *seriesLabelsSet) Next() bool {
	for s.p.Next() {
		if err := s.index.Series(s.p.At(), &s.builder, &s.chks); err != nil {
			if errors.Is(err, storage.ErrNotFound) {
				continue // Postings may be stale.
			}
			s.err = fmt.Errorf("get series %d: %w", s.p.At(), err)
			return false
		}
		visible, err := s.visible()
		if err != nil {
			s.err = fmt.Errorf("get tombstones: %w", err)
			return false
		}
		if visible {
			if len(s.free) == 0 {
				s.free = make([]seriesLabels, seriesLabelsBatch)
			}
			s.curr, s.free = &s.free[0], s.free[1:]
			*s.curr = seriesLabels{s.builder.Labels(), s.chunks}
			return true
		}
	}
	return false
}

// visible says whether a chunk of the series is in the time range and not
// deleted, by the rules of blockBaseSeriesSet.Next.
func (s *seriesLabelsSet) visible() (bool, error) {
	if len(s.chks) == 0 {
		return false, nil
	}
	intervals, err := s.tombstones.Get(s.p.At())
	if err != nil {
		return false, err
	}
	for _, c := range s.chks {
		if c.MaxTime >= s.mint && c.MinTime <= s.maxt &&
			!(tombstones.Interval{Mint: c.MinTime, Maxt: c.MaxTime}.IsSubrange(intervals)) {
			return true, nil
		}
	}
	return false, nil
}

func (s *seriesLabelsSet) At() storage.Series { return s.curr }

// seriesLabels is a series with the samples of a reader of empty chunks.
type seriesLabels struct {
	labels labels.Labels
	chunks ChunkReader
}

// Labels implements storage.Series.
func (s *seriesLabels) Labels() labels.Labels { return s.labels }

// Iterator implements storage.Series.
func (s *seriesLabels) Iterator(it chunkenc.Iterator) chunkenc.Iterator {
	empty, _, err := s.chunks.ChunkOrIterable(chunks.Meta{})
	if err != nil {
		return chunkenc.NewNopIterator()
	}
	return empty.Iterator(it)
}

func (s *seriesLabelsSet) Err() error {
	if s.err != nil {
		return s.err
	}
	return s.p.Err()
}

func (*seriesLabelsSet) Warnings() annotations.Annotations { return nil }
