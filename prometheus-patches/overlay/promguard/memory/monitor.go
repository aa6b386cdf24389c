// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package memory knows how much memory the process may use, how much it uses, and
// how near the one is to the other.
package memory

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Usage is what the process uses at a moment, in bytes.
type Usage struct {
	Limit    int64   // what the process may use; 0: nobody knows
	Live     int64   // heap after the last collection, stacks, and the runtime's own
	Heap     int64   // heap objects now, dead ones included
	Resident int64   // what the kernel cannot take back: of the process, or of its cgroup if that is the process's own
	Kill     int64   // Resident at which the kernel kills; 0: nobody knows
	Growth   float64 // bytes a second that are allocated, smoothed: Heap grows by that until the next collection
	Cycle    uint64  // collections so far
	Reserved int64   // what compactions that go on need at their peak

	// own is what the runtime has besides of heap objects.
	own int64
	// allocated is the sum of all that was ever allocated.
	allocated uint64
	// liveGrowth is by how much Live grows in a second, from one collection to the next.
	liveGrowth float64
	// sinceCycle is how long ago the last collection was seen.
	sinceCycle time.Duration
	// transient is what of Live is given back before anything else is.
	transient int64
	// series is what all series took that were ever created, and unseen those of them that
	// the last collection may not have seen.
	series, unseen int64
	// planned is what the next compaction of the head is going to need.
	planned int64
	// before is what would live without the compactions that go on.
	before int64
}

// liveNow estimates what lives now. The next collection will tell; it may come after
// all the limit was used up.
func (u Usage) liveNow() int64 {
	grown := max(int64(u.liveGrowth*u.sinceCycle.Seconds()), u.unseen)
	return min(u.Live+max(0, grown), max(u.Live, u.Heap+u.own)) - u.transient
}

// expected estimates what will live when the compactions that go on, or else the next one of
// the head, take the most. Of the former some lives already.
func (u Usage) expected() int64 {
	if u.Reserved > 0 {
		return max(u.liveNow(), u.before+max(u.Reserved, u.planned))
	}
	return u.liveNow() + u.planned
}

// hasRoom says whether so many bytes more can live without need to refuse anything. Where
// memory is not tight nobody has to wait.
func (u Usage) hasRoom(bytes int64) bool {
	if u.Kill > 0 && float64(u.Resident) >= residentShares.begin[Tight]*float64(u.Kill) {
		return false
	}
	live, limit := u.liveNow()+u.Reserved, float64(u.Limit)
	return u.Limit == 0 || float64(live) < liveShares.begin[Tight]*limit || float64(live+bytes) < liveShares.begin[Critical]*limit
}

// Alarming says that what lives has all but reached the limit.
func (u Usage) Alarming() bool {
	return u.Limit > 0 && float64(u.liveNow()) >= alarm*float64(u.Limit)
}

const (
	// fast is how often the Monitor looks while memory is needed or may become scarce:
	// the runtime allocates some gigabytes a second.
	fast = 50 * time.Millisecond
	// slow is how often it looks otherwise, and how often it reads the limit.
	slow = time.Second
	// calm is the share of a limit below which it looks slowly.
	calm = 0.5
	// smooth is how long a change takes to show in Growth for the most part.
	smooth = 250 * time.Millisecond
)

// Monitor looks at the memory of the process from time to time. A nil Monitor has
// nothing to say: its state is OK.
type Monitor struct {
	limit    func() int64
	read     func() Usage
	resident func() int64
	kill     func() int64

	usage  atomic.Pointer[Usage]
	state  atomic.Int32
	needed atomic.Int32
	hurry  chan struct{}
	series atomic.Int64 // What those take that were ever created, and below at the last look for their sake.
	looked atomic.Int64
	waits  atomic.Int64 // The bytes that were last refused by Room.
	// reserved is of compactions that go on. Whoever holds locks of reads may ask for it.
	reserved atomic.Int64

	seeing   sync.Mutex
	lastSee  time.Time // the last look, and below when a collection was first seen
	cycleAt  time.Time
	liveAt   int64
	seriesAt int64

	mu        sync.Mutex
	machine   machine
	onChange  []func(old, current State, u Usage)
	transient func() int64
	planned   func() int64
	before    int64 // What lived before the first of the compactions that go on, less Usage.series.
}

