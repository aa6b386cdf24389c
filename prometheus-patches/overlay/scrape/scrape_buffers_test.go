// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package scrape

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestABufferIsUsedAgainForABodyOfItsSize(t *testing.T) {
	var l bodyList
	small, large := l.get(1000), l.get(3000)
	l.put(large)
	l.put(small)
	require.Same(t, small, l.get(900))
	require.NotSame(t, large, l.get(1400), "more than twice as large")
	require.Same(t, large, l.get(1600))
	require.Empty(t, l.free)
	require.Equal(t, 1001, cap(l.get(1001).b))
}

func TestABufferThatNobodyUsesIsCollected(t *testing.T) {
	var l bodyList
	for n := range 10 {
		l.put(l.get(1<<20 + n))
	}
	require.Eventually(t, func() bool {
		runtime.GC()
		l.put(l.get(1 << 10)) // Others are used meanwhile.
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.free) <= 2
	}, time.Minute, time.Millisecond)
}

func TestABodyThatGrowsALittleFitsTheBufferOfTheNextScrape(t *testing.T) {
	sl := &scrapeLoop{lastScrapeSize: 10 * largeBody}
	b, giveBack := sl.bodyBuffer()
	defer giveBack()
	require.Empty(t, b)
	require.Greater(t, cap(b), sl.lastScrapeSize+sl.lastScrapeSize/100)
	require.Less(t, cap(b), sl.lastScrapeSize+sl.lastScrapeSize/50)
}
