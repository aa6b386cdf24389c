// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"context"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
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
