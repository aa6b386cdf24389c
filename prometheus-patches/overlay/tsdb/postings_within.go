// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"context"
	"math"
	"sync/atomic"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/index"
)

// checkPostingsEvery is how many postings are read between two looks at the
// context. So many take about 100 microseconds.
const checkPostingsEvery = 256

// What a selection holds of each posting, and of each list of postings that it
// merges, in bytes.
const (
	refBytes  = 8
	listBytes = 72
)

// selectWithin is PostingsForMatchers for a selection of series. Postings are the
// one thing that every way through a head or a block goes along, so this is where
// the selection of a read that is counted stops soon after the context is done:
// while postings are merged, drained for sorting, or skipped over in a block.
//
// What PromQL, federation and remote read select is counted at once, and told to
// the account before the first series is read. The returned index is for what
// follows. A context without an account leaves both as they are.
func selectWithin(ctx context.Context, ir IndexReader, hints *storage.SelectHints, ms []*labels.Matcher) (index.Postings, IndexReader, error) {
	account := storage.ReadAccountFrom(ctx)
	if account == nil {
		p, err := PostingsForMatchers(ctx, ir, ms...)
		return p, ir, err
	}
	bound := &boundIndex{IndexReader: ir, ctx: ctx, account: account, selections: storage.CountSelection(ctx)}
	p, err := PostingsForMatchers(ctx, bound, ms...)
	if err != nil {
		return nil, nil, err
	}
	seriesBytes := account.Bounds().SeriesBytes
	if seriesBytes > 0 && (hints == nil || hints.Func != "series") {
		points := storage.ReadPointsFrom(ctx, pointsOf(hints, ir))
		if p, err = bound.count(p, seriesBytes+pointBytes*points); err != nil {
			return nil, nil, err
		}
		bound.seriesBytes = seriesBytes
	}
	return bound.selected(p), bound, nil
}

// pointBytes is the size of a sample in PromQL's results.
const pointBytes = 16

// boundIndex is the index that a selection of a read looks into.
type boundIndex struct {
	IndexReader
	ctx     context.Context
	account storage.ReadAccount
	// selections counts those of the read.
	selections *atomic.Int64
	// seriesBytes is what each selected series takes; 0 if they are only listed.
	seriesBytes int64
	// merged is what the lists of postings take that were merged, in bytes.
	merged int64
}

// Postings implements IndexReader.
func (b *boundIndex) Postings(ctx context.Context, name string, values ...string) (index.Postings, error) {
	if err := b.use(int64(len(values)) * listBytes); err != nil {
		return nil, err
	}
	return b.IndexReader.Postings(ctx, name, values...)
}

// PostingsForLabelMatching implements IndexReader. It counts the lists of postings, and
// ends with the read.
func (b *boundIndex) PostingsForLabelMatching(ctx context.Context, name string, match func(string) bool) index.Postings {
	var err error
	seen, matched := 0, 0
	p := b.IndexReader.PostingsForLabelMatching(ctx, name, func(value string) bool {
		seen++
		if seen%checkPostingsEvery == 0 && err == nil {
			if err = b.use(int64(matched) * listBytes); err == nil {
				err = b.account.Yield(ctx)
			}
			matched = 0
		}
		if err != nil || !match(value) {
			return false
		}
		matched++
		return true
	})
	if err == nil {
		err = b.use(int64(matched) * listBytes)
	}
	if err != nil {
		return index.ErrPostings(err)
	}
	return p
}

// PostingsForAllLabelValues implements IndexReader.
func (b *boundIndex) PostingsForAllLabelValues(ctx context.Context, name string) index.Postings {
	return b.PostingsForLabelMatching(ctx, name, func(string) bool { return true })
}

func (b *boundIndex) use(bytes int64) error {
	b.merged += bytes
	return b.account.Use(bytes)
}

// count returns the postings as a list, and tells the account to expect so many
// bytes for each of them.
func (b *boundIndex) count(p index.Postings, each int64) (index.Postings, error) {
	bound := b.bind(p, refBytes)
	refs := make([]storage.SeriesRef, 0, 64)
	for bound.Next() {
		refs = append(refs, bound.At())
	}
	if err := bound.Err(); err != nil {
		return nil, err
	}
	err := b.account.Use(-b.merged)
	if err == nil {
		err = b.account.Expect(int64(len(refs)) * each)
	}
	return index.NewListPostings(refs), err
}

