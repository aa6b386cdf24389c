// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"fmt"
	"math/rand"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

func tableSeries(n int) *memSeries {
	return newMemSeries(labels.FromStrings("a", strconv.Itoa(n)), chunks.HeadSeriesRef(n), 0, true, false)
}

func TestSeriesTablesFindWhatAMapFinds(t *testing.T) {
	for seed := range int64(50) {
		rnd := rand.New(rand.NewSource(seed))
		// The hashes collide, some in their tags only, some altogether.
		hashOf := func(n int) uint64 { return uint64(n%97)<<61 | uint64(n%5)<<32 | uint64(n%3) }
		var byRef seriesByRef
		var byHash seriesHashmap
		want := map[int]*memSeries{}
		for range 2000 {
			n := 1 + rnd.Intn(300)
			switch rnd.Intn(5) {
			case 0, 1:
				s := tableSeries(n) // One with its labels may be there.
				byRef.set(s)
				byHash.set(hashOf(n), s)
				want[n] = s
			case 2:
				byRef.del(chunks.HeadSeriesRef(n))
				byHash.del(hashOf(n), chunks.HeadSeriesRef(n))
				delete(want, n)
			case 3:
				byRef.reserve(rnd.Intn(50))
				byHash.reserve(rnd.Intn(50))
			default:
				require.Same(t, want[n], byRef.get(chunks.HeadSeriesRef(n)))
				require.Same(t, want[n], byHash.get(hashOf(n), labels.FromStrings("a", strconv.Itoa(n))))
			}
			require.Equal(t, len(want), byRef.len())
			require.Equal(t, len(want), byHash.len())
		}
		for n, s := range want {
			require.Same(t, s, byRef.get(chunks.HeadSeriesRef(n)))
			require.Same(t, s, byHash.get(hashOf(n), s.labels()))
		}
	}
}

func TestSeriesMayBeRemovedWhileTheirTableIsReadThrough(t *testing.T) {
	for seed := range int64(200) {
		rnd := rand.New(rand.NewSource(seed))
		var table seriesHashmap
		size, homes := rnd.Intn(100), 1+rnd.Intn(20)
		for n := range size {
			table.set(uint64(rnd.Intn(homes))*(1<<64-1)/uint64(homes), tableSeries(n))
		}
		seen := map[chunks.HeadSeriesRef]bool{}
		left := 0
		for tag, s := range table.all() {
			require.False(t, seen[s.ref])
			seen[s.ref] = true
			if rnd.Intn(3) > 0 {
				table.del(hashOfTag(tag), s.ref)
			} else {
				left++
			}
		}
		require.Len(t, seen, size)
		require.Equal(t, left, table.len())
	}
}

func TestSeriesTablesGrowByAQuarter(t *testing.T) {
	var table seriesByRef
	for n := range 100_000 {
		table.set(tableSeries(n))
		if slots := len(table.slots); n > 100 {
			require.LessOrEqual(t, float64(slots), float64(n)*1.25*8/7*1.13+8, "which is rounded up to what is allocated")
			require.Greater(t, slots, n)
		}
	}
	// References of a stripe are numbers in steps of the number of stripes.
	for stripe := range 4 {
		table := seriesByRef{}
		for n := range 10_000 {
			table.set(&memSeries{ref: chunks.HeadSeriesRef(stripe + n*DefaultStripeSize)})
		}
		require.LessOrEqual(t, longestSearch(&table), 24)
	}
}

// longestSearch returns how many slots are looked at to find the series that is farthest
// from where it belongs.
func longestSearch(t *seriesByRef) (longest int) {
	for i, s := range t.slots {
		if s != nil {
			longest = max(longest, (i-t.home(t.tags[i])+len(t.slots))%len(t.slots)+1)
		}
	}
	return longest
}

func BenchmarkSeriesByRef(b *testing.B) {
	for _, size := range []int{10, 100, 1000} {
		var table seriesByRef
		m := map[chunks.HeadSeriesRef]*memSeries{}
		for n := range size {
			s := &memSeries{ref: chunks.HeadSeriesRef(n * DefaultStripeSize)}
			table.set(s)
			m[s.ref] = s
		}
		b.Run(fmt.Sprintf("table/size=%d", size), func(b *testing.B) {
			for i := range b.N {
				if table.get(chunks.HeadSeriesRef(i%size*DefaultStripeSize)) == nil {
					b.Fatal()
				}
			}
		})
		b.Run(fmt.Sprintf("map/size=%d", size), func(b *testing.B) {
			for i := range b.N {
				if m[chunks.HeadSeriesRef(i%size*DefaultStripeSize)] == nil {
					b.Fatal()
				}
			}
		})
	}
}
