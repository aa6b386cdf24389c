// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/compression"
)

func TestARingOfTransactionsOfAScrapedSeriesDoesNotGrow(t *testing.T) {
	h, _ := newTestHead(t, 1000, compression.None, false)
	for ts := range int64(10) {
		app := h.Appender(t.Context())
		ref, err := app.Append(0, labels.FromStrings("a", "b"), ts, 1)
		require.NoError(t, err)
		require.NoError(t, app.Commit())
		require.LessOrEqual(t, len(h.series.getByID(chunks.HeadSeriesRef(ref)).txs.txIDs), 2)
	}
}
