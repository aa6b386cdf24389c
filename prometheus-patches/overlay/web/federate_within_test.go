// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promguard/reads"
	"github.com/prometheus/prometheus/promql"
)

func TestFederationThatIsTooLargeIsRefused(t *testing.T) {
	vec := promql.Vector{{Metric: labels.FromStrings("__name__", "m", "pod", "some-pod")}, {Metric: labels.FromStrings("__name__", "n")}}
	for limit, want := range map[int64]bool{0: false, 1 << 20: false, 10: true} {
		_, ctx, remove := reads.NewTable(nil).Add(t.Context(), reads.Info{}, reads.Limits{ResponseBytes: limit})
		require.Equal(t, want, refuseFederation(ctx, vec))
		require.Equal(t, want, reads.Stopped(ctx) != nil)
		remove()
	}
	require.False(t, refuseFederation(context.Background(), vec))
}