// bind returns p such that it ends with the account, and tells it that each of the
// postings takes so many bytes.
func (b *boundIndex) bind(p index.Postings, each int64) *boundPostings {
	return &boundPostings{Postings: p, ctx: b.ctx, account: b.account, each: each}
}

// selected returns p for the series that the selection returns.
func (b *boundIndex) selected(p index.Postings) index.Postings {
	bound := b.bind(p, b.seriesBytes)
	bound.selections = b.selections
	return bound
}

// SortedPostings implements IndexReader.
func (b *boundIndex) SortedPostings(p index.Postings) index.Postings {
	return b.reordered(p, b.IndexReader.SortedPostings)
}

// ShardedPostings implements IndexReader.
func (b *boundIndex) ShardedPostings(p index.Postings, shardIndex, shardCount uint64) index.Postings {
	return b.reordered(p, func(p index.Postings) index.Postings {
		return b.IndexReader.ShardedPostings(p, shardIndex, shardCount)
	})
}

// reordered returns the selected postings as the function returns them. The head
// holds a pointer and a reference of each to do so, and blocks nothing.
func (b *boundIndex) reordered(p index.Postings, f func(index.Postings) index.Postings) index.Postings {
	selected, ok := p.(*boundPostings)
	if !ok {
		return p // Why they could not be reordered before.
	}
	drained := b.bind(selected.Postings, 2*refBytes)
	result := f(drained)
	switch {
	case result == index.Postings(drained):
		return p
	case drained.err != nil:
		return index.ErrPostings(drained.err)
	}
	if err := b.account.Use(-drained.read * refBytes); err != nil {
		return index.ErrPostings(err)
	}
	return b.selected(result)
}

// compareWithin compares the labels of series that were read from p. Sorting a
// million of them takes seconds: when the read has ended all are equal, which ends
// the sort.
func compareWithin(p index.Postings, a, b *memSeries) int {
	if bound, ok := p.(*boundPostings); ok && bound.done() {
		return 0
	}
	return labels.Compare(a.labels(), b.labels())
}

type boundPostings struct {
	index.Postings
	ctx     context.Context
	account storage.ReadAccount
	// each is what a posting takes, in bytes.
	each int64
	// selections is not nil if these are the series that a selection returns: of as
	// many they may be read in turn, and merged.
	selections *atomic.Int64
	// read counts the postings, of which told were told to the account.
	read, told int64
	// steps counts, and check is the next of them that looks at the context.
	steps, check int64
	err          error
}

// done counts a step and says whether the read has ended.
func (p *boundPostings) done() bool {
	if p.err == nil && p.steps == p.check {
		p.err = p.look()
		p.check += p.every()
	}
	p.steps++
	return p.err != nil
}

// every returns how many steps are taken between two looks at the context.
func (p *boundPostings) every() int64 {
	if p.selections == nil {
		return checkPostingsEvery
	}
	return max(1, checkPostingsEvery/p.selections.Load())
}

// look is for the first of every so many steps. Most selections end before they take
// long.
func (p *boundPostings) look() error {
	switch {
	case p.steps > 0:
		if err := p.tell(); err != nil {
			return err
		}
		return p.account.Yield(p.ctx)
	case p.selections != nil:
		if err := p.account.Begin(p.ctx); err != nil {
			return err
		}
	}
	return storage.ReadEnded(p.ctx)
}

// tell tells the account of the postings that were read since the last time.
func (p *boundPostings) tell() error {
	n := p.read - p.told
	p.told = p.read
	if n == 0 || p.each == 0 {
		return nil
	}
	if p.selections != nil {
		p.account.Selected(n)
	}
	return p.account.Use(n * p.each)
}

func (p *boundPostings) Next() bool {
	if p.done() {
		return false
	}
	if p.Postings.Next() {
		p.read++
		return true
	}
	p.err = p.tell()
	return false
}

func (p *boundPostings) Seek(v storage.SeriesRef) bool { return !p.done() && p.Postings.Seek(v) }

func (p *boundPostings) Err() error {
	if p.err != nil {
		return p.err
	}
	return p.Postings.Err()
}

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
