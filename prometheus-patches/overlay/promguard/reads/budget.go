// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"context"
	"sync"
	"time"

	"github.com/alecthomas/units"
)

// BudgetFlag is the name of the flag that sets the budget, for messages.
const BudgetFlag = "--guard.read-memory-budget"

// admitBytes is what a read holds from its start: buffers, mostly.
const admitBytes = 1 << 20

// Budget is the memory that all reads together may hold. It counts what reads
// say they hold, which is an estimate; Watch is for what it misses. Safe for
// concurrent use.
//
// A quarter is kept for small reads, which hold no more than a 64th: they do not
// wait for large ones.
type Budget struct {
	total   int64
	perRead int64
	small   int64 // What a small read may hold.
	large   int64 // What may be held when a read grows beyond that.

	mtx   sync.Mutex
	held  int64
	reads map[*Read]struct{}
	// waiting is how many of reads wait for memory.
	waiting int
	// leaving are reads that were stopped to make room and still hold memory.
	leaving map[*Read]struct{}
	// freed is closed, and replaced, when memory is given back.
	freed chan struct{}
}

// NewBudget returns a budget of total bytes. One read may have half of it.
func NewBudget(total int64) *Budget {
	return &Budget{
		total:   total,
		perRead: total / 2,
		small:   max(total/64, 2*admitBytes),
		large:   total - total/4,
		reads:   map[*Read]struct{}{},
		leaving: map[*Read]struct{}{},
		freed:   make(chan struct{}),
	}
}

// Total returns the size of the budget in bytes.
func (b *Budget) Total() int64 { return b.total }

// Held returns how much of the budget is held, in bytes.
func (b *Budget) Held() int64 {
	b.mtx.Lock()
	defer b.mtx.Unlock()
	return b.held
}

// admit lets a read begin. It waits until there is room for it, or returns false
// when the context ends or the timer fires.
func (b *Budget) admit(ctx context.Context, r *Read, timeout <-chan time.Time) bool {
	for {
		b.mtx.Lock()
		if b.held+admitBytes <= b.total || len(b.reads) == 0 {
			b.reads[r] = struct{}{}
			b.hold(r, admitBytes)
			b.mtx.Unlock()
			return true
		}
		freed := b.freed
		b.mtx.Unlock()
		select {
		case <-freed:
		case <-timeout:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// reserve gives n more bytes to a read that runs, and waits for them if there
// are none left. Only when every read waits, the one that holds the most is
// stopped.
func (b *Budget) reserve(ctx context.Context, r *Read, n int64) error {
	b.mtx.Lock()
	defer b.mtx.Unlock()
	if r.held+n > b.perRead {
		return r.tooLarge()
	}
	for !b.fits(r, n) {
		r.Wait() // The next Yield asks for a turn again.
		if err := b.wait(ctx); err != nil {
			return err
		}
	}
	b.hold(r, n)
	return nil
}

// tooLarge stops a read that needs more than any may have, and returns why.
func (r *Read) tooLarge() error {
	stop := r.Refusal(ReasonTooLarge, "Select fewer series, a shorter range or a larger step",
		"needs more than %s of memory, half of %s=%s, which is what one request may have", size(r.budget.perRead), BudgetFlag, size(r.budget.total))
	r.Stop(stop)
	return stop
}

// use gives the read what it uses beyond what it has reserved, without a wait.
func (b *Budget) use(r *Read, used int64) error {
	b.mtx.Lock()
	defer b.mtx.Unlock()
	more := used - (r.held - admitBytes)
	switch {
	case more <= 0:
		return nil
	case r.held+more > b.perRead:
		return r.tooLarge()
	}
	b.hold(r, more)
	if b.held > b.total {
		b.makeRoom()
	}
	return nil
}

func (b *Budget) fits(r *Read, n int64) bool {
	if r.held+n <= b.small {
		return b.held+n <= b.total
	}
	return b.held+n <= b.large
}

// tryLess is what the client of a read that was stopped to make room can do.
const tryLess = "Try again later, or select less"

// wait lets go of the lock until memory is given back or the context ends.
func (b *Budget) wait(ctx context.Context) error {
	b.waiting++
	if b.waiting == len(b.reads) {
		b.makeRoom()
	}
	freed := b.freed
	b.mtx.Unlock()
	err := waitFor(ctx, freed)
	b.mtx.Lock()
	if freed == b.freed { // Else nobody waits: release has woken all.
		b.waiting--
	}
	return err
}

func waitFor(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c:
		return nil
	}
}

// room returns how many bytes the read may still take.
func (b *Budget) room(r *Read) int64 {
	b.mtx.Lock()
	defer b.mtx.Unlock()
	return b.perRead - r.held
}

func (b *Budget) hold(r *Read, n int64) {
	r.held += n
	b.held += n
}

// makeRoom stops the read that holds the most, unless one that was stopped has
// yet to give back what it holds.
func (b *Budget) makeRoom() {
	if len(b.leaving) > 0 {
		return
	}
	if r := b.largest(); r != nil {
		b.leaving[r] = struct{}{}
		r.Stop(r.Refusal(ReasonMemory, tryLess, "was stopped because all requests together needed more than %s=%s and it held the most, %s",
			BudgetFlag, size(b.total), size(r.held)))
	}
}

func (b *Budget) largest() *Read {
	var largest *Read
	for r := range b.reads {
		if largest == nil || r.held > largest.held {
			largest = r
		}
	}
	return largest
}

// reliefBytes is what a read must hold for its end to bring any relief.
const reliefBytes = 16 << 20

// relieve stops the read that holds the most because the process is about to
// run out of memory. It says whether there was one that holds enough to matter.
func (b *Budget) relieve(live, limit int64) bool {
	b.mtx.Lock()
	defer b.mtx.Unlock()
	if len(b.leaving) > 0 {
		return true
	}
	r := b.largest()
	if r == nil || r.held < min(reliefBytes, b.total/8) {
		return false
	}
	b.leaving[r] = struct{}{}
	r.Stop(r.Refusal(ReasonMemory, tryLess, "was stopped because the server was about to run out of memory (%s of %s in use) and it held the most, about %s",
		size(live), size(limit), size(r.held)))
	return true
}

// release gives back all that the read holds.
func (b *Budget) release(r *Read) {
	b.mtx.Lock()
	defer b.mtx.Unlock()
	b.held -= r.held
	r.held = 0
	delete(b.reads, r)
	delete(b.leaving, r)
	b.waiting = 0
	close(b.freed)
	b.freed = make(chan struct{})
}

func (b *Budget) heldBy(r *Read) int64 {
	if b == nil {
		return 0
	}
	b.mtx.Lock()
	defer b.mtx.Unlock()
	return r.held
}

// size prints bytes with the unit that the flags take.
func size(n int64) string {
	return units.Base2Bytes(n).Round(2).String()
}