// NewMonitor returns a Monitor of a process that may use limit() bytes, which is
// asked every second; 0 is no limit.
func NewMonitor(limit func() int64) *Monitor {
	s := newSource()
	return newMonitor(limit, s.read, s.resident, s.kill)
}

func newMonitor(limit func() int64, read func() Usage, resident, kill func() int64) *Monitor {
	m := &Monitor{limit: limit, read: read, resident: resident, kill: kill, hurry: make(chan struct{}, 1)}
	m.machine.since = time.Now()
	u := read()
	u.Resident, u.Limit, u.Kill = resident(), limit(), kill()
	m.usage.Store(&u)
	m.lastSee, m.cycleAt, m.liveAt = time.Now(), time.Now(), u.Live
	return m
}

// Run looks until the context ends.
func (m *Monitor) Run(ctx context.Context) {
	if m == nil {
		return
	}
	limitsAt := time.Now()
	for {
		wait := slow
		if m.needed.Load() > 0 || m.scarce() {
			wait = fast
		}
		select {
		case <-ctx.Done():
			return
		case <-m.hurry:
		case <-time.After(wait):
		}
		u := *m.usage.Load()
		if now := time.Now(); now.Sub(limitsAt) >= slow {
			limitsAt = now
			u.Limit, u.Kill = m.limit(), m.kill()
		}
		m.look(u.Limit, u.Kill)
	}
}

// Look reads what the runtime says, and returns what is used now: what the kernel says is
// as old as Run's last look, and so is the state. It costs some microseconds.
func (m *Monitor) Look() Usage {
	if m == nil {
		return Usage{}
	}
	m.see(nil)
	return m.Usage()
}

// see reads what the runtime says. The rest is as before, but for what renew changes.
func (m *Monitor) see(renew func(*Usage)) Usage {
	m.seeing.Lock()
	defer m.seeing.Unlock()
	now, u, last := time.Now(), m.read(), m.usage.Load()
	u.Resident, u.Limit, u.Kill = last.Resident, last.Limit, last.Kill
	if renew != nil {
		renew(&u)
	}
	u.Growth, u.liveGrowth = last.Growth, last.liveGrowth
	if passed := now.Sub(m.lastSee).Seconds(); passed > 0 {
		weight := min(1, passed/smooth.Seconds())
		u.Growth += weight * (float64(u.allocated-last.allocated)/passed - last.Growth)
	}
	if passed := now.Sub(m.cycleAt).Seconds(); u.Cycle != last.Cycle && passed > 0 {
		// Half of it is from the collections before: one alone says little.
		u.liveGrowth = (last.liveGrowth + float64(u.Live-m.liveAt)/passed) / 2
		m.cycleAt, m.liveAt, m.seriesAt = now, u.Live, last.series
	}
	u.sinceCycle = now.Sub(m.cycleAt)
	u.series = m.series.Load()
	u.unseen = u.series - m.seriesAt
	m.lastSee = now
	m.mu.Lock()
	if m.transient != nil {
		u.transient = m.transient() / 2
	}
	if m.planned != nil {
		u.planned = m.planned()
	}
	u.Reserved, u.before = m.reserved.Load(), m.before+u.series
	m.mu.Unlock()
	m.usage.Store(&u)
	return u
}

// look reads the usage and changes the state.
func (m *Monitor) look(limit, kill int64) {
	resident := m.resident()
	u := m.see(func(u *Usage) { u.Resident, u.Limit, u.Kill = resident, limit, kill })
	m.mu.Lock()
	old := m.machine.state
	changed := m.machine.next(u, time.Now())
	current, tell := m.machine.state, m.onChange
	m.mu.Unlock()
	if !changed {
		return
	}
	m.state.Store(int32(current))
	for _, f := range tell {
		f(old, current, u)
	}
}

