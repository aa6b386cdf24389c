// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/alecthomas/units"

	"github.com/prometheus/prometheus/promguard/memory"
)

// BudgetFlag is the name of the flag that sets the budget, for messages.
const BudgetFlag = "--guard.read-memory-budget"

const (
	// admitBytes is what a read holds from its start: buffers, mostly.
	admitBytes = 1 << 20
	// leastBudget is the smallest budget: small reads go on whatever happens.
	leastBudget = 16 << 20
	// budgetShare is the share of the memory limit that reads may fill. The rest is
	// for garbage, and for what accounts miss.
	budgetShare = 0.8
	// growStep is what a read takes of the reserve at a time.
	growStep = 256 << 10
)

// Budget is the memory that all reads together may hold. A read reserves once what
// it is expected to need, and waits for that with nothing in its hands: so none has
// to end for another. What it turns out to need beyond comes from a reserve.
//
// One read may have half. Small ones, of a 64th, do not wait for large ones: an
// eighth is theirs alone, and up to half is while no large one waits. Large ones
// begin while they hold less than three quarters together, in the order in which
// they came. Safe for concurrent use.
type Budget struct {
	most  int64               // What the operator allows, or 0.
	usage func() memory.Usage // What the process uses, or nil if nobody knows.

	mtx   sync.Mutex
	total int64
	held  int64
	large int64 // What of it is held by reads that are not small.
	reads map[*Read]struct{}
	// smallQueue and largeQueue are who waits, in order.
	smallQueue, largeQueue []*waiter
	// allowed is how many reads may run. While it is not every one, they are small.
	allowed int

	// rest is what the process holds beside reads, as of the collection cycle, and
	// lastUsed what reads said that they held when it was looked at last.
	rest     int64
	cycle    uint64
	lastUsed int64
}

// waiter is a read that waits for memory.
type waiter struct {
	read  *Read
	bytes int64
	ready chan struct{}
}

// NewBudget returns a budget of what everything else leaves of the memory limit, and
// of at most so many bytes if that is not 0. Without usage it is those.
func NewBudget(most int64, usage func() memory.Usage) *Budget {
	b := &Budget{most: most, usage: usage, total: most, reads: map[*Read]struct{}{}, allowed: everyRead}
	b.refresh()
	return b
}

// Total returns the size of the budget in bytes, as of now.
func (b *Budget) Total() int64 {
	b.refresh()
	b.mtx.Lock()
	defer b.mtx.Unlock()
	return b.total
}

// Held returns how much of the budget is held, in bytes.
func (b *Budget) Held() int64 {
	b.mtx.Lock()
	defer b.mtx.Unlock()
	return b.held
}

// Waiting returns how many reads wait for memory.
func (b *Budget) Waiting() int {
	b.mtx.Lock()
	defer b.mtx.Unlock()
	return len(b.smallQueue) + len(b.largeQueue)
}

// Used returns what reads say that they hold, in bytes.
func (b *Budget) Used() int64 {
	b.mtx.Lock()
	defer b.mtx.Unlock()
	return b.used()
}

func (b *Budget) used() (sum int64) {
	for r := range b.reads {
		sum += r.used.Load()
	}
	return sum
}

// refresh sets the budget to what everything but reads leaves of the memory limit,
// compactions that go on included. What lives is known from the last collection, so
// what reads held is to be known from then, too.
func (b *Budget) refresh() {
	if b.usage == nil {
		return
	}
	u := b.usage()
	b.mtx.Lock()
	defer b.mtx.Unlock()
	used := b.used()
	if u.Cycle != b.cycle {
		b.cycle, b.rest = u.Cycle, max(0, u.Live-min(used, b.lastUsed))
	}
	b.lastUsed = used
	if u.Limit > 0 {
		b.total = max(leastBudget, int64(budgetShare*float64(u.Limit))-b.rest-u.Reserved)
		if b.most > 0 {
			b.total = min(b.total, b.most)
		}
	}
	b.grant()
}

