// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"

	"github.com/prometheus/prometheus/util/annotations"
)

// mergeWithin merges the lists of all queriers, as mergeResults does. If the read has an
// account, which counts each list already, a merged list replaces its two inputs there.
func (q *mergeGenericQuerier) mergeWithin(ctx context.Context, hints *LabelHints, list func(LabelQuerier) ([]string, annotations.Annotations, error)) ([]string, annotations.Annotations, error) {
	account := ReadAccountFrom(ctx)
	if account == nil {
		return q.mergeResults(q.queriers, hints, list)
	}
	var (
		warnings annotations.Annotations
		merge    func(labelGenericQueriers) ([]string, error)
	)
	merge = func(lq labelGenericQueriers) ([]string, error) {
		switch lq.Len() {
		case 0:
			return nil, nil
		case 1:
			names, w, err := list(lq.Get(0))
			warnings.Merge(w)
			return names, err
		}
		half, otherHalf := lq.SplitByHalf()
		a, err := merge(half)
		if err != nil {
			return nil, err
		}
		b, err := merge(otherHalf)
		if err != nil {
			return nil, err
		}
		both := int64(len(a)+len(b)) * ListElementBytes
		if err := account.Use(2 * both); err != nil { // Twice, because the merged list grows.
			return nil, err
		}
		merged := truncateToLimit(mergeStrings(truncateToLimit(a, hints), truncateToLimit(b, hints)), hints)
		if err := account.Use(int64(cap(merged))*ListElementBytes - 3*both); err != nil {
			return nil, err
		}
		return merged, account.Yield(ctx)
	}
	merged, err := merge(q.queriers)
	return merged, warnings, err
}