// scarce says that memory may become scarce soon, or is.
func (m *Monitor) scarce() bool {
	u := m.usage.Load()
	return m.State() != OK ||
		float64(u.liveNow()) > calm*float64(u.Limit) && u.Limit > 0 ||
		float64(u.Resident) > calm*float64(u.Kill) && u.Kill > 0
}

// Need makes the Monitor look every 50 ms until done is called.
func (m *Monitor) Need() (done func()) {
	if m == nil {
		return func() {}
	}
	if m.needed.Add(1) == 1 {
		m.lookNow()
	}
	return sync.OnceFunc(func() { m.needed.Add(-1) })
}

// lookNow makes Run look at once.
func (m *Monitor) lookNow() {
	select {
	case m.hurry <- struct{}{}:
	default:
	}
}

// Created tells the Monitor that a series was created that takes so many bytes: they live
// from now on, whenever the next collection comes. One scrape may bring all that there was
// memory for, so that the Monitor looks when they are a hundredth of the limit.
func (m *Monitor) Created(bytes int64) {
	if m == nil {
		return
	}
	series, looked := m.series.Add(bytes), m.looked.Load()
	if limit := m.usage.Load().Limit; limit > 0 && series-looked > limit/100 && m.looked.CompareAndSwap(looked, series) {
		m.lookNow()
	}
}

// Plan tells the Monitor what the next compaction of the head is going to need. New series
// are refused while that is left.
func (m *Monitor) Plan(needs func() int64) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.planned = needs
}

// Transient tells the Monitor what of the memory is given back before the state has
// to say anything: what reads hold. As that is an account which may be twice the
// truth, half of it counts.
func (m *Monitor) Transient(held func() int64) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.transient = held
}

// OnChange calls f after each change of state, from one goroutine.
func (m *Monitor) OnChange(f func(old, current State, u Usage)) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.onChange = append(slices.Clip(m.onChange), f)
}

// Usage returns what was last seen.
func (m *Monitor) Usage() Usage {
	if m == nil {
		return Usage{}
	}
	u := *m.usage.Load()
	u.Reserved = m.reserved.Load()
	return u
}

// Reserve takes bytes from what others may plan with, until done is called.
func (m *Monitor) Reserve(bytes int64) (done func()) {
	if m == nil {
		return func() {}
	}
	u := m.Look()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.reserved.Load() == 0 {
		m.before = u.liveNow() - u.series
	}
	m.reserved.Add(bytes)
	return sync.OnceFunc(func() { m.reserved.Add(-bytes) })
}

// Room reports whether so many bytes more can be used without need to refuse anything.
// Whoever has to wait asks again; 0 bytes say that nobody waits any more.
func (m *Monitor) Room(bytes int64) bool {
	if m == nil {
		return true
	}
	room := m.Look().hasRoom(bytes)
	if room {
		bytes = 0
	}
	m.waits.Store(bytes)
	return room
}

// Tight reports whether what can be made smaller should be.
func (m *Monitor) Tight() bool { return m.State() >= Tight }

// State returns the state, at the cost of reading a word.
func (m *Monitor) State() State {
	if m == nil {
		return OK
	}
	return State(m.state.Load())
}

// Status is what the API tells.
type Status struct {
	State    State     `json:"state"`
	Since    time.Time `json:"since"`
	Limit    int64     `json:"limit"`
	Live     int64     `json:"live"`
	Heap     int64     `json:"heap"`
	Resident int64     `json:"resident"`
	Kill     int64     `json:"kill"`
	Growth   int64     `json:"growth"`
}

// Status returns what was last seen, for the API, or nil.
func (m *Monitor) Status() *Status {
	if m == nil {
		return nil
	}
	u := m.Usage()
	m.mu.Lock()
	defer m.mu.Unlock()
	return &Status{
		State: m.machine.state, Since: m.machine.since.UTC().Truncate(time.Millisecond),
		Limit: u.Limit, Live: u.Live, Heap: u.Heap, Resident: u.Resident, Kill: u.Kill, Growth: int64(u.Growth),
	}
}
