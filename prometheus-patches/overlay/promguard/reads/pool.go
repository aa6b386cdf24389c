// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"context"
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

// acquire takes a place, or returns nil if the context ends or the timer fires before
// there is one, or if too many wait already.
func (p *Pool) acquire(ctx context.Context, long bool, timeout <-chan time.Time) *place {
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
	}
	if p.waiting.Add(1) > int64(p.size)*maxWaiting {
		p.waiting.Add(-1)
		return nil
	}
	defer p.waiting.Add(-1)
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

	mtx sync.Mutex
	of  chan struct{} // Which of the pool's places; nil if it was given back.
}

func newPlace(pool *Pool, of chan struct{}) *place {
	return &place{pool: pool, of: of, quickUntil: time.Now().Add(quickFor)}
}

// move makes it a place for reads that may run for long, if there is one.
func (p *place) move() bool {
	p.mtx.Lock()
	defer p.mtx.Unlock()
	if p.of == nil || p.of == p.pool.normal {
		return true
	}
	select {
	case p.pool.normal <- struct{}{}:
		<-p.of
		p.of = p.pool.normal
		return true
	default:
		return false
	}
}

// leave gives the place back.
func (p *place) leave() {
	p.mtx.Lock()
	defer p.mtx.Unlock()
	if p.of != nil {
		<-p.of
		p.of = nil
	}
}
