// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promguard/reads"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/index"
	"github.com/prometheus/prometheus/tsdb/tombstones"
	"github.com/prometheus/prometheus/util/annotations"
)

// seriesLabelsWithin returns the labels of the series that newBlockSeriesSet
// would return, for a limited read request, and nil for all others. It allocates
// nothing for a series of the head: a list of a million series that is sent as
// it is read must not leave a million series of garbage behind.
//
// At returns the same storage.Series each time, valid until the next Next; its
// Labels stay valid, and it has no samples.
func seriesLabelsWithin(ctx context.Context, ir IndexReader, t tombstones.Reader, p index.Postings, mint, maxt int64) storage.SeriesSet {
	if reads.FromContext(ctx) == nil {
		return nil
	}
	return &seriesLabelsSet{index: ir, tombstones: t, p: p, mint: mint, maxt: maxt}
}

type seriesLabelsSet struct {
	index      IndexReader
	tombstones tombstones.Reader
	p          index.Postings
	mint, maxt int64

	curr    labels.Labels
	chks    []chunks.Meta
	builder labels.ScratchBuilder
	err     error
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
			s.curr = s.builder.Labels()
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

func (s *seriesLabelsSet) At() storage.Series { return s }

// Labels implements storage.Series.
func (s *seriesLabelsSet) Labels() labels.Labels { return s.curr }

// Iterator implements storage.Series.
func (*seriesLabelsSet) Iterator(chunkenc.Iterator) chunkenc.Iterator {
	return chunkenc.NewNopIterator()
}

func (s *seriesLabelsSet) Err() error {
	if s.err != nil {
		return s.err
	}
	return s.p.Err()
}

func (*seriesLabelsSet) Warnings() annotations.Annotations { return nil }
