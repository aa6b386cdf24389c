// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"cmp"
	"context"
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/prometheus/promguard/memory"
)

const (
	// backstopInterval is how often the memory in use is compared with its limits
	// while reads run.
	backstopInterval = 50 * time.Millisecond
	// glanceInterval is how often reads that run look themselves. Where they keep all
	// processors busy, a goroutine of the backstop's own may not run for a while.
	glanceInterval = 10 * time.Millisecond
	// liveShare is the share of the limit from which memory that lives stops reads.
	// Beyond it the garbage collector takes more and more of the processors, until all
	// stands still.
	liveShare = 0.85
	// foresight is for how long memory grows on until a stop has an effect, unless a
	// collection takes longer: reads look every 100 us of work whether they are stopped,
	// and what they held is free when it has been collected.
	foresight = 500 * time.Millisecond
	// killShare is the share of the memory at which the kernel kills from which all
	// reads are stopped, and reaction how long it grows on until they are.
	// GOMEMLIMIT is nine tenths of it by default, so that garbage does not get there.
	killShare = 0.95
	reaction  = 100 * time.Millisecond
	// overhead is what the process has beside its heap objects, as a factor.
	overhead = 1.03
	// growsOn is the share of the limit by which the heap grows after a stop so that
	// the next one does not wait for a collection.
	growsOn = 0.02
	// collectShare is the share of the limit from which garbage is collected where
	// there is no GOMEMLIMIT, so that it does not grow over the limit.
	collectShare = 0.8
	// bigAccount is how much a read must hold to be among those that are stopped first.
	bigAccount = 16 << 20
	// pressedReads is how many small reads may run at a time until memory falls.
	pressedReads = 8
	// everyRead is how many may run otherwise.
	everyRead = math.MaxInt
)

// Backstop stops reads when the process is about to run out of memory, until the
// context ends. It trusts no account: first go those that say they hold the most, then
// the youngest, twice as many each time, while a few small ones may begin until memory
// falls. Those that have only just begun are spared, and more so those that are being
// answered. All go, and none begins, when the kernel is about to kill. It looks at reads
// alone: nothing else is stopped.
func (b *Budget) Backstop(ctx context.Context, m *memory.Monitor) {
	collect, takes := collector()
	s := &backstop{budget: b, monitor: m, collect: collect, takes: takes, hasLimit: debug.SetMemoryLimit(-1) < math.MaxInt64}
	b.backstop.Store(s)
	defer b.backstop.Store(nil)
	ticker := time.NewTicker(backstopInterval)
	defer ticker.Stop()
	done := func() {}
	defer func() { done() }() //nolint:gocritic // It is another one then.
	watched := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if busy := b.busy(); busy != watched {
			if watched = busy; busy {
				done = m.Need()
			} else {
				done()
			}
		}
		if watched {
			s.glance(time.Now())
		}
	}
}

// backstop is what was seen so far.
type backstop struct {
	budget   *Budget
	monitor  *memory.Monitor
	collect  func(release bool)
	takes    func() time.Duration
	hasLimit bool // GOMEMLIMIT.

	glanced atomic.Int64 // When it was looked at last, in nanoseconds since 1970.
	mtx     sync.Mutex   // Guards the rest.

	cycle  uint64    // The last collection that was seen,
	seen   time.Time // when,
	live   int64     // what lived then,
	growth float64   // and by how many bytes a second that grows.
	stops  int       // How many reads were stopped the last time,
	heap   int64     // how large the heap was then,
	shows  uint64    // and the first collection that shows what that has freed.
}

// glance looks at the memory, unless somebody has just done that.
func (s *backstop) glance(now time.Time) {
	if s == nil || now.UnixNano()-s.glanced.Load() < int64(glanceInterval) || !s.mtx.TryLock() {
		return
	}
	defer s.mtx.Unlock()
	s.glanced.Store(now.UnixNano())
	u := s.monitor.Look()
	s.budget.refresh()
	s.look(u, now)
}

// busy says whether reads run or wait, or the last look left something to be seen to.
func (b *Budget) busy() bool {
	b.mtx.Lock()
	defer b.mtx.Unlock()
	return len(b.reads)+b.waiting() > 0 || b.allowed != everyRead
}

// collector returns a function that starts a garbage collection, if none that it has
// started runs, and gives what is free back to the kernel if asked to. The other one says
// how long the last one took.
func collector() (collect func(release bool), takes func() time.Duration) {
	var runs atomic.Bool
	var took atomic.Int64
	return func(release bool) {
			if runs.CompareAndSwap(false, true) {
				go func() {
					defer runs.Store(false)
					began := time.Now()
					if release {
						debug.FreeOSMemory()
					} else {
						runtime.GC()
					}
					took.Store(int64(time.Since(began)))
				}()
			}
		}, func() time.Duration {
			return time.Duration(took.Load())
		}
}

