// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStatesBeginAtOnceAndEndWhenMemoryIsClearlyLess(t *testing.T) {
	type step struct {
		after    time.Duration
		live     int64 // of 1000, with half of what reads hold
		reads    int64 // half of what they say
		planned  int64 // for a compaction of the head
		resident int64 // of 1000
		want     State
	}
	for name, steps := range map[string][]step{
		"tight begins at once": {
			{live: 699, want: OK},
			{live: 700, want: Tight},
		},
		"tight ends below its end, when that has lasted": {
			{live: 700, want: Tight},
			{after: time.Minute, live: 660, want: Tight},
			{after: time.Minute, live: 640, want: Tight},
			{after: 14 * time.Second, live: 640, want: Tight},
			{after: time.Second, live: 640, want: OK},
		},
		"a peak begins the wait anew": {
			{live: 700, want: Tight},
			{after: time.Second, live: 600, want: Tight},
			{after: 14 * time.Second, live: 660, want: Tight},
			{after: time.Second, live: 600, want: Tight},
			{after: 14 * time.Second, live: 600, want: Tight},
			{after: time.Second, live: 600, want: OK},
		},
		"critical waits for confirmation where reads may be why, and is tight until then": {
			{live: 850, reads: 10, want: Tight},
			{after: 400 * time.Millisecond, live: 850, reads: 10, want: Tight},
			{after: 100 * time.Millisecond, live: 850, reads: 10, want: Critical},
		},
		"a moment of it is not critical": {
			{live: 850, reads: 10, want: Tight},
			{after: 400 * time.Millisecond, live: 840, reads: 10, want: Tight},
			{after: 400 * time.Millisecond, live: 850, reads: 10, want: Tight},
			{after: 400 * time.Millisecond, live: 850, reads: 10, want: Tight},
			{after: 100 * time.Millisecond, live: 850, reads: 10, want: Critical},
		},
		"near the limit it is critical without confirmation": {
			{live: 950, reads: 500, want: Critical},
		},
		"where reads are not why, it is critical without confirmation": {
			{live: 860, reads: 10, want: Critical},
		},
		"critical begins and ends earlier by what a compaction of the head takes": {
			{live: 749, planned: 100, want: Tight},
			{live: 750, planned: 100, want: Critical},
			{after: time.Minute, live: 701, planned: 100, want: Critical},
			{after: time.Minute, live: 699, planned: 100, want: Critical},
			{after: 15 * time.Second, live: 699, planned: 100, want: Tight},
		},
		"it never begins before memory is tight": {
			{live: 699, planned: 1000, want: OK},
			{live: 700, planned: 1000, want: Critical},
			{after: time.Minute, live: 650, planned: 1000, want: Critical},
			{after: time.Minute, live: 649, planned: 1000, want: Critical},
			{after: 15 * time.Second, live: 649, planned: 1000, want: OK},
		},
		"critical ends by way of tight": {
			{live: 990, want: Critical},
			{after: time.Second, live: 790, want: Critical},
			{after: 15 * time.Second, live: 790, want: Tight},
			{after: time.Hour, live: 790, want: Tight},
			{after: time.Second, live: 100, want: Tight},
			{after: 15 * time.Second, live: 100, want: OK},
		},
		"critical ends at once with the cause of it": {
			{live: 990, want: Critical},
			{after: time.Second, live: 100, want: Critical},
			{after: 15 * time.Second, live: 100, want: OK},
		},
		"garbage up to GOMEMLIMIT is no reason": {
			{live: 500, resident: 940, want: OK},
		},
		"what the kernel sees counts, whatever the heap says": {
			{live: 100, resident: 950, want: Tight},
			{live: 100, resident: 980, want: Tight},
			{after: time.Second, live: 100, resident: 980, want: Critical},
			{after: time.Second, live: 100, resident: 960, want: Critical},
			{after: time.Second, live: 100, resident: 900, want: Critical},
			{after: 15 * time.Second, live: 100, resident: 900, want: OK},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var m machine
			now := time.Unix(0, 0)
			for i, s := range steps {
				now = now.Add(s.after)
				was := m.state
				changed := m.next(Usage{Limit: 1000, Kill: 1000, Live: s.live + s.reads, Heap: s.live + s.reads, Resident: s.resident, transient: s.reads, planned: s.planned}, now)
				require.Equal(t, s.want, m.state, "step %d", i)
				require.Equal(t, was != m.state, changed)
				if changed {
					require.Equal(t, now, m.since)
				}
			}
		})
	}
}

func TestWithoutLimitTheStateIsOK(t *testing.T) {
	var m machine
	require.False(t, m.next(Usage{Live: 1 << 60, Heap: 1 << 60, Resident: 1 << 60}, time.Now()))
	require.Equal(t, OK, m.state)
}

func TestWhatLivesIsEstimatedUntilTheNextCollection(t *testing.T) {
	for name, tc := range map[string]struct {
		u    Usage
		want int64
	}{
		"nothing grows":                           {Usage{Live: 100, Heap: 300}, 100},
		"it grows as it did before":               {Usage{Live: 100, Heap: 300, liveGrowth: 50, sinceCycle: 2 * time.Second}, 200},
		"never more than there is":                {Usage{Live: 100, Heap: 120, own: 10, liveGrowth: 50, sinceCycle: 2 * time.Second}, 130},
		"it became less, which says nothing":      {Usage{Live: 100, Heap: 300, liveGrowth: -50, sinceCycle: 2 * time.Second}, 100},
		"the runtime's own counts as alive, too":  {Usage{Live: 100, Heap: 60, own: 40}, 100},
		"what reads hold is given back before":    {Usage{Live: 100, Heap: 300, transient: 30}, 70},
		"series that no collection has seen live": {Usage{Live: 100, Heap: 300, unseen: 150, liveGrowth: 50, sinceCycle: 2 * time.Second}, 250},
		"if they have not left again":             {Usage{Live: 100, Heap: 120, unseen: 150}, 120},
		"the heap is swept while it is looked at": {Usage{Live: 100, Heap: 90, liveGrowth: 50, sinceCycle: time.Second}, 100},
	} {
		require.Equal(t, tc.want, tc.u.liveNow(), name)
	}
}

func TestThereIsRoomWhereMemoryIsNotTightOrWouldNotBecomeCritical(t *testing.T) {
	for name, tc := range map[string]struct {
		u     Usage
		bytes int64
		want  bool
	}{
		"nobody knows the limit":                {Usage{Live: 900}, 500, true},
		"memory is not tight":                   {Usage{Limit: 1000, Live: 690}, 500, true},
		"it is, and there is enough":            {Usage{Limit: 1000, Live: 700}, 149, true},
		"there is not":                          {Usage{Limit: 1000, Live: 700}, 150, false},
		"others have reserved":                  {Usage{Limit: 1000, Live: 690, Reserved: 100}, 60, false},
		"reads give back what they hold":        {Usage{Limit: 1000, Live: 800, transient: 101}, 150, true},
		"the kernel sees more than the runtime": {Usage{Limit: 900, Live: 100, Kill: 1000, Resident: 950}, 1, false},
	} {
		require.Equal(t, tc.want, tc.u.hasRoom(tc.bytes), name)
	}
}
