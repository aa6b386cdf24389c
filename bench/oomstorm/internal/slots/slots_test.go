// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWhatDidNotHappenBeforeItWasDueAgainIsMissed(t *testing.T) {
	first := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds ...float64) []time.Time {
		var times []time.Time
		for _, s := range seconds {
			times = append(times, first.Add(time.Duration(s*float64(time.Second))))
		}
		return times
	}
	for _, tc := range []struct {
		name       string
		times      []time.Time
		start, end float64
		want       Count
	}{
		{"all on time", at(0, 2, 4, 6, 8, 10), 3, 11, Count{3, 0}},
		{"one is left out", at(0, 2, 4, 8, 10), 3, 11, Count{3, 1}},
		{"late is not missed", at(0, 2, 5.7, 6.1, 8, 10), 3, 11, Count{3, 0}},
		{"a timer that fires a little early counts for its time", at(0, 2, 3.9, 5.9, 7.9), 3, 11, Count{3, 0}},
		{"twice in one interval does not make up for none in the next", at(0, 2, 4, 4.5, 8), 3, 11, Count{3, 1}},
		{"nothing after the first", at(0), 3, 11, Count{3, 3}},
		{"the last may yet be late", at(0, 2, 4), 3, 7.9, Count{1, 0}},
		{"too short for anything", at(0, 2), 3, 4.5, Count{}},
		{"begins when it is due", at(0, 2, 4, 6), 4, 8, Count{2, 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			start, end := at(tc.start)[0], at(tc.end)[0]
			require.Equal(t, tc.want, Check(first, 2*time.Second, tc.times, start, end))
		})
	}
}
