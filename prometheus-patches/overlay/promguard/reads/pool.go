// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxWaiting bounds the reads that wait in one pool, for each that may run. A
	// queue that is longer than that is not worth waiting in.
	maxWaiting = 32
	// quickShare is which part of the places, one of so many, is for quick reads.
	quickShare = 4
	// quickFor is for how long a read is quick. One that runs for longer moves to where
	// long ones are, or waits for that.
	quickFor = 200 * time.Millisecond
)

// Pool bounds how many reads of one kind run at a time. Some of its places are for
// quick reads alone, so that they do not wait for long ones. A nil Pool has no bound.
// Safe for concurrent use.
type Pool struct {
	name    string
	size    int
	normal  chan struct{}
	quick   chan struct{}
	waiting atomic.Int64
}

// NewPool returns a pool in which n reads may run at a time, or nil if n is 0.
func NewPool(name string, n int) *Pool {
	if n <= 0 {
		return nil
	}
	forQuick := min(n-1, max(1, n/quickShare))
	return &Pool{name: name, size: n, normal: make(chan struct{}, n-forQuick), quick: make(chan struct{}, forQuick)}
}

// Name returns the pool's name, as in flags and metrics.
func (p *Pool) Name() string { return p.name }

// Waiting returns how many reads wait for a place.
func (p *Pool) Waiting() int64 { return p.waiting.Load() }

// taken says that there is no place.
func (p *Pool) taken() string {
	return fmt.Sprintf("all %d of --guard.%s-concurrency are taken", p.size, p.name)
}

// isCrowded says whether too many wait.
func (p *Pool) isCrowded() bool { return p.waiting.Load() > int64(p.size)*maxWaiting }

// hasPlace says whether try would find a place.
func (p *Pool) hasPlace(long bool) bool {
	return p == nil || len(p.normal) < cap(p.normal) || !long && len(p.quick) < cap(p.quick)
}

// try takes a place, or returns nil if there is none.
func (p *Pool) try(long bool) *place {
	if p == nil {
		return newPlace(nil, nil)
	}
	forQuick := p.quick
	if long {
		forQuick = nil
	}
	select {
	case p.normal <- struct{}{}:
		return newPlace(p, p.normal)
	default:
	}
	select {
	case forQuick <- struct{}{}:
		return newPlace(p, forQuick)
	default:
		return nil
	}
}

// acquire takes a place, or returns nil if the context ends or the timer fires before
// there is one, or if too many wait already.
func (p *Pool) acquire(ctx context.Context, long bool, timeout <-chan time.Time) *place {
	if at := p.try(long); at != nil {
		return at
	}
	p.waiting.Add(1)
	defer p.waiting.Add(-1)
	if p.isCrowded() {
		return nil
	}
	forQuick := p.quick
	if long {
		forQuick = nil
	}
	select {
	case p.normal <- struct{}{}:
		return newPlace(p, p.normal)
	case forQuick <- struct{}{}:
		return newPlace(p, forQuick)
	case <-timeout:
	case <-ctx.Done():
	}
	return nil
}

// place is where a read runs.
type place struct {
	pool *Pool
	// quickUntil is when the read is quick no more, and judged says that it was asked
	// to move since.
	quickUntil time.Time
	judged     atomic.Bool

	// freed is called when the place, or one that it was before, is another read's to
	// take; nil if nobody wants to know.
	freed func()

	mtx  sync.Mutex
	of   chan struct{} // Which of the pool's places; nil if it was given back.
	left bool          // For good.
}

func newPlace(pool *Pool, of chan struct{}) *place {
	return &place{pool: pool, of: of, quickUntil: time.Now().Add(quickFor)}
}

// move makes it a place for reads that may run for long, if there is one.
func (p *place) move() bool {
	p.mtx.Lock()
	if p.of == nil || p.of == p.pool.normal {
		p.mtx.Unlock()
		return true
	}
	select {
	case p.pool.normal <- struct{}{}:
	default:
		p.mtx.Unlock()
		return false
	}
	<-p.of
	p.of = p.pool.normal
	p.mtx.Unlock()
	p.tellFreed()
	return true
}

// waitToMove gives the place back, and waits until there is one for reads that may run
// for long.
func (p *place) waitToMove(ctx context.Context) {
	p.giveBack(false)
	p.pool.waiting.Add(1)
	defer p.pool.waiting.Add(-1)
	select {
	case p.pool.normal <- struct{}{}:
	case <-ctx.Done():
		return
	}
	p.mtx.Lock()
	p.of = p.pool.normal
	left := p.left
	p.mtx.Unlock()
	if left { // In the meantime.
		p.leave()
	}
}

// leave gives the place back for good.
func (p *place) leave() { p.giveBack(true) }

func (p *place) giveBack(forGood bool) {
	p.mtx.Lock()
	p.left = p.left || forGood
	of := p.of
	p.of = nil
	p.mtx.Unlock()
	if of != nil {
		<-of
		p.tellFreed()
	}
}

func (p *place) tellFreed() {
	if p.freed != nil {
		p.freed()
	}
}
