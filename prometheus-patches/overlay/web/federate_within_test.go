// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/accounttest"
)

func federated(ctx context.Context, vec promql.Vector) (got promql.Vector) {
	for _, s := range federatedWithin(ctx, vec) {
		got = append(got, s)
	}
	return got
}

func TestFederationThatIsTooLargeIsRefused(t *testing.T) {
	vec := promql.Vector{{Metric: labels.FromStrings("__name__", "m")}, {Metric: labels.FromStrings("__name__", "n", "pod", "some-pod")}}
	for limit, want := range map[int64]promql.Vector{0: vec, 1 << 20: vec, 10: nil} {
		_, ctx := accounttest.New(t.Context(), storage.ReadBounds{ResponseBytes: limit})
		require.Equal(t, want, federated(ctx, vec))
	}
	require.Equal(t, vec, federated(t.Context(), vec))
}

func TestFederationEndsSoonAfterTheClientHasLeft(t *testing.T) {
	account, ctx := accounttest.New(t.Context(), storage.ReadBounds{})
	n := 0
	for i := range federatedWithin(ctx, make(promql.Vector, 1000)) {
		if i == 100 {
			account.Stop(context.Canceled)
		}
		n++
	}
	require.LessOrEqual(t, n, 100+federateLookEvery)
}
