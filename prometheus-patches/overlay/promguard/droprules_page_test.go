// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package promguard

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/internal/relabel"
	"github.com/prometheus/prometheus/model/labels"
)

func TestDroppedSeriesAreAddedUpByRuleOverAllPools(t *testing.T) {
	counters := relabel.NewCounters(prometheus.NewRegistry())
	profile, err := relabel.ProfileByName(relabel.ProfileAggressive)
	require.NoError(t, err)
	rules, err := relabel.Compile(profile)
	require.NoError(t, err)
	series := labels.FromStrings("__name__", "apiserver_request_duration_seconds_bucket", "le", "0.7")
	rule, dropped := rules.Drop(series)
	require.True(t, dropped)
	for _, job := range []string{"a", "b"} {
		require.True(t, counters.Pool(rules, job)(series).IsEmpty())
	}
	require.Equal(t, map[string]int64{profile.Rules[rule].ID: 2}, droppedByRule(counters))
}
