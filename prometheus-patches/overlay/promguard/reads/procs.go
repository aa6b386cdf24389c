// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	// slice is how long a read keeps its processor while others wait for one.
	slice = time.Millisecond
	// procPatience is how long a read waits for a processor before it goes on without,
	// for as long: those that have one may have come to wait for something else, a
	// remote storage or a lock.
	procPatience = 100 * time.Millisecond
)

// Procs is a semaphore that keeps reads which run for long from taking every
// processor. Go polls the network when a processor has nothing else to do, or every
// 10 ms: with all of them busy, each step of a small query, a scrape or a health
// check waits for so long. A nil *Procs lets every read run. Safe for concurrent use.
type Procs struct {
	slots   chan struct{}
	waiting atomic.Int32
}

// NewProcs returns a semaphore of n processors, or nil if n is 0.
func NewProcs(n int) *Procs {
	if n <= 0 {
		return nil
	}
	return &Procs{slots: make(chan struct{}, n)}
}

// proc is a read's share of the processors. Its goroutines have one together.
type proc struct {
	held  atomic.Bool
	since atomic.Int64 // Nanoseconds since 1970.
	// without is until when the read goes on without.
	without atomic.Int64
}

// take waits for a processor, or goes on with the one that the read has if its time
// is not over or nobody else waits.
func (p *Procs) take(ctx context.Context, r *proc) {
	if p == nil {
		return
	}
	if r.held.Load() {
		if p.waiting.Load() == 0 || time.Now().UnixNano()-r.since.Load() < int64(slice) {
			return
		}
		p.leave(r)
	} else if time.Now().UnixNano() < r.without.Load() {
		return
	}
	select {
	case p.slots <- struct{}{}:
	default:
		p.waiting.Add(1)
		defer p.waiting.Add(-1)
		timer := time.NewTimer(procPatience)
		defer timer.Stop()
		select {
		case p.slots <- struct{}{}:
		case <-timer.C:
			r.without.Store(time.Now().Add(procPatience).UnixNano())
			return
		case <-ctx.Done():
			return
		}
	}
	r.since.Store(time.Now().UnixNano())
	if !r.held.CompareAndSwap(false, true) {
		<-p.slots // Another goroutine of the read was faster.
	}
}

// leave gives the processor back and says whether the read had one.
func (p *Procs) leave(r *proc) bool {
	if p == nil || !r.held.CompareAndSwap(true, false) {
		return false
	}
	<-p.slots
	return true
}
