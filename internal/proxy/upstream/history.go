// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"slices"
	"time"
)

const (
	// remembered is how long a round is kept, and fade how much of the time since a
	// difference must be to count: two servers that are both well never take in
	// exactly the same, and a hole gets smaller in graphs the longer ago it is.
	remembered = 24 * time.Hour
	fade       = 0.01
	// Rounds are thinned out with their age, to one in age/sparse.
	sparse = 20
)

// round is how many samples each server had taken in at a moment since it was first
// read, over all of its restarts. NaN is for one that did not tell.
type round struct {
	at    time.Time
	taken []float64
}

// history has rounds in the order of time.
type history []round

func (h *history) add(at time.Time, taken []float64) {
	*h = append(*h, round{at, taken})
	all := *h
	for i := 1; i < len(all)-1; { // From the oldest on: what stays has older ones before it.
		if age := at.Sub(all[i].at); all[i+1].at.Sub(all[i-1].at) < age/sparse {
			all = slices.Delete(all, i, i+1)
		} else {
			i++
		}
	}
	for len(all) > 1 && at.Sub(all[0].at) > remembered {
		all = slices.Delete(all, 0, 1)
	}
	*h = all
}

// missing returns the samples that the server i lacks of what the server o took in,
// as the time in which o takes them in. Of all times up to now it is the one in which
// i did worst, so that a hole counts in full however long all was well before. Two
// that are well differ by an interval of scrapes at most.
func (h history) missing(i, o int) (most time.Duration) {
	for _, then := range h {
		lack, _ := h.since(then, i, o)
		most = max(most, lack)
	}
	return most
}

// missingSince is the same for the time since one moment, and whether it is known.
func (h history) missingSince(lost time.Time, i, o int) (lack time.Duration, known bool) {
	for _, then := range slices.Backward(h) {
		if lack, known = h.since(then, i, o); known && !then.at.After(lost) {
			return lack, true
		}
	}
	return 0, false
}

func (h history) since(then round, i, o int) (lack time.Duration, known bool) {
	now := h[len(h)-1]
	its, other := now.taken[i]-then.taken[i], now.taken[o]-then.taken[o]
	if other > its {
		share := 1 - fade - its/other
		lack = time.Duration(share * float64(now.at.Sub(then.at)))
	}
	return lack, its >= 0 && other >= 0 // Both told.
}
