// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"context"
	"math"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promguard/reads"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/index"
)

// checkPostingsEvery is how many postings are read between two looks at the
// context. So many take about 100 microseconds.
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
		bound.points = pointsOf(hints, ir)
		bound.again = func() (index.Postings, error) { return PostingsForMatchers(ctx, ir, ms...) }
	}
	return p
}

// countAfter is how many series a selection returns before it is counted.
// Counting a series takes some 50 ns; PromQL takes a microsecond for each.
const countAfter = 64 * checkPostingsEvery

// sampleInterval is how far apart samples are reckoned to be, in milliseconds.
const sampleInterval = 15_000

// pointsOf returns how many points PromQL holds of each series of the index: one
// for each step, in the part of the range that the index covers, or the samples
// of a range selector that stands alone.
func pointsOf(hints *storage.SelectHints, ir IndexReader) int64 {
	switch {
	case hints == nil:
		return 1
	case hints.Step > 0:
		mint, maxt := covers(ir)
		return max(1, (min(hints.End, maxt)-max(hints.Start, mint))/hints.Step+1)
	case hints.Func == "" && hints.Range > 0:
		return max(1, hints.Range/sampleInterval)
	default:
		return 1
	}
}

// covers returns the time range of the index's samples in milliseconds.
func covers(ir IndexReader) (mint, maxt int64) {
	switch r := ir.(type) {
	case blockIndexReader:
		return r.b.meta.MinTime, r.b.meta.MaxTime
	case *headIndexReader:
		return r.head.MinTime(), r.head.MaxTime()
	default:
		return math.MinInt64, math.MaxInt64
	}
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
	return reads.SortFunc(bound.ctx, series, compareLabels)
}

// sortValuesWithin sorts label values, for a limited read request until its
// context is done.
func sortValuesWithin(ctx context.Context, values []string) error {
	if reads.FromContext(ctx) == nil {
		slices.Sort(values)
		return nil
	}
	return reads.SortFunc(ctx, values, strings.Compare)
}

// valueHints returns the hints for a selection of label values that are sorted
// afterwards. The head cuts its values in the order in which they came. Where that
// would be at the limit of a read's answer, and not at one that the client asked
// for, all are selected, and sortedUpTo cuts them.
func valueHints(ctx context.Context, hints *storage.LabelHints) *storage.LabelHints {
	if limitOfAnswer(ctx, hints) {
		return nil
	}
	return hints
}

// sortedUpTo returns the first of the sorted values, as many as the hints allow
// that valueHints took away.
func sortedUpTo(ctx context.Context, values []string, hints *storage.LabelHints) []string {
	if limitOfAnswer(ctx, hints) && len(values) > hints.Limit {
		return slices.Clone(values[:hints.Limit])
	}
	return values
}

func limitOfAnswer(ctx context.Context, hints *storage.LabelHints) bool {
	r := reads.FromContext(ctx)
	return r != nil && hints != nil && r.MaxResults > 0 && hints.Limit > r.MaxResults
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
	// returned are the series since they were last accounted for.
	returned int64
	steps    int
	err      error
}

// done counts a step and says whether the context has ended.
func (p *boundPostings) done() bool {
	if p.err == nil && p.steps%checkPostingsEvery == 0 {
		p.err = p.check()
	}
	p.steps++
	return p.err != nil
}

// account accounts for the series that were returned since the last time.
func (p *boundPostings) account() error {
	n := p.returned
	p.returned = 0
	if n == 0 || p.points == 0 {
		return nil
	}
	return p.read.Select(p.ctx, n, p.points)
}

func (p *boundPostings) check() error {
	if p.steps == 0 {
		return reads.Check(p.ctx) // Most selections end before they take long.
	}
	if err := p.account(); err != nil {
		return err
	}
	if p.steps == countAfter && p.points > 0 {
		if err := p.count(); err != nil {
			return err
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

func (p *boundPostings) Next() bool {
	if p.done() {
		return false
	}
	if p.Postings.Next() {
		p.returned++
		return true
	}
	p.err = p.account()
	return false
}

func (p *boundPostings) Seek(v storage.SeriesRef) bool { return !p.done() && p.Postings.Seek(v) }

func (p *boundPostings) Err() error {
	if p.err != nil {
		return p.err
	}
	return p.Postings.Err()
}