// look stops reads if the usage says so.
func (s *backstop) look(u memory.Usage, now time.Time) {
	s.note(u, now)
	coming := float64(u.Heap)*overhead + u.Growth*reaction.Seconds()
	limit := float64(u.Limit)
	killed := u.Kill > 0 && max(coming, float64(u.Resident)) > killShare*float64(u.Kill)
	switch {
	case killed:
		s.stop(math.MaxInt, 0, u)
	case u.Limit == 0 || s.expects(u, now) <= liveShare*limit:
		if u.Cycle >= s.shows {
			s.stops = 0
			s.budget.allow(everyRead)
		}
	case u.Cycle >= s.shows || float64(u.Heap-s.heap) > growsOn*limit:
		if n := max(1, 2*s.stops); s.stop(n, pressedReads, u) {
			s.stops = n
		}
	}
	garbage := !s.hasLimit && u.Limit > 0 && u.Heap-u.Live > u.Limit/16 && float64(u.Heap)+u.Growth*s.foresight() > collectShare*limit
	if garbage || u.Cycle < s.shows {
		s.collect(killed)
	}
}

// stop stops so many reads, and lets so many small ones run. The collection that comes
// next may have begun before they ended. If no read runs and there is little garbage,
// a collection shows nothing new: what lives is not the reads'.
func (s *backstop) stop(n, allowed int, u memory.Usage) (matters bool) {
	// What is being answered has all that it needs: it is no reason for what will live.
	answered := n == math.MaxInt || float64(u.Live) > liveShare*float64(u.Limit)
	running := s.budget.stopSome(n, answered, u)
	s.budget.allow(allowed)
	if matters = running || u.Heap-u.Live > max(u.Limit, u.Kill)/16; matters {
		s.heap, s.shows = u.Heap, u.Cycle+2
	}
	return matters
}

// note takes down what the last collection has shown.
func (s *backstop) note(u memory.Usage, now time.Time) {
	if u.Cycle == s.cycle {
		return
	}
	if passed := now.Sub(s.seen).Seconds(); s.cycle > 0 && passed > 0 {
		s.growth = float64(u.Live-s.live) / passed
	}
	s.cycle, s.seen, s.live = u.Cycle, now, u.Live
}

// expects returns what will live when a stop has an effect.
func (s *backstop) expects(u memory.Usage, now time.Time) float64 {
	if s.growth <= 0 {
		return float64(u.Live)
	}
	// Not more lives than there is, and it grows on at most by what is allocated.
	grown := min(s.growth*now.Sub(s.seen).Seconds(), float64(max(0, u.Heap-u.Live)))
	return float64(u.Live) + grown + min(s.growth, u.Growth)*s.foresight()
}

// foresight returns for how many seconds memory grows on until a stop has an effect.
func (s *backstop) foresight() float64 { return max(foresight, s.takes()).Seconds() }

// stopSome stops so many reads, those first that hold much, and then the youngest, and
// those that are being answered if it has to. It says whether there are any, stopped
// before or not.
func (b *Budget) stopSome(n int, answered bool, u memory.Usage) (running bool) {
	b.mtx.Lock()
	defer b.mtx.Unlock()
	order := make([]*Read, 0, len(b.reads))
	for r := range b.reads {
		if running = running || r.leaving; !r.leaving && (answered || !r.isAnswered()) {
			order = append(order, r)
		}
	}
	running = running || len(order) > 0
	slices.SortFunc(order, stopBefore)
	for _, r := range order[:min(n, len(order))] {
		r.leaving = true
		r.Stop(r.Refusal(ReasonMemory, tryLess, "was stopped because the server was about to run out of memory (%s of %s in use); it held about %s",
			size(max(u.Live, u.Heap)), size(u.Limit), size(r.held)))
	}
	return running
}

// stopBefore is negative if a is stopped before b. Of those that have only just begun
// the youngest is the one that has done the least.
func stopBefore(a, b *Read) int {
	spared := a.spared()
	byAge := cmp.Compare(b.id, a.id)
	if spared == sparedQuick {
		byAge = -byAge
	}
	return cmp.Or(cmp.Compare(spared, b.spared()), cmp.Compare(b.bigAccount(), a.bigAccount()), byAge)
}

// How late a read is stopped.
const (
	notSpared = iota
	sparedQuick
	sparedAnswered
)

func (r *Read) spared() int {
	switch {
	case r.isAnswered():
		return sparedAnswered
	case r.bigAccount() == 0 && r.isQuick():
		return sparedQuick
	default:
		return notSpared
	}
}

// isAnswered says whether the client has some of the answer: it would be cut off.
func (r *Read) isAnswered() bool { return r.bytes.Load() > 0 }

// bigAccount returns what the read holds if that is much, or 0.
func (r *Read) bigAccount() int64 {
	if held := max(r.held, r.used.Load()); held >= bigAccount {
		return held
	}
	return 0
}

// smallOnes returns how many small reads run that are not being answered yet.
func (b *Budget) smallOnes() (n int) {
	for r := range b.reads {
		if !r.large && !r.isAnswered() {
			n++
		}
	}
	return n
}

// allow lets so many small reads run at a time, or every read.
func (b *Budget) allow(n int) {
	b.mtx.Lock()
	defer b.mtx.Unlock()
	b.allowed = n
	b.grant()
}