// perRead is what one read may have.
func (b *Budget) perRead() int64 { return b.total / 2 }

// reserve is kept for what was not expected, and as much for small reads.
func (b *Budget) reserve() int64 { return b.total / 8 }

// isLarge says whether a read of so many bytes waits for other large ones.
func (b *Budget) isLarge(bytes int64) bool { return bytes > max(b.total/64, 2*admitBytes) }

// expired is a timer that has fired.
var expired = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()

// mayBegin says whether a read that holds nothing may begin with so many bytes, if
// nobody waits in front of it.
func (b *Budget) mayBegin(bytes int64) bool {
	small := b.held - b.large
	switch {
	case b.allowed != everyRead:
		return !b.isLarge(bytes) && len(b.reads) < b.allowed
	case b.isLarge(bytes):
		return b.large+bytes <= b.total-2*b.reserve() && b.held+bytes <= b.total
	case small+bytes <= b.reserve():
		return true
	default:
		return len(b.largeQueue) == 0 && small+bytes <= b.total/2 && b.held+bytes <= b.total
	}
}

// mayGrow says whether a read may hold so many more bytes than it does.
func (b *Budget) mayGrow(r *Read, more int64) bool {
	if b.isLarge(r.held + more) {
		others := b.large
		if r.large {
			others -= r.held
		}
		return others+r.held+more <= b.total-b.reserve() && b.held+more <= b.total
	}
	return b.held-b.large+more <= b.reserve() || b.held+more <= b.total
}

// hold sets what the read holds.
func (b *Budget) hold(r *Read, bytes int64) {
	if r.large {
		b.large -= r.held
	}
	b.held += bytes - r.held
	r.held, r.large = bytes, b.isLarge(bytes)
	if r.large {
		b.large += bytes
	}
	r.granted.Store(bytes - admitBytes)
	if b.reads[r] = struct{}{}; bytes == 0 {
		delete(b.reads, r)
	}
}

// errMustWait unwinds a read that cannot begin at once.
var errMustWait = errors.New("there is no memory for this request yet")

// begin reserves what the read expects to need. If it would have to wait it gets
// errMustWait: it is to let go of all that it has, to wait, and to run again.
func (b *Budget) begin(r *Read) error {
	b.mtx.Lock()
	defer b.mtx.Unlock()
	held, expected, reserved := r.held, r.expected.Load(), r.reserved.Load()
	bytes := held + expected - reserved
	if reserved == 0 {
		bytes = admitBytes + r.used.Load() + expected
	}
	if bytes <= held {
		r.reserved.Store(expected)
		return nil
	}
	if bytes > max(r.most, b.perRead()) {
		return b.tooLarge(r) // It would wait for what nobody is given.
	}
	if begun := r.bytes.Load() > 0; begun || r.waited {
		if b.mayGrow(r, bytes-held) { // It is a little more than the last time.
			b.hold(r, bytes)
			r.reserved.Store(expected)
			return nil
		}
		if begun { // Its answer cannot begin again.
			return b.spent(r)
		}
	}
	b.hold(r, 0)
	if len(*b.queue(bytes)) == 0 && b.mayBegin(bytes) {
		b.hold(r, bytes)
		r.reserved.Store(expected)
		return nil
	}
	b.hold(r, held)
	r.needs = bytes
	return errMustWait
}

func (b *Budget) queue(bytes int64) *[]*waiter {
	if b.isLarge(bytes) {
		return &b.largeQueue
	}
	return &b.smallQueue
}

