// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"

	"github.com/prometheus/prometheus/promguard/reads"
	"github.com/prometheus/prometheus/promql"
)

// federatedSampleBytes is what a federated sample has at least around its
// labels: a value, a timestamp and a line break.
const federatedSampleBytes = int64(len("{} 0 1700000000000\n"))

// refuseFederation says whether the answer would be larger than a limited
// request may have. The request is answered with the reason then.
func refuseFederation(ctx context.Context, vec promql.Vector) bool {
	read := reads.FromContext(ctx)
	if read == nil || read.ResponseBytes == 0 {
		return false
	}
	size := int64(0)
	for i := range vec {
		size += federatedSampleBytes + int64(vec[i].Metric.ByteSize())
	}
	return read.CheckResponse(size) != nil
}

// sortWithin sorts the samples for a limited request until that is stopped. What
// is then written goes nowhere.
func sortWithin(ctx context.Context, vec promql.Vector, compare func(a, b promql.Sample) int) {
	_ = reads.SortFunc(ctx, vec, compare)
}
