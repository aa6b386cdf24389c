// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"context"

	"github.com/prometheus/prometheus/promguard/reads"
)

// maxSearchBatch is the most results that a limited request gets in one batch.
// Upstream makes room for as many as the client asks for before it has one.
const maxSearchBatch = 10_000

func searchBatchSize(ctx context.Context, n int) int {
	if reads.FromContext(ctx) == nil {
		return n
	}
	return min(n, maxSearchBatch)
}
