// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// queue is reads that wait for memory and a place, in order. What one queue cannot have
// yet goes to the next.
type queue []*waiter

// lacking returns how many wait for memory.
func (q queue) lacking() (n int) {
	for _, w := range q {
		if !w.lacksPlace {
			n++
		}
	}
	return n
}

const (
	quickQueue = iota // Small ones.
	longQueue         // Small ones that have run for long before.
	largeQueue
)

// waiter is a read that waits for memory and for a place in its pool, until it can have
// both at once: none holds one while it waits for the other.
type waiter struct {
	read  *Read
	bytes int64
	pool  *Pool
	ready chan struct{}
	place *place // Where it runs, once it is ready.
	// lacksPlace says that there is memory for it.
	lacksPlace bool
}

func (w *waiter) setLacksPlace(lacks bool) {
	if lacks == w.lacksPlace {
		return
	}
	if w.lacksPlace = lacks; lacks {
		w.pool.waiting.Add(1)
	} else {
		w.pool.waiting.Add(-1)
	}
}

// expired is a timer that has fired.
var expired = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()

func (b *Budget) queue(r *Read, bytes int64) *queue {
	switch {
	case b.isLarge(bytes):
		return &b.queues[largeQueue]
	case r.long.Load():
		return &b.queues[longQueue]
	default:
		return &b.queues[quickQueue]
	}
}

// wait lets a read begin, or begin again: it lets go of all that it holds, and waits for
// what it needs, and for a place. It returns why there is none when the context ends or
// the timer fires before, or if too many wait already.
func (b *Budget) wait(ctx context.Context, r *Read, pool *Pool, timeout <-chan time.Time) (at *place, why string) {
	b.refresh() // Nobody does while no read runs.
	b.mtx.Lock()
	r.waited = r.held > 0
	w := &waiter{read: r, bytes: max(r.needs, r.held, admitBytes), pool: pool, ready: make(chan struct{})}
	b.hold(r, 0)
	r.needs = 0
	r.expected.Store(0)
	r.reserved.Store(w.bytes - admitBytes)
	r.used.Store(0)
	queue := b.queue(r, w.bytes)
	*queue = append(*queue, w)
	b.grant()
	if w.lacksPlace && pool.isCrowded() || queue.lacking() > maxWaiting*maxWaiting {
		timeout = expired
	}
	b.mtx.Unlock()
	select {
	case <-w.ready:
		return w.place, ""
	default:
	}
	select {
	case <-w.ready:
	case <-timeout:
	case <-ctx.Done():
	}
	b.mtx.Lock()
	defer b.mtx.Unlock()
	if w.place != nil { // Perhaps in the meantime.
		return w.place, ""
	}
	if why = fmt.Sprintf("%s=%s is spent", BudgetFlag, size(b.total)); w.lacksPlace {
		why = pool.taken()
	}
	b.remove(w)
	b.grant()
	return nil, why
}

// remove ends the wait.
func (b *Budget) remove(w *waiter) {
	w.setLacksPlace(false)
	for i := range b.queues {
		b.queues[i] = slices.DeleteFunc(b.queues[i], func(other *waiter) bool { return other == w })
	}
}

// grant lets those begin that wait and for whom there is memory and a place: of those
// that are first in their queues the oldest.
func (b *Budget) grant() {
	for {
		var first *waiter
		for i := range b.queues {
			if w := b.next(b.queues[i]); w != nil && (first == nil || w.read.id < first.read.id) {
				first = w
			}
		}
		if first == nil || !b.start(first) {
			return
		}
	}
}

// next returns who of a queue may begin, or nil. A read that nobody may have any more,
// because the budget has become smaller, is passed over until it has waited for long
// enough, and one without a place until it can have one.
func (b *Budget) next(q queue) *waiter {
	for _, w := range q {
		if w.bytes > max(b.perRead(), admitBytes) {
			continue
		}
		begins := b.mayBegin(w.read, w.bytes)
		lacksPlace := begins && !w.pool.hasPlace(w.read.long.Load())
		w.setLacksPlace(lacksPlace)
		if !lacksPlace {
			if !begins {
				return nil
			}
			return w
		}
	}
	return nil
}

// start lets the read begin, unless somebody has moved to its place just now.
func (b *Budget) start(w *waiter) bool {
	w.place = w.pool.try(w.read.long.Load())
	if w.place == nil {
		return false
	}
	w.place.freed = b.freed
	b.remove(w)
	b.hold(w.read, w.bytes)
	w.read.most = b.perRead()
	close(w.ready)
	return true
}

// freed says that a place was given back.
func (b *Budget) freed() {
	b.mtx.Lock()
	defer b.mtx.Unlock()
	b.grant()
}
