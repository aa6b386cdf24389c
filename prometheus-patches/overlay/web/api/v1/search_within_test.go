// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/promguard/reads"
)

func TestSearchBatchOfALimitedReadIsBounded(t *testing.T) {
	require.Equal(t, 1<<30, searchBatchSize(t.Context(), 1<<30))
	_, ctx, remove := reads.NewTable(nil).Add(t.Context(), reads.Info{}, reads.Limits{})
	defer remove()
	require.Equal(t, maxSearchBatch, searchBatchSize(ctx, 1<<30))
	require.Equal(t, 7, searchBatchSize(ctx, 7))
}
