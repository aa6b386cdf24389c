// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/accounttest"
	"github.com/prometheus/prometheus/util/annotations"
)

// blockOf counts its values in the account, as a block does.
type blockOf struct {
	storage.MockQuerier
	values []string
}

func (b *blockOf) LabelValues(ctx context.Context, _ string, _ *storage.LabelHints, _ ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	if account := storage.ReadAccountFrom(ctx); account != nil {
		if err := account.Use(int64(len(b.values)) * storage.ListElementBytes); err != nil {
			return nil, nil, err
		}
	}
	return b.values, nil, nil
}

func TestMergedListsAreWholeAndTakeThePlaceOfOthersInTheAccount(t *testing.T) {
	const n = 260_001
	values := make([]string, n)
	for i := range values {
		values[i] = fmt.Sprintf("value-%06d", i)
	}
	for name, part := range map[string]func(i int) []string{
		"equal":    func(int) []string { return values },
		"disjoint": func(i int) []string { return values[i*n/9 : (i+1)*n/9] },
		"overlap":  func(i int) []string { return values[i*n/18 : (i+9)*n/18] },
	} {
		t.Run(name, func(t *testing.T) {
			var blocks []storage.Querier
			for i := range 9 {
				blocks = append(blocks, &blockOf{values: part(i)})
			}
			q := storage.NewMergeQuerier(blocks, nil, storage.ChainedSeriesMerge)
			for _, limit := range []int{0, 10, 200_000} {
				hints := &storage.LabelHints{Limit: limit}
				want, _, err := q.LabelValues(t.Context(), "l", hints)
				require.NoError(t, err)
				account, ctx := accounttest.New(t.Context(), storage.ReadBounds{})
				got, _, err := q.LabelValues(ctx, "l", hints)
				require.NoError(t, err)
				require.Equal(t, want, got)
				require.GreaterOrEqual(t, account.Used, int64(len(got)*storage.ListElementBytes))
				require.LessOrEqual(t, account.Used, int64(2*n*storage.ListElementBytes))

				least := account.Peak
				account, ctx = accounttest.New(t.Context(), storage.ReadBounds{})
				account.MaxUsed = least - 1
				_, _, err = q.LabelValues(ctx, "l", hints)
				require.ErrorIs(t, err, accounttest.ErrRefused)
			}
		})
	}
}
