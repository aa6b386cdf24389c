// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"math/rand/v2"
	"slices"
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
		require.Nil(t, h.series.getByID(chunks.HeadSeriesRef(ref)).txs.more)
	}
}

func TestARingOfTransactionsHasThoseThatWereNotRemoved(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	txr, want := newTxRing(), []uint64{}
	for id := range uint64(10_000) {
		txr.add(id)
		want = append(want, id)
		if r.IntN(3) == 0 {
			below := want[0] + r.Uint64N(uint64(len(want))+2)
			txr.cleanupAppendIDsBelow(below)
			want = slices.DeleteFunc(want, func(id uint64) bool { return id < below })
			require.Equal(t, len(want) > 2, txr.more != nil)
		}
		var got []uint64
		it := txr.iterator()
		for range txr.txIDCount {
			got = append(got, it.At())
			it.Next()
		}
		require.True(t, slices.Equal(want, got), "%v, not %v", got, want)
	}
}
