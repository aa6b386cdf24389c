// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/accounttest"
)

func TestFederationThatIsTooLargeIsRefused(t *testing.T) {
	vec := promql.Vector{{Metric: labels.FromStrings("__name__", "n", "pod", "some-pod")}, {Metric: labels.FromStrings("__name__", "m")}}
	sorted := promql.Vector{vec[1], vec[0]}
	for limit, want := range map[int64]promql.Vector{0: sorted, 1 << 20: sorted, 10: nil} {
		_, ctx := accounttest.New(t.Context(), storage.ReadBounds{ResponseBytes: limit})
		require.Equal(t, want, federatedWithin(ctx, slices.Clone(vec)))
	}
	require.Equal(t, vec, federatedWithin(t.Context(), vec))
	account, ctx := accounttest.New(t.Context(), storage.ReadBounds{})
	account.Stop(context.Canceled)
	require.Nil(t, federatedWithin(ctx, make(promql.Vector, 1000)))
}