// wait lets a read begin, or begin again: it lets go of all that it holds, and waits for
// what it needs. It returns false when the context ends or the timer fires before there
// is room, or if too many wait already.
func (b *Budget) wait(ctx context.Context, r *Read, timeout <-chan time.Time) bool {
	b.refresh() // Nobody does while no read runs.
	b.mtx.Lock()
	b.hold(r, 0)
	r.waited = r.needs > 0
	w := &waiter{r, max(r.needs, admitBytes), make(chan struct{})}
	r.needs = 0
	r.expected.Store(0)
	r.reserved.Store(w.bytes - admitBytes)
	r.used.Store(0)
	bytes := w.bytes
	if queue := b.queue(bytes); len(*queue) < maxWaiting*maxWaiting {
		*queue = append(*queue, w)
		b.grant()
	} else {
		timeout = expired
	}
	b.mtx.Unlock()
	select {
	case <-w.ready:
		return true
	default:
	}
	select {
	case <-w.ready:
		return true
	case <-timeout:
	case <-ctx.Done():
	}
	b.mtx.Lock()
	defer b.mtx.Unlock()
	is := func(other *waiter) bool { return other == w }
	b.smallQueue = slices.DeleteFunc(b.smallQueue, is)
	b.largeQueue = slices.DeleteFunc(b.largeQueue, is)
	b.hold(r, 0) // It may have been granted in the meantime.
	b.grant()
	return false
}

// grant lets those begin that wait and for whom there is room. A read that nobody may
// have any more, because the budget has become smaller, is passed over until it has
// waited for long enough.
func (b *Budget) grant() {
	next := func(queue *[]*waiter, fits func(*waiter) bool) bool {
		for i, w := range *queue {
			if w.bytes > max(b.perRead(), admitBytes) {
				continue
			}
			if !fits(w) {
				return false
			}
			*queue = slices.Delete(*queue, i, i+1)
			b.hold(w.read, w.bytes)
			w.read.most = b.perRead()
			close(w.ready)
			return true
		}
		return false
	}
	fits := func(w *waiter) bool { return b.mayBegin(w.bytes) }
	for next(&b.largeQueue, fits) || next(&b.smallQueue, fits) {
	}
}

// grow gives the read what it uses beyond what it has reserved, or stops it.
func (b *Budget) grow(r *Read, used int64) error {
	b.mtx.Lock()
	defer b.mtx.Unlock()
	more := admitBytes + used - r.held
	switch {
	case more <= 0 || r.ended:
		return nil
	case r.held+more > max(r.most, b.perRead()):
		return b.tooLarge(r)
	case b.mayGrow(r, max(more, growStep)):
		more = max(more, growStep)
	case !b.mayGrow(r, more):
		return b.spent(r)
	}
	b.hold(r, r.held+more)
	return nil
}

// mayExpect returns an error if the read would need more than any read may have.
func (b *Budget) mayExpect(r *Read, bytes int64) error {
	b.mtx.Lock()
	defer b.mtx.Unlock()
	if admitBytes+bytes > max(r.most, b.perRead()) {
		return b.tooLarge(r)
	}
	return nil
}

// tryLess is what the client of a read that was stopped for want of memory can do.
const tryLess = "Try again later, or select less"

// spent stops a read for which there is nothing left of the reserve, and returns why.
func (b *Budget) spent(r *Read) error {
	stop := r.Refusal(ReasonMemory, tryLess, "was stopped because it needed more than the %s that were expected, and the reserve of %s=%s is spent",
		size(r.held), BudgetFlag, size(b.total))
	r.Stop(stop)
	return stop
}

// tooLarge stops a read that needs more than any may have, and returns why.
func (b *Budget) tooLarge(r *Read) error {
	stop := r.Refusal(ReasonTooLarge, "Select fewer series, a shorter range or a larger step",
		"needs more than %s of memory, half of %s=%s, which is what one request may have", size(b.perRead()), BudgetFlag, size(b.total))
	r.Stop(stop)
	return stop
}

// release gives back all that the read holds.
func (b *Budget) release(r *Read) {
	b.mtx.Lock()
	defer b.mtx.Unlock()
	b.hold(r, 0)
	r.ended = true
	b.grant()
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
