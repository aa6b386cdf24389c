// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"context"
	"math"
	"runtime/metrics"
	"time"
)

const (
	// pressureInterval is how often Watch looks at the memory in use. Selection
	// and encoding allocate some hundred megabytes a second.
	pressureInterval = 50 * time.Millisecond
	// pressureShare is the share of the memory limit from which memory in use
	// stops reads. Beyond it the garbage collector takes more and more of the
	// processors, until all stands still.
	pressureShare = 0.85
)

// Watch stops the read that holds the most whenever what the process has in use
// comes close to its memory limit (GOMEMLIMIT), until the context ends. Without
// such a limit it does nothing. It is for what the budget does not count: rules,
// scrapes, and what reads hold beyond the estimate.
func (b *Budget) Watch(ctx context.Context) {
	ticker := time.NewTicker(pressureInterval)
	defer ticker.Stop()
	m := newMemory()
	// notBefore is the first garbage collection that shows what the last stop has
	// freed.
	notBefore := uint64(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if b.Held() == 0 {
			continue
		}
		live, limit, cycle := m.read()
		if cycle >= notBefore && float64(live) > pressureShare*float64(limit) && b.relieve(live, limit) {
			notBefore = cycle + 2
		}
	}
}

// memory reads what the process has in use.
type memory struct{ samples []metrics.Sample }

func newMemory() memory {
	return memory{[]metrics.Sample{
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/stacks:bytes"},
		{Name: "/memory/classes/metadata/mspan/inuse:bytes"},
		{Name: "/memory/classes/metadata/other:bytes"},
		{Name: "/gc/gomemlimit:bytes"},
		{Name: "/gc/cycles/total:gc-cycles"},
	}}
}

// read returns the memory in use after the last garbage collection and the
// limit, in bytes, and how many collections there have been.
func (m memory) read() (live, limit int64, cycle uint64) {
	metrics.Read(m.samples)
	last := len(m.samples) - 2
	for _, s := range m.samples[:last] {
		live += int64(s.Value.Uint64())
	}
	return live, int64(min(m.samples[last].Value.Uint64(), math.MaxInt64)), m.samples[last+1].Value.Uint64()
}
