// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"context"
	"sync/atomic"
	"time"
)

// maxWaiting bounds the reads that wait in one pool, for each that may run. A
// queue that is longer than that is not worth waiting in.
const maxWaiting = 32

// Pool bounds how many reads of one kind run at a time. A nil Pool has no bound.
// Safe for concurrent use.
type Pool struct {
	name    string
	permits chan struct{}
	waiting atomic.Int64
}

// NewPool returns a pool in which n reads may run at a time, or nil if n is 0.
func NewPool(name string, n int) *Pool {
	if n <= 0 {
		return nil
	}
	return &Pool{name: name, permits: make(chan struct{}, n)}
}

// Name returns the pool's name, as in flags and metrics.
func (p *Pool) Name() string { return p.name }

// Waiting returns how many reads wait for a permit.
func (p *Pool) Waiting() int64 { return p.waiting.Load() }

// acquire takes a permit, or returns false if the context ends or the timer
// fires before there is one, or if too many wait already.
func (p *Pool) acquire(ctx context.Context, timeout <-chan time.Time) bool {
	if p == nil {
		return true
	}
	select {
	case p.permits <- struct{}{}:
		return true
	default:
	}
	if p.waiting.Add(1) > int64(cap(p.permits))*maxWaiting {
		p.waiting.Add(-1)
		return false
	}
	defer p.waiting.Add(-1)
	select {
	case p.permits <- struct{}{}:
		return true
	case <-timeout:
	case <-ctx.Done():
	}
	return false
}

func (p *Pool) release() {
	if p != nil {
		<-p.permits
	}
}
