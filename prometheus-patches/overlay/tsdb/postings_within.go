// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"context"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promguard/reads"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/index"
)

// checkPostingsEvery is how many postings are read, or series compared, between
// two looks at the context. So many take about 100 microseconds.
const checkPostingsEvery = 256

// postingsWithin returns p such that it ends with the context's cause soon
// after the context is done. Postings are the one thing that every way through
// a head or a block goes along, so this is where a selection is stopped: while
// they are merged, drained for sorting, or skipped over in a block.
//
// A context of anything but a limited read request leaves p as it is.
func postingsWithin(ctx context.Context, p index.Postings) index.Postings {
	r := reads.FromContext(ctx)
	if r == nil {
		return p
	}
	return &boundPostings{Postings: p, ctx: ctx, read: r}
}

// selectWithin is postingsWithin for the postings of the series that a
// selection returns: each is accounted for with as many points as the hints say
// that PromQL will make of it.
//
// A selection that goes on for long is counted, by the same matchers, so that
// one that will not fit in memory is refused before it has filled half of it.
func selectWithin(ctx context.Context, p index.Postings, hints *storage.SelectHints, ir IndexReader, ms []*labels.Matcher) index.Postings {
	p = postingsWithin(ctx, p)
	if bound, ok := p.(*boundPostings); ok {
		bound.points = pointsOf(hints)
		bound.again = func() (index.Postings, error) { return PostingsForMatchers(ctx, ir, ms...) }
	}
	return p
}

// countAfter is how many series a selection returns before it is counted.
// Counting a series takes some 50 ns; PromQL takes a microsecond for each.
const countAfter = 64 * checkPostingsEvery

// pointsOf returns how many points PromQL evaluates each series at.
func pointsOf(hints *storage.SelectHints) int64 {
	if hints == nil || hints.Step <= 0 {
		return 1
	}
	return max(1, (hints.End-hints.Start)/hints.Step+1)
}

// sortedSeriesBytes is what sorting holds for each series: pointers to series
// while they are sorted, and the postings that are made of them.
const sortedSeriesBytes = 16

// sortWithin sorts the series that were read from p by their labels. Sorting a
// million series takes seconds. For postings of postingsWithin it gives up soon
// after the context is done, and returns its cause.
func sortWithin(p index.Postings, series []*memSeries) error {
	bound, ok := p.(*boundPostings)
	if !ok {
		slices.SortFunc(series, compareLabels)
		return nil
	}
	if err := bound.read.Reserve(bound.ctx, int64(len(series))*sortedSeriesBytes); err != nil {
		return err
	}
	return sortFuncWithin(bound.ctx, series, compareLabels)
}

// sortValuesWithin sorts label values, for a limited read request until its
// context is done.
func sortValuesWithin(ctx context.Context, values []string) error {
	if reads.FromContext(ctx) == nil {
		slices.Sort(values)
		return nil
	}
	return sortFuncWithin(ctx, values, strings.Compare)
}

// sortFuncWithin sorts until the context is done, and returns its cause then.
func sortFuncWithin[T any](ctx context.Context, s []T, compare func(a, b T) int) error {
	var err error
	compared := 0
	slices.SortFunc(s, func(a, b T) int {
		if compared++; err == nil && compared%checkPostingsEvery == 0 {
			err = reads.Yield(ctx)
		}
		if err != nil {
			return 0 // To the sort, equal elements are in order: it ends in one pass.
		}
		return compare(a, b)
	})
	return err
}

func compareLabels(a, b *memSeries) int { return labels.Compare(a.labels(), b.labels()) }

type boundPostings struct {
	index.Postings
	ctx  context.Context
	read *reads.Read
	// points is how many points each of the postings stands for; 0 if they are
	// not the series that the selection returns.
	points int64
	// again returns the same postings once more.
	again func() (index.Postings, error)
	steps int
	err   error
}

// done counts a step and says whether the context has ended.
func (p *boundPostings) done() bool {
	if p.err == nil && p.steps%checkPostingsEvery == 0 {
		p.err = p.check()
	}
	p.steps++
	return p.err != nil
}

func (p *boundPostings) check() error {
	if p.steps == 0 {
		return reads.Check(p.ctx) // Most selections end before they take long.
	}
	if p.points > 0 {
		if err := p.read.Select(p.ctx, checkPostingsEvery, p.points); err != nil {
			return err
		}
		if p.steps == countAfter {
			if err := p.count(); err != nil {
				return err
			}
		}
	}
	return reads.Yield(p.ctx)
}

// count returns an error if more series are to come than the read has room for.
func (p *boundPostings) count() error {
	room, limited := p.read.Room(p.points)
	if !limited {
		return nil
	}
	postings, err := p.again()
	if err != nil {
		return err
	}
	left := room + countAfter
	for n := int64(1); postings.Next(); n++ {
		if n > left {
			return p.read.Select(p.ctx, room+1, p.points)
		}
		if n%checkPostingsEvery == 0 {
			if err := reads.Yield(p.ctx); err != nil {
				return err
			}
		}
	}
	return postings.Err()
}

func (p *boundPostings) Next() bool { return !p.done() && p.Postings.Next() }

func (p *boundPostings) Seek(v storage.SeriesRef) bool { return !p.done() && p.Postings.Seek(v) }

func (p *boundPostings) Err() error {
	if p.err != nil {
		return p.err
	}
	return p.Postings.Err()
}
