// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

const (
	// withoutSlot is how much processor time a read has before it needs a slot: most
	// are over by then.
	withoutSlot = 2 * time.Millisecond
	// lease is how long a slot is the read's until its next look. Nobody preempts a
	// read, and one that waits for a lock or a remote storage cannot give its slot back.
	lease = 10 * time.Millisecond
	// slice is how much more time than one that waits a read has had when it gives its
	// slot away: a millisecond, or a quarter of what that has had. Those that have had
	// as much take turns, and each turn finds the processor's caches cold.
	slice     = time.Millisecond
	sliceRate = 4
	// aging is which part of the time of the slots, one of so many, goes to the reads that
	// have waited for longest, so that a long one goes on while short ones keep coming.
	aging = 8
)

// Procs shares processors out among reads that run for long: all of them, or fewer while
// memory is scarce, since the garbage collector needs them, too. Go polls the network when
// a processor has nothing else to do, or every 10 ms, and has all that can run take
// turns: behind many reads, each step of a small query, a scrape or a health check waits
// for each of them.
//
// A slot is leased to the read that has had the least processor time so far, and an
// eighth of the time to the one that has waited for longest. A nil *Procs lets every read
// run. Safe for concurrent use.
type Procs struct {
	most, whileScarce int
	scarce            func() bool

	mtx              sync.Mutex
	running, waiting []*proc
	aged             time.Time // When a read had a slot because it had waited for longest.
	// expiry fires when a lease may have ended for which reads wait.
	expiry *time.Timer
}

// NewProcs returns n slots while memory is scarce, and otherwise one for each processor if
// that is more, or nil if n is 0.
func NewProcs(n int, scarce func() bool) *Procs {
	if n <= 0 {
		return nil
	}
	return &Procs{most: max(n, runtime.GOMAXPROCS(0)), whileScarce: n, scarce: scarce}
}

// slots returns how many there are now.
func (p *Procs) slots() int {
	if p.scarce() {
		return p.whileScarce
	}
	return p.most
}

// proc is a read's share of the processors. Its goroutines have one together. Guarded
// by the Procs' mtx.
type proc struct {
	had    time.Duration // Processor time so far.
	looked time.Time     // The last look, if the read has run since.
	until  time.Time     // The end of the lease.
	whole  bool          // It has had to wait for long: nobody has its slot before that.
	ready  chan struct{} // Closed when the read has a slot; nil unless it waits.
	turn   time.Duration // Processor time when it got its slot.
	since  time.Time     // When it began to wait; turns of less than a lease do not end that.
}

// take is called by a read from time to time, and returns when it may go on.
func (p *Procs) take(ctx context.Context, r *proc) {
	if p == nil {
		return
	}
	ready := p.look(r)
	if ready == nil {
		return
	}
	select {
	case <-ready:
	case <-ctx.Done():
		p.leave(r)
	}
}

// look returns nil if the read may go on, or what is closed when it may.
func (p *Procs) look(r *proc) <-chan struct{} {
	p.mtx.Lock()
	defer p.mtx.Unlock()
	if r.ready != nil {
		return r.ready // Another goroutine of the read waits.
	}
	now := time.Now()
	r.charge(now)
	if r.had < withoutSlot {
		return nil
	}
	if i := slices.Index(p.running, r); i >= 0 {
		if r.whole && now.Before(r.until) {
			return nil
		}
		if next, waited := p.next(now); next == nil || !waited && next.had+max(slice, next.had/sliceRate) > r.had {
			r.whole = false
			r.until = now.Add(lease)
			return nil
		}
		p.running = slices.Delete(p.running, i, i+1)
	}
	ready := make(chan struct{})
	r.ready = ready
	if r.since.IsZero() || r.had-r.turn >= lease {
		r.since = now
	}
	p.waiting = append(p.waiting, r)
	p.pass(now)
	return ready
}

// charge adds the time since the last look. Longer than a lease it was somewhere else.
func (r *proc) charge(now time.Time) {
	if !r.looked.IsZero() {
		r.had += min(now.Sub(r.looked), lease)
	}
	r.looked = now
}

// next returns who is to have the next slot, or nil, and whether that is because it has
// waited for long.
func (p *Procs) next(now time.Time) (r *proc, waited bool) {
	if len(p.waiting) == 0 {
		return nil, false
	}
	const each = aging * lease
	oldest := slices.MinFunc(p.waiting, func(a, b *proc) int { return a.since.Compare(b.since) })
	if now.Sub(oldest.since) >= each && now.Sub(p.aged) >= each/time.Duration(p.slots()) {
		return oldest, true
	}
	return slices.MinFunc(p.waiting, func(a, b *proc) int { return cmp.Compare(a.had, b.had) }), false
}

// pass leases out what slots are free.
func (p *Procs) pass(now time.Time) {
	p.running = slices.DeleteFunc(p.running, func(r *proc) bool { return !now.Before(r.until) })
	for len(p.waiting) > 0 && len(p.running) < p.slots() {
		r, waited := p.next(now)
		if r.whole = waited; waited {
			p.aged = now
		}
		p.endWait(r)
		r.looked, r.until, r.turn = now, now.Add(lease), r.had
		p.running = append(p.running, r)
	}
	if len(p.waiting) == 0 {
		return
	}
	first := slices.MinFunc(p.running, func(a, b *proc) int { return a.until.Compare(b.until) })
	if in := first.until.Sub(now); p.expiry == nil {
		p.expiry = time.AfterFunc(in, p.expire)
	} else {
		p.expiry.Reset(in)
	}
}

func (p *Procs) expire() {
	p.mtx.Lock()
	defer p.mtx.Unlock()
	p.pass(time.Now())
}

func (p *Procs) endWait(r *proc) {
	p.waiting = slices.DeleteFunc(p.waiting, func(w *proc) bool { return w == r })
	close(r.ready)
	r.ready = nil
}

// leave says that the read does not run for a while, and whether it had a slot, which
// others have now.
func (p *Procs) leave(r *proc) bool {
	if p == nil {
		return false
	}
	p.mtx.Lock()
	defer p.mtx.Unlock()
	r.looked, r.since = time.Time{}, time.Time{}
	if r.ready != nil {
		p.endWait(r)
	}
	i := slices.Index(p.running, r)
	if i < 0 {
		return false
	}
	p.running = slices.Delete(p.running, i, i+1)
	p.pass(time.Now())
	return true
}
