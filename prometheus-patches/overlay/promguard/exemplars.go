// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package promguard

import (
	"context"
	"unsafe"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
)

// What exemplars take in the result of a selection, without their labels, which
// are the storage's own.
const (
	exemplarSeriesBytes = int64(unsafe.Sizeof(exemplar.QueryResult{}))
	exemplarBytes       = int64(unsafe.Sizeof(exemplar.Exemplar{}))
)

// countedExemplars tells the account of a read of the exemplars that it selects.
// There are never more than the storage has room for.
type countedExemplars struct{ storage.ExemplarQueryable }

// ExemplarQuerier implements storage.ExemplarQueryable.
func (c countedExemplars) ExemplarQuerier(ctx context.Context) (storage.ExemplarQuerier, error) {
	q, err := c.ExemplarQueryable.ExemplarQuerier(ctx)
	account := storage.ReadAccountFrom(ctx)
	if err != nil || account == nil {
		return q, err
	}
	return exemplarQuerier{q, ctx, account}, nil
}

type exemplarQuerier struct {
	storage.ExemplarQuerier
	ctx     context.Context
	account storage.ReadAccount
}

// Select implements storage.ExemplarQuerier.
func (q exemplarQuerier) Select(start, end int64, matchers ...[]*labels.Matcher) ([]exemplar.QueryResult, error) {
	if err := q.account.Begin(q.ctx); err != nil {
		return nil, err
	}
	results, err := q.ExemplarQuerier.Select(start, end, matchers...)
	if err != nil {
		return nil, err
	}
	size := int64(cap(results)) * exemplarSeriesBytes
	for _, r := range results {
		size += int64(cap(r.Exemplars)) * exemplarBytes
	}
	return results, q.account.Use(size)
}
