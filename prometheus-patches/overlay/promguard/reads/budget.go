// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/docker/go-units"

	"github.com/prometheus/prometheus/promguard/memory"
)

// BudgetFlag is the name of the flag that sets the budget, for messages.
const BudgetFlag = "--guard.read-memory-budget"

const (
	// admitBytes is what a read holds from its start: buffers, mostly.
	admitBytes = 1 << 20
	// leastBudget is the smallest budget, and leastForQuick what of it is for small reads
	// that have just begun: they go on whatever happens.
	leastBudget   = 16 << 20
	leastForQuick = leastBudget / 2
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
// eighth is theirs alone while they are quick, and up to half is while no large one
// waits. Large ones begin while they and those that have run for long hold less than
// three quarters together, in the order in which they came. Safe for concurrent use.
type Budget struct {
	most  int64               // What the operator allows, or 0.
	usage func() memory.Usage // What the process uses, or nil if nobody knows.

	backstop atomic.Pointer[backstop]

	mtx   sync.Mutex
	total int64
	held  int64
	large int64 // What of it is held by reads that are large or long.
	reads map[*Read]struct{}
	// queues are who waits, in order.
	queues [3]queue
	// roomiest is the largest budget of late, and before that, since a read has selected
	// something for the first time: while the head is loaded there is room that never
	// comes back.
	roomiest [2]int64
	turned   time.Time
	// allowed is how many small reads may run. While it is not every one, no other begins.
	allowed int

	// rest is what the process holds beside reads, as of the collection cycle, and
	// lastUsed what reads said that they held when it was looked at last.
	rest     int64
	cycle    uint64
	lastUsed int64
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
	return b.waiting()
}

func (b *Budget) waiting() (n int) {
	for _, q := range b.queues {
		n += q.lacking()
	}
	return n
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

// refresh brings the budget up to date.
func (b *Budget) refresh() {
	b.mtx.Lock()
	defer b.mtx.Unlock()
	b.moveAnswered()
	b.resize()
	b.remember(time.Now())
	b.grant()
}

// moveAnswered makes reads that are being answered count as those that run for long when
// they are quick no more: they hold what they have for as long as their clients take.
func (b *Budget) moveAnswered() {
	for r := range b.reads {
		if !r.large && r.isAnswered() && !r.isQuick() {
			r.long.Store(true)
			b.hold(r, r.held)
		}
	}
}

// resize sets the budget to what everything but reads leaves of the memory limit,
// compactions that go on included. What lives is known from the last collection, so
// what reads held is to be known from then, too.
func (b *Budget) resize() {
	if b.usage == nil {
		return
	}
	u := b.usage()
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
}

// lately is for how long a budget is remembered, at least.
const lately = 5 * time.Minute

// remember notes how large the budget is.
func (b *Budget) remember(now time.Time) {
	if b.turned.IsZero() {
		return
	}
	if since := now.Sub(b.turned); since > lately {
		b.roomiest[1], b.roomiest[0] = b.roomiest[0], 0
		if since > 2*lately {
			b.roomiest[1] = 0
		}
		b.turned = now
	}
	b.roomiest[0] = max(b.roomiest[0], b.total)
}

// perRead is what one read may have.
func (b *Budget) perRead() int64 { return b.total / 2 }

// reserve is kept for what was not expected.
func (b *Budget) reserve() int64 { return b.total / 8 }

// forQuick is kept for small reads that have just begun. They begin while they hold less
// than three quarters of it: the rest is for what they turn out to need.
func (b *Budget) forQuick() int64 { return max(b.total/8, leastForQuick) }

// isLarge says whether a read of so many bytes waits for other large ones.
func (b *Budget) isLarge(bytes int64) bool { return bytes > max(b.total/64, 2*admitBytes) }

// countsAsLarge says whether what the read holds, so many bytes, is not small and quick.
func (b *Budget) countsAsLarge(r *Read, bytes int64) bool { return r.long.Load() || b.isLarge(bytes) }

// mayBegin says whether a read that holds nothing may begin with so many bytes, if
// nobody waits in front of it.
func (b *Budget) mayBegin(r *Read, bytes int64) bool {
	small := b.held - b.large
	switch {
	case b.allowed != everyRead && (b.countsAsLarge(r, bytes) || b.smallOnes() >= b.allowed):
		return false
	case b.countsAsLarge(r, bytes):
		others := b.total - b.forQuick() - b.reserve()
		return (b.large == 0 || b.large+bytes <= others) && b.held+bytes <= b.total
	case small+bytes <= b.forQuick()/4*3:
		return true
	default:
		return b.queues[largeQueue].lacking() == 0 && small+bytes <= b.total/2 && b.held+bytes <= b.total
	}
}

// mayGrow says whether a read may hold so many more bytes than it does.
func (b *Budget) mayGrow(r *Read, more int64) bool {
	if b.countsAsLarge(r, r.held+more) {
		others := b.large
		if r.large {
			others -= r.held
		}
		return others+r.held+more <= b.total-b.forQuick() && b.held+more <= b.total
	}
	return b.held-b.large+more <= b.forQuick() || b.held+more <= b.total
}

// hold sets what the read holds.
func (b *Budget) hold(r *Read, bytes int64) {
	if r.large {
		b.large -= r.held
	}
	b.held += bytes - r.held
	r.held, r.large = bytes, b.countsAsLarge(r, bytes)
	if r.large {
		b.large += bytes
	}
	r.granted.Store(bytes - admitBytes)
	if b.reads[r] = struct{}{}; bytes == 0 {
		delete(b.reads, r)
	}
}

// move makes a read that has run for long count as one. It returns false if there is no
// room for that: an eighth is for others.
func (b *Budget) move(r *Read) bool {
	if b == nil {
		r.long.Store(true)
		return true
	}
	b.mtx.Lock()
	defer b.mtx.Unlock()
	if r.large || b.large+r.held <= b.total-b.forQuick() {
		r.long.Store(true)
		b.hold(r, r.held)
		return true
	}
	return false
}

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
		return b.tooLarge(r, bytes) // It would wait for what nobody is given.
	}
	// It may be a little more than the last time, or come after its answer has begun.
	goesOn := (r.waited || r.answer.Load() == answering) && b.mayGrow(r, bytes-held)
	if goesOn || b.beginsAtOnce(r, bytes) {
		b.hold(r, bytes)
		r.reserved.Store(expected)
		return nil
	}
	r.needs = bytes
	if err := r.runAgain(); err != nil {
		return err
	}
	return b.spent(r) // Its answer cannot begin again.
}

