// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func testHead() *Head {
	return &Head{
		Series: 10_000,
		Counts: map[string]map[string]int{
			"__name__": {"up": 20, "x": 10, "node_cpu_seconds_total": 4000, "node_load1": 50},
			"job":      {"api": 100, "node": 5000},
			"mode":     {"idle": 500},
		},
		UnlistedMetric: 0, UnlistedValue: 30,
		Values: map[string]int{"job": 2, "mode": 8, "pod": 3000},
		Since:  testNow.Add(-2 * time.Hour), Oldest: testNow.Add(-20 * day),
		Interval: 15 * time.Second,
		Memory:   2 << 30,
	}
}

func TestSelectorHasNoMoreSeriesThanTheScarcestOfItsMatchers(t *testing.T) {
	h := testHead()
	bound := func(selector string) float64 {
		looks := maxLooks
		return h.bound(parseSelector(t, selector), &looks)
	}
	for selector, want := range map[string]float64{
		`up`:                              20,
		`absent_metric`:                   0,
		`{job="api"}`:                     100,
		`{job="other"}`:                   30,
		`up{job="api"}`:                   20,
		`{job=~"api|node"}`:               5100,
		`{job=~"api|other"}`:              130,
		`{job=~"api|"}`:                   10_000, // of series without the label, too
		`{job=~"a.*"}`:                    100,
		`{job=~"a.*|"}`:                   10_000,
		`{mode=~"i.*"}`:                   500 + 7*30, // Seven values are not listed.
		`{mode!=""}`:                      500 + 7*30,
		`{pod=~"a.*"}`:                    10_000,
		`{job!="api"}`:                    10_000,
		`{job=""}`:                        10_000,
		`{job!~"a.*",mode="idle"}`:        500,
		`{__name__=~"node_.*"}`:           4050,
		`{__name__=~"node_.*",job="api"}`: 100,
		`{__name__!~"node_.*"}`:           30,
		`{__name__!="up"}`:                4060,
		`{le!=""}`:                        10_000,
	} {
		require.Equal(t, want, bound(selector), selector)
	}
	h.UnlistedMetric = 7
	require.Equal(t, 7.0, bound(`absent_metric`))
	require.Equal(t, 4050+10_000-4080.0, bound(`{__name__=~"node_.*"}`), "what is not listed may match")
}

func TestRegularExpressionsAreTriedAtSoManyValuesAndNoMore(t *testing.T) {
	h := testHead()
	looks := 5
	require.Equal(t, 4050.0, h.bound(parseSelector(t, `{__name__=~"node_.*"}`), &looks), "there are four names")
	require.Equal(t, 10_000.0, h.bound(parseSelector(t, `{__name__=~"node_.*"}`), &looks))
	require.Equal(t, 20.0, h.bound(parseSelector(t, `up`), &looks))
}
