// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"context"
	"math"
	"strconv"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
)

// storageOfExemplars has n exemplars, three for each series.
func storageOfExemplars(t testing.TB, n int) *CircularExemplarStorage {
	s, err := NewCircularExemplarStorage(int64(n), NewExemplarMetrics(prometheus.NewRegistry()), 0)
	require.NoError(t, err)
	ce := s.(*CircularExemplarStorage)
	for i := range n {
		lset := labels.FromStrings("__name__", "latency_bucket", "instance", strconv.Itoa(i/3*7919%n), "le", strconv.Itoa(i/3%5))
		require.NoError(t, ce.AddExemplar(lset, exemplar.Exemplar{Labels: labels.FromStrings("trace_id", strconv.Itoa(i)), Value: float64(i), Ts: int64(i), HasTs: true}))
	}
	return ce
}

func TestExemplarsWithinAContextAreThoseOfUpstream(t *testing.T) {
	ce := storageOfExemplars(t, 3*2000)
	le := labels.MustNewMatcher(labels.MatchRegexp, "le", "1|3")
	instance := labels.MustNewMatcher(labels.MatchRegexp, "instance", ".*7")
	none := labels.MustNewMatcher(labels.MatchEqual, "le", "none")
	for name, tc := range map[string]struct {
		start, end int64
		matchers   [][]*labels.Matcher
	}{
		"all":                  {math.MinInt64, math.MaxInt64, [][]*labels.Matcher{{}}},
		"no set of matchers":   {math.MinInt64, math.MaxInt64, nil},
		"one set":              {math.MinInt64, math.MaxInt64, [][]*labels.Matcher{{le}}},
		"several sets":         {math.MinInt64, math.MaxInt64, [][]*labels.Matcher{{le}, {instance, none}, {instance}}},
		"none match":           {math.MinInt64, math.MaxInt64, [][]*labels.Matcher{{none}}},
		"a part of the series": {1000, 2000, [][]*labels.Matcher{{le}}},
		"one moment":           {1000, 1000, [][]*labels.Matcher{{}}},
		"none in the range":    {100000, 200000, [][]*labels.Matcher{{le}}},
	} {
		t.Run(name, func(t *testing.T) {
			want, err := ce.Select(tc.start, tc.end, tc.matchers...)
			require.NoError(t, err)
			got, err := exemplarQuerier{ce, t.Context()}.Select(tc.start, tc.end, tc.matchers...)
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
}

func TestExemplarsOfAStorageWithoutRoomAreNone(t *testing.T) {
	got, err := exemplarQuerier{storageOfExemplars(t, 0), t.Context()}.Select(0, 1, []*labels.Matcher{})
	require.NoError(t, err)
	require.Empty(t, got)
	require.NotNil(t, got, "the answer has an empty list, not null")
}

func TestExemplarsOfEvictedSeriesAreLeftOut(t *testing.T) {
	ce := storageOfExemplars(t, 30)
	series := ce.series()
	other := labels.FromStrings("a", "b")
	for i := range 30 {
		require.NoError(t, ce.AddExemplar(other, exemplar.Exemplar{Value: 1, Ts: int64(100 + i), HasTs: true}))
	}
	require.Empty(t, ce.appendExemplars(nil, math.MinInt64, math.MaxInt64, series))
}

func TestSelectionOfExemplarsEndsWithItsContext(t *testing.T) {
	ce := storageOfExemplars(t, 3*1000)
	ctx, cancel := context.WithCancelCause(t.Context())
	q, err := ce.ExemplarQuerier(ctx)
	require.NoError(t, err)
	cancel(errStopped)
	_, err = q.Select(math.MinInt64, math.MaxInt64, []*labels.Matcher{})
	require.ErrorIs(t, err, errStopped)
}
