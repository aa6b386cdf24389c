// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"context"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/index"
)

// valueBytes is the size of a label value in a list of them.
const valueBytes = 16

// sortedLabelValues returns the sorted values of a label, as the index does. A read
// that is counted holds no more of them than its answer may have: the lists of the
// head and of all blocks are merged afterwards. They are its first in order, so that
// new values are not those that are always missing.
func sortedLabelValues(ctx context.Context, ir IndexReader, name string, hints *storage.LabelHints, ms []*labels.Matcher) ([]string, error) {
	account := storage.ReadAccountFrom(ctx)
	if account == nil {
		return ir.SortedLabelValues(ctx, name, hints, ms...)
	}
	values, err := ir.LabelValues(ctx, name, hints, ms...)
	if err != nil {
		return nil, err
	}
	if err := account.Use(int64(len(values)) * valueBytes); err != nil {
		return nil, err
	}
	if err := storage.SortRead(ctx, values, strings.Compare); err != nil {
		return nil, err
	}
	most := account.Bounds().MaxResults
	if most == 0 || len(values) <= most {
		return values, nil
	}
	left := len(values) - most - 1 // One more, so that the answer is cut, and says so.
	return slices.Clone(values[:most+1]), account.Use(int64(-left) * valueBytes)
}

// lookWithin returns the index for a list of label names or values with matchers, of
// the label if it has a name. For a read that is counted the postings of its matchers
// end with the read, as those of a selection do.
func lookWithin(ctx context.Context, ir IndexReader, name string) IndexReader {
	account := storage.ReadAccountFrom(ctx)
	if account == nil {
		return ir
	}
	return &lookingIndex{IndexReader: ir, bound: boundIndex{IndexReader: ir, ctx: ctx, account: account}, name: name}
}

type lookingIndex struct {
	IndexReader
	bound boundIndex
	// name is that of the label whose values are listed: it is looked at by those of
	// other labels whether a series has one of its values.
	name  string
	calls int
}

// Postings implements IndexReader.
func (l *lookingIndex) Postings(ctx context.Context, name string, values ...string) (index.Postings, error) {
	l.calls++
	if l.calls%checkPostingsEvery == 0 {
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
	return l.bind(l.bound.matching(ctx, name, match, func(int64) error { return nil }))
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
