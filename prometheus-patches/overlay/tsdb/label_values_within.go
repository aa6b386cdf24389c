// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"context"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/index"
)

// sortedLabelValues returns the sorted values of a label, as the index does. If the read
// has an account, it counts the list there, and stops sorting when the read ends.
func sortedLabelValues(ctx context.Context, ir IndexReader, name string, hints *storage.LabelHints, ms []*labels.Matcher) ([]string, error) {
	if storage.ReadAccountFrom(ctx) == nil {
		return ir.SortedLabelValues(ctx, name, hints, ms...)
	}
	values, err := countedList(ctx)(ir.LabelValues(ctx, name, hints, ms...))
	if err != nil {
		return nil, err
	}
	return values, storage.SortRead(ctx, values, strings.Compare)
}

// countedList returns a function that counts a list in the account of the read.
func countedList(ctx context.Context) func([]string, error) ([]string, error) {
	return func(list []string, err error) ([]string, error) {
		if account := storage.ReadAccountFrom(ctx); err == nil && account != nil {
			err = account.Use(int64(len(list)) * storage.ListElementBytes)
		}
		return list, err
	}
}

// lookWithin returns the index for a list of label names or values with matchers, of
// the label if it has a name. For a read that is counted the postings of its matchers
// end with the read, as those of a selection do. letGo gives their memory back.
func lookWithin(ctx context.Context, ir IndexReader, name string) (looking IndexReader, letGo func()) {
	account := storage.ReadAccountFrom(ctx)
	if account == nil {
		return ir, func() {}
	}
	l := &lookingIndex{IndexReader: ir, bound: boundIndex{IndexReader: ir, ctx: ctx, account: account}, name: name}
	return l, func() { _ = account.Use(-l.bound.merged) }
}

type lookingIndex struct {
	IndexReader
	bound boundIndex
	// name is that of the label whose values are listed: it is looked at by those of
	// other labels whether a series has one of its values.
	name  string
	calls int
}

// LabelValues implements IndexReader. It counts the values, which are filtered next.
func (l *lookingIndex) LabelValues(ctx context.Context, name string, hints *storage.LabelHints, ms ...*labels.Matcher) ([]string, error) {
	values, err := l.IndexReader.LabelValues(ctx, name, hints, ms...)
	if err != nil {
		return nil, err
	}
	return values, l.bound.use(int64(len(values)) * storage.ListElementBytes)
}

// Postings implements IndexReader.
func (l *lookingIndex) Postings(ctx context.Context, name string, values ...string) (index.Postings, error) {
	l.calls++
	if l.calls%checkPostingsEvery == 0 {
		if err := l.bound.use(checkPostingsEvery * listBytes); err != nil {
			return nil, err
		}
		if err := l.bound.account.Yield(ctx); err != nil {
			return nil, err
		}
	}
	p, err := l.IndexReader.Postings(ctx, name, values...)
	if err != nil || name == l.name && len(values) == 1 {
		return p, err
	}
	return l.bind(p), nil
}

// PostingsForLabelMatching implements IndexReader.
func (l *lookingIndex) PostingsForLabelMatching(ctx context.Context, name string, match func(string) bool) index.Postings {
	return l.bind(l.bound.PostingsForLabelMatching(ctx, name, match))
}

// PostingsForAllLabelValues implements IndexReader.
func (l *lookingIndex) PostingsForAllLabelValues(ctx context.Context, name string) index.Postings {
	return l.PostingsForLabelMatching(ctx, name, func(string) bool { return true })
}

// bind leaves no postings as they are: upstream compares with them.
func (l *lookingIndex) bind(p index.Postings) index.Postings {
	if p == index.EmptyPostings() {
		return p
	}
	return l.bound.bind(p, 0)
}
