// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"context"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promguard/deadline"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/index"
)

// checkPostingsEvery is how many postings are read, or series compared, between
// two looks at the context. So many take well under a millisecond.
const checkPostingsEvery = 1024

// postingsWithin returns p such that it ends with the context's cause soon
// after the context is done. Postings are the one thing that every way through
// a head or a block goes along, so this is where a selection is stopped: while
// they are merged, drained for sorting, or skipped over in a block.
//
// A context of anything but a read request with a deadline leaves p as it is.
func postingsWithin(ctx context.Context, p index.Postings) index.Postings {
	if !deadline.Bounds(ctx) {
		return p
	}
	return &boundPostings{Postings: p, ctx: ctx}
}

// sortWithin sorts the series that were read from p by their labels. Sorting a
// million series takes seconds. For postings of postingsWithin it gives up soon
// after the context is done, and returns its cause.
func sortWithin(p index.Postings, series []*memSeries) error {
	bound, ok := p.(*boundPostings)
	if !ok {
		slices.SortFunc(series, compareLabels)
		return nil
	}
	slices.SortFunc(series, func(a, b *memSeries) int {
		// To the sort, equal elements are in order: it ends in one pass.
		if bound.done() {
			return 0
		}
		return compareLabels(a, b)
	})
	return bound.err
}

func compareLabels(a, b *memSeries) int { return labels.Compare(a.labels(), b.labels()) }

type boundPostings struct {
	index.Postings
	ctx  context.Context
	read int
	err  error
}

// done counts a step and says whether the context has ended.
func (p *boundPostings) done() bool {
	if p.err == nil && p.read%checkPostingsEvery == 0 && p.ctx.Err() != nil {
		p.err = context.Cause(p.ctx)
	}
	p.read++
	return p.err != nil
}

func (p *boundPostings) Next() bool { return !p.done() && p.Postings.Next() }

func (p *boundPostings) Seek(v storage.SeriesRef) bool { return !p.done() && p.Postings.Seek(v) }

func (p *boundPostings) Err() error {
	if p.err != nil {
		return p.err
	}
	return p.Postings.Err()
}