// beginsAtOnce says whether a read may begin with so many bytes in place of those that
// it holds.
func (b *Budget) beginsAtOnce(r *Read, bytes int64) bool {
	held := r.held
	b.hold(r, 0)
	defer func() { b.hold(r, held) }()
	return b.queue(r, bytes).lacking() == 0 && b.mayBegin(r, bytes)
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
		return b.tooLarge(r, r.held+more)
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
	if b.turned.IsZero() {
		b.turned = time.Now()
		b.remember(b.turned)
	}
	if admitBytes+bytes > max(r.most, b.perRead()) {
		return b.tooLarge(r, admitBytes+bytes)
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

// tooLarge stops a read that needs more than any may have, and returns why. Where it
// would have fitted a while ago, it may again.
func (b *Budget) tooLarge(r *Read, bytes int64) error {
	reason, do, when := ReasonTooLarge, cmp.Or(r.Narrower, "Select fewer series, a shorter range or a larger step"), ""
	if bytes <= max(b.roomiest[0], b.roomiest[1])/2 {
		reason, do, when = ReasonMemory, tryLess, " now"
	}
	stop := r.Refusal(reason, do, "needs more than %s of memory, half of %s=%s, which is what one request may have%s", size(b.perRead()), BudgetFlag, size(b.total), when)
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

// allowedTo returns the most that a read may hold, or 0 if nobody says.
func (b *Budget) allowedTo(r *Read) int64 {
	if b == nil {
		return 0
	}
	b.mtx.Lock()
	defer b.mtx.Unlock()
	return max(r.most, b.perRead())
}

// size prints bytes with the unit that the flags take.
func size(n int64) string {
	return units.BytesSize(float64(n))
}
