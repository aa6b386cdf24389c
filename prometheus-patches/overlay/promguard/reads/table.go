// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/prometheus/storage"
)

// Table holds the reads that run and wait. Safe for concurrent use.
type Table struct {
	// Budget is what reads reserve their memory from, or nil.
	Budget *Budget
	// Procs is what reads share the processors by, or nil.
	Procs *Procs

	mtx   sync.Mutex
	next  uint64
	reads map[uint64]*Read
}

// NewTable returns an empty table of reads that share the budget; nil means
// that memory has no bound.
func NewTable(budget *Budget) *Table {
	return &Table{Budget: budget, reads: map[uint64]*Read{}}
}

// Add enters a read and returns it with its context. The context ends when the
// read is stopped, and when remove is called, which the caller does once, when
// the last byte has been written or given up.
func (t *Table) Add(ctx context.Context, info Info, limits Limits) (read *Read, readCtx context.Context, remove func()) {
	r := &Read{Info: info, Limits: limits, Started: time.Now(), done: make(chan struct{})}
	if !limits.Exempt {
		r.budget, r.procs = t.Budget, t.Procs
	}
	ctx = storage.WithReadAccount(ctx, r)
	ctx, r.cancel = context.WithCancelCause(ctx)
	t.mtx.Lock()
	t.next++
	r.id = t.next
	t.reads[r.id] = r
	t.mtx.Unlock()
	return r, ctx, func() {
		t.mtx.Lock()
		delete(t.reads, r.id)
		t.mtx.Unlock()
		r.cancel(nil)
		r.Wait()
		if r.budget != nil {
			r.budget.release(r)
		}
		close(r.done)
	}
}

// Admit waits for the read's turn, with nothing in its hands: for memory and a place in
// the pool, which the caller gives back through leave. If its turn does not come before
// the timer fires, the read is stopped, and the error says why.
func (t *Table) Admit(ctx context.Context, r *Read, pool *Pool, timeout <-chan time.Time, wait time.Duration) (leave func(), err error) {
	r.running.Store(false)
	r.Wait() // A read that has to wait has run on a processor until then.
	r.answer.CompareAndSwap(runsAgain, undecided)
	var at *place
	var why string
	if r.budget != nil {
		at, why = r.budget.wait(ctx, r, pool, timeout)
	} else if at = pool.acquire(ctx, r.long.Load(), timeout); at == nil {
		why = pool.taken()
	}
	if at == nil {
		return nil, t.refuse(ctx, r, why, wait)
	}
	r.place.Store(at)
	r.running.Store(true)
	return at.leave, nil
}

func (*Table) refuse(ctx context.Context, r *Read, why string, wait time.Duration) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	stop := r.Refusal(ReasonQueue, "Try again later", "had to wait longer than --guard.queue-timeout=%s, or behind too many others, because %s", wait, why)
	r.Stop(stop)
	return stop
}

// Len returns how many reads run or wait.
func (t *Table) Len() int {
	t.mtx.Lock()
	defer t.mtx.Unlock()
	return len(t.reads)
}

// Running returns how many reads run whose answer has not begun: one that is sent may wait
// for its client.
func (t *Table) Running() (n int) {
	t.mtx.Lock()
	defer t.mtx.Unlock()
	for _, r := range t.reads {
		if r.running.Load() && !r.isAnswered() {
			n++
		}
	}
	return n
}

// Status is what a read looks like from outside.
type Status struct {
	ID            uint64            `json:"id"`
	State         string            `json:"state"` // running or waiting
	Method        string            `json:"method"`
	Endpoint      string            `json:"endpoint"`
	Expressions   []string          `json:"expressions"`
	Client        string            `json:"client"`
	UserAgent     string            `json:"userAgent"`
	Origin        map[string]string `json:"origin,omitempty"`
	Started       time.Time         `json:"started"`
	AgeSeconds    float64           `json:"ageSeconds"`
	Series        int64             `json:"series"`
	Bytes         int64             `json:"bytes"`
	ReservedBytes int64             `json:"reservedBytes"`
	AllowedBytes  int64             `json:"allowedBytes,omitempty"` // Most that it may reserve.
}

// List returns the reads that run and wait, the oldest first.
func (t *Table) List() []Status {
	t.mtx.Lock()
	reads := slices.Collect(maps.Values(t.reads))
	t.mtx.Unlock()
	slices.SortFunc(reads, func(a, b *Read) int { return cmp.Compare(a.id, b.id) })
	list := make([]Status, len(reads))
	for i, r := range reads {
		list[i] = r.status()
	}
	return list
}

func (r *Read) status() Status {
	state := "waiting"
	if r.running.Load() {
		state = "running"
	}
	return Status{
		ID: r.id, State: state,
		Method: r.Method, Endpoint: r.Endpoint, Expressions: excerpts(r.Expressions),
		Client: r.Client, UserAgent: r.UserAgent, Origin: r.Origin,
		Started: r.Started.UTC(), AgeSeconds: time.Since(r.Started).Seconds(),
		Series: r.series.Load(), Bytes: r.bytes.Load(), ReservedBytes: r.budget.heldBy(r), AllowedBytes: r.budget.allowedTo(r),
	}
}

// excerpts cuts texts that are too long to be read by people.
func excerpts(texts []string) []string {
	const most = 1 << 10
	cut := make([]string, len(texts))
	for i, t := range texts {
		if cut[i] = t; len(t) > most {
			cut[i] = t[:most] + "..."
		}
	}
	return cut
}

// Stop stops the read with the given id and returns what it was at that moment,
// and a channel that is closed when all it held has been given back. It returns
// false if there is no such read.
func (t *Table) Stop(id uint64, s *Stop) (Status, <-chan struct{}, bool) {
	t.mtx.Lock()
	r := t.reads[id]
	t.mtx.Unlock()
	if r == nil {
		return Status{}, nil, false
	}
	status := r.status()
	r.Stop(s)
	return status, r.done, true
}

// StopAll stops every read, and waits for at most so long until they have ended.
func (t *Table) StopAll(s *Stop, wait time.Duration) {
	t.mtx.Lock()
	stopped := slices.Collect(maps.Values(t.reads))
	t.mtx.Unlock()
	for _, r := range stopped {
		r.Stop(s)
	}
	timeout := time.After(wait)
	for _, r := range stopped {
		select {
		case <-r.done:
		case <-timeout:
			return
		}
	}
}
