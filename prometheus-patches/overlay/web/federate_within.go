// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"iter"
	"slices"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
)

// federatedSampleBytes is what a federated sample has at least around its
// labels: a value, a timestamp and a line break.
const federatedSampleBytes = int64(len("{} 0 1700000000000\n"))

// federateLookEvery is how many samples become messages between two looks at the
// context. Each takes some microseconds, and those of one metric are sent together.
const federateLookEvery = 64

// federatedWithin returns the samples until the read ends, or none if its answer would
// be too large: it is answered with the reason then.
func federatedWithin(ctx context.Context, vec promql.Vector) iter.Seq2[int, promql.Sample] {
	account := storage.ReadAccountFrom(ctx)
	if account == nil {
		return slices.All(vec)
	}
	size := int64(0)
	for i := range vec {
		size += federatedSampleBytes + int64(vec[i].Metric.ByteSize())
	}
	return func(yield func(int, promql.Sample) bool) {
		if account.CheckResponse(size) != nil {
			return
		}
		for i, s := range vec {
			if i%federateLookEvery == 0 && account.Yield(ctx) != nil || !yield(i, s) {
				return
			}
		}
	}
}
