// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

const (
	// turn is how long a read that runs for long keeps its processor before the
	// network is polled, and others that wait for it have their turn.
	turn = time.Millisecond
	// turnPatience is how long a read waits before it takes the turn of the one
	// that has had it longest, which may have come to wait for something else: a
	// remote storage, or a lock.
	turnPatience = 100 * time.Millisecond
)

// Turns keeps reads that run for long from taking every processor. Go polls the
// network only when a processor has nothing else to do, or every 10 ms: with
// all of them busy, each step of a small query, a scrape or a health check waits
// for so long. The processor that is left may be busy with a scrape or a
// collection of garbage, so the network is polled after every turn as well.
// Turns are given in the order in which they were asked for. A nil *Turns lets
// every read run. Safe for concurrent use.
type Turns struct {
	n    int
	poll *poller
	// crowd is there while somebody waits.
	crowd *crowd
	mtx   sync.Mutex
	// holders are the reads that have a turn, the longest first.
	holders []*Read
	waiters []*waiter
	// free are waiters that nobody uses.
	free []*waiter
}

// waiter is a goroutine of a read that waits for the read's turn. A storm of
// reads waits some ten thousand times a second.
type waiter struct {
	read *Read
	// turn has a token when the read has its turn.
	turn  chan struct{}
	timer *time.Timer
}

// NewTurns returns turns that keep at most n processors busy, or nil if n is 0.
// While reads wait, GOMAXPROCS is at least crowdProcs.
func NewTurns(n, crowdProcs int) *Turns {
	if n <= 0 {
		return nil
	}
	return &Turns{n: n, poll: newPoller(), crowd: newCrowd(crowdProcs)}
}

// take waits for a turn of the read, or goes on with the one that it has if
// nobody else waits.
func (t *Turns) take(ctx context.Context, r *Read) {
	if t.isOver(r) {
		t.poll.now() // It still has its turn: no other takes the processor.
	}
	w := t.ask(r)
	if w == nil {
		runtime.Gosched() // Short requests need no turn.
		return
	}
	if len(w.turn) == 0 {
		t.crowd.isThere()
	}
	w.timer.Reset(turnPatience)
	select {
	case <-w.turn:
	case <-ctx.Done():
		t.leave(w)
	case <-w.timer.C:
		t.steal(w)
	}
	w.timer.Stop()
	t.recycle(w)
}

// newWaiter returns a waiter of the read.
func (t *Turns) newWaiter(r *Read) *waiter {
	n := len(t.free)
	if n == 0 {
		return &waiter{read: r, turn: make(chan struct{}, 1), timer: time.NewTimer(turnPatience)}
	}
	w := t.free[n-1]
	t.free[n-1], t.free = nil, t.free[:n-1]
	w.read = r
	return w
}

// recycle is for a waiter that waits no more.
func (t *Turns) recycle(w *waiter) {
	t.mtx.Lock()
	defer t.mtx.Unlock()
	select {
	case <-w.turn: // It came while the waiter gave up.
	default:
	}
	w.read = nil
	t.free = append(t.free, w)
}

// ask returns nil if the read has a turn already, and otherwise what it waits for.
func (t *Turns) ask(r *Read) *waiter {
	if t == nil {
		return nil
	}
	t.mtx.Lock()
	defer t.mtx.Unlock()
	if slices.Contains(t.holders, r) {
		switch {
		case time.Since(r.turnSince) < turn:
			return nil
		case len(t.waiters) == 0:
			r.turnSince = time.Now()
			return nil
		}
		t.end(r)
	}
	w := t.newWaiter(r)
	t.waiters = append(t.waiters, w)
	t.grant()
	return w
}

// isOver says whether the read has a turn that is over.
func (t *Turns) isOver(r *Read) bool {
	if t == nil {
		return false
	}
	t.mtx.Lock()
	defer t.mtx.Unlock()
	return slices.Contains(t.holders, r) && time.Since(r.turnSince) >= turn
}

// grant gives the free turns to who waits.
func (t *Turns) grant() {
	for len(t.holders) < t.n && len(t.waiters) > 0 {
		w := t.waiters[0]
		t.waiters = slices.Delete(t.waiters, 0, 1) // Keeps the room in front.
		t.begin(w)
	}
}

// begin gives the waiter's read a turn. The goroutines of one read share it.
func (t *Turns) begin(w *waiter) {
	if !slices.Contains(t.holders, w.read) {
		w.read.turnSince = time.Now()
		t.holders = append(t.holders, w.read)
	}
	w.turn <- struct{}{}
}

func (t *Turns) end(r *Read) {
	if i := slices.Index(t.holders, r); i >= 0 {
		t.holders = slices.Delete(t.holders, i, i+1)
	}
}

// leave gives up waiting.
func (t *Turns) leave(w *waiter) {
	t.mtx.Lock()
	defer t.mtx.Unlock()
	if i := slices.Index(t.waiters, w); i >= 0 {
		t.waiters = slices.Delete(t.waiters, i, i+1)
	}
}

// steal takes the longest turn for the waiter.
func (t *Turns) steal(w *waiter) {
	t.mtx.Lock()
	defer t.mtx.Unlock()
	i := slices.Index(t.waiters, w)
	if i < 0 {
		return // Its turn has come in the meantime.
	}
	t.waiters = slices.Delete(t.waiters, i, i+1)
	if len(t.holders) == t.n && !slices.Contains(t.holders, w.read) {
		t.holders = slices.Delete(t.holders, 0, 1)
	}
	t.begin(w)
}

// yield gives back the read's turn and says whether it had one.
func (t *Turns) yield(r *Read) bool {
	if t == nil {
		return false
	}
	t.mtx.Lock()
	defer t.mtx.Unlock()
	had := slices.Contains(t.holders, r)
	t.end(r)
	t.grant()
	return had
}
