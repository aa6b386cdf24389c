// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !slicelabels && !dedupelabels

package promql

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
)

func TestOperandsAreWholeUnlessTheirLabelsAreWhatTakesMost(t *testing.T) {
	packedOf := func(value string) labels.Labels {
		lset := func(name string) labels.Labels {
			return labels.FromStrings("__name__", name, "container", value, "pod", strings.Repeat("p", 64))
		}
		_ = lset("other_metric").Pack()
		packed := lset("metric").Pack()
		return packed.Labels()
	}
	short, long := packedOf("a"), packedOf(strings.Repeat("long", 1000))
	for _, packed := range []labels.Labels{short, long} {
		_, made := packed.Whole()
		require.True(t, made)
	}
	for name, tc := range map[string]struct {
		steps       int64
		short, long bool
	}{
		"an instant": {steps: 1},
		"two steps":  {steps: 2, short: true},
		"many steps": {steps: 1000, short: true, long: true},
	} {
		t.Run(name, func(t *testing.T) {
			ev := &evaluator{endTimestamp: tc.steps - 1, interval: 1}
			mat := ev.wholeLabels(Matrix{{Metric: short}, {Metric: long}})
			require.True(t, labels.Equal(short, mat[0].Metric) && labels.Equal(long, mat[1].Metric))
			for i, whole := range []bool{tc.short, tc.long} {
				_, made := mat[i].Metric.Whole()
				require.Equal(t, !whole, made)
			}
		})
	}
}
