// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/promguard/reads"
)

func TestLabelsAreSelectedUpToWhatTheAnswerMayHave(t *testing.T) {
	require.Equal(t, 0, labelLimit(context.Background(), 0))
	require.Equal(t, 7, labelLimit(context.Background(), 7))
	for _, tc := range []struct{ most, hint, want int }{
		{0, 0, 0},
		{0, 7, 7},
		{100, 0, 101},
		{100, 7, 7},
		{100, 100, 100},
		{100, 101, 101},
		{100, 5000, 101},
	} {
		_, ctx, remove := reads.NewTable(nil).Add(t.Context(), reads.Info{}, reads.Limits{MaxResults: tc.most})
		require.Equal(t, tc.want, labelLimit(ctx, tc.hint), "%+v", tc)
		remove()
	}
}
