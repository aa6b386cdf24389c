// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package admission decides when a request may go to the server: at once, later
// or not at all. A request needs one permit, which counts for its tenant, its
// class and the whole; it takes all three in one step, so that none is held while
// it waits for another. Who has to wait does so in a bounded queue, from which
// classes are served by weight, tenants in turn, and requests of a tenant in the
// order in which they came.
package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Class orders requests by who waits for them: the classes of querylimit, and alerts.
type Class uint8

const (
	// Alerts are queries of alert rules, which nobody may miss.
	Alerts Class = iota
	// Query is PromQL that no alert rule asks for.
	Query
	// Metadata is what autocompletion and variables read.
	Metadata
	// Bulk is what machines read in large pieces: federation and remote read.
	Bulk
	// Status is everything else.
	Status

	// NumClasses is how many there are.
	NumClasses
)

var classNames = [NumClasses]string{"alerts", "query", "metadata", "bulk", "status"}

// Classes returns every class.
func Classes() []Class { return []Class{Alerts, Query, Metadata, Bulk, Status} }

// String returns the name used in metrics and in the configuration.
func (c Class) String() string { return classNames[c] }

// ClassOptions are the options of a class.
type ClassOptions struct {
	// Weight is the share of permits that the class gets while others wait, too;
	// at least 1.
	Weight int
	// Max bounds the permits of the class; 0 means no bound.
	Max int
}

// Options is what a Controller works by. A bound of 0 means none.
type Options struct {
	// Max is the number of permits. 0 admits everything at once.
	Max int
	// TenantMax bounds the permits of a tenant; Tenants has those that differ.
	TenantMax int
	Tenants   map[string]int
	// Queue bounds how many requests of a class wait, TenantQueue how many of a tenant
	// in it; 0 means that none waits.
	Queue, TenantQueue int
	// Wait is how long a request waits at most.
	Wait time.Duration
	// Replicas is how many share the memory of the server; at least 1.
	Replicas int
	Classes  [NumClasses]ClassOptions
}

// DefaultOptions returns options that admit all that the server has memory for but more
// than four of Bulk at a time, with the weights of classes and the queue that apply once Max is set.
func DefaultOptions() Options {
	return Options{
		Queue: 200, TenantQueue: 100, Wait: 10 * time.Second, Replicas: 1,
		Classes: [NumClasses]ClassOptions{Alerts: {Weight: 8}, Query: {Weight: 4}, Metadata: {Weight: 2}, Bulk: {Weight: 1, Max: 4}, Status: {Weight: 1}},
	}
}

// Validate returns an error that says what is wrong with o.
func (o *Options) Validate() error {
	if o.Max < 0 || o.TenantMax < 0 || o.Queue < 0 || o.TenantQueue < 0 || o.Wait < 0 {
		return errors.New("a bound is negative: use 0 for none, or a positive number")
	}
	if o.Replicas < 1 {
		return fmt.Errorf("replicas is %d: use at least 1", o.Replicas)
	}
	for _, c := range Classes() {
		if o.Classes[c].Weight < 1 || o.Classes[c].Max < 0 {
			return fmt.Errorf("class %s has weight %d and max %d: use a weight of at least 1, and a max of 0 for none", c, o.Classes[c].Weight, o.Classes[c].Max)
		}
	}
	for name, n := range o.Tenants {
		if n < 1 {
			return fmt.Errorf("tenant %q has %d permits: use at least 1", name, n)
		}
	}
	return nil
}

func (o *Options) tenantMax(name string) int {
	if n, ok := o.Tenants[name]; ok {
		return n
	}
	return o.TenantMax
}

// Shed says why there is no room for a request.
type Shed struct {
	// Tenant is set if the tenant has all that it may have, and not set if the
	// server has.
	Tenant bool
	// Class is set, if the tenant has not, to the class that has all that it may
	// have.
	Class *Class
	// Room is set if it is memory that lacks, and Who if whoever asks has half of all
	// permits.
	Room, Who bool
	// Queued is set if the request has waited as long as it may; otherwise the
	// queue was full.
	Queued bool
	// Limit is how many requests may run.
	Limit int
	// Waited is how long.
	Waited time.Duration
}

func (r *Shed) Error() string {
	who := "the server"
	switch {
	case r.Tenant:
		who = "the tenant"
	case r.Class != nil:
		who = "the class " + r.Class.String()
	case r.Who:
		who = "the user or dashboard"
	}
	text := fmt.Sprintf("%s has %d requests in flight, which is all that may be", who, r.Limit)
	if r.Room {
		text = "requests in flight take the memory that the server has for them"
	}
	if r.Queued {
		return text + fmt.Sprintf(", and none ended within %s", r.Waited)
	}
	return text + ", and the queue is full"
}

// Need is what else a request takes with its permit.
type Need struct {
	// Who asks, if that is known: nobody gets more than half of all permits.
	Who string
	// Bytes of the server's memory. Less than LightBytes is not counted, so that what
	// is light never waits for what is not.
	Bytes int64
}

// LightBytes is what no server is short of.
const LightBytes = 4 << 20

// Controller hands out permits. Safe for concurrent use. It starts no goroutines.
type Controller struct {
	mu   sync.Mutex
	opts Options
	held int
	// room is what requests may take of the server's memory together, 0 if that is not
	// known, and taken what they do.
	room, taken int64
	who         map[string]int // permits by who holds them
	classes     [NumClasses]classState
	tenants     map[string]*tenantState // those that hold or wait for permits
	// now is the largest passed of a class when it was served: where a class that
	// was idle begins, so that it neither goes before all others for what it did
	// not use, nor pays for what it used while nobody else waited.
	now float64
	seq uint64 // of the newest waiter
}

type classState struct {
	held, queued int
	// passed grows with every permit by 1/weight; the class with the least is
	// next.
	passed float64
	// turns are the tenants that wait, the next one first.
	turns []*tenantQueue
}

type tenantState struct {
	held, queued int
	queues       [NumClasses]*tenantQueue
}

// tenantQueue holds the requests of a tenant in a class.
type tenantQueue struct {
	name    string
	waiters []*waiter
}

type waiter struct {
	seq  uint64
	need Need
	done chan struct{} // closed when the request has a permit
}

// New returns a Controller with these options, which must be valid.
func New(opts Options) *Controller {
	return &Controller{opts: opts, tenants: map[string]*tenantState{}, who: map[string]int{}}
}

// SetOptions replaces the options, which must be valid. Permits that are held
// stay held.
func (c *Controller) SetOptions(opts Options) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opts = opts
	c.grant()
}

// SetRoom says how many bytes of the server's memory requests may take together; 0 means
// no bound. One that takes more than all has it to itself.
func (c *Controller) SetRoom(bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.room = bytes
	c.grant()
}

// Room returns how many bytes of the server's memory requests may take, and do.
func (c *Controller) Room() (room, taken int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.room, c.taken
}

// Usage returns how many permits of a class are held, and how many requests
// wait for one.
func (c *Controller) Usage(class Class) (held, queued int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.classes[class].held, c.classes[class].queued
}

// Acquire waits for a permit, and for what else the request needs. How long it may wait
// counts from what since, if not nil, returns: when the last of those came whom the
// request is for. The caller calls release once when the request is over. The error is a
// *Shed, or that of ctx.
func (c *Controller) Acquire(ctx context.Context, tenant string, class Class, need Need, since func() time.Time) (release func(), err error) {
	if need.Bytes < LightBytes {
		need.Bytes = 0
	}
	c.mu.Lock()
	t := c.tenant(tenant)
	// Whoever waits does not fit, or grant would have served it.
	if c.fits(t, tenant, class) && c.grants(class, &need) {
		c.take(t, class, &need)
		c.mu.Unlock()
		return c.releaseOnce(tenant, class, need), nil
	}
	if !c.mayWait(t, class) {
		shed := c.shed(t, tenant, class, &need)
		c.forget(tenant, t)
		c.mu.Unlock()
		return nil, shed
	}
	w := c.enqueue(t, tenant, class, need)
	wait := c.opts.Wait
	c.mu.Unlock()
	if err := c.wait(ctx, w, wait, since, tenant, class); err != nil {
		return nil, err
	}
	return c.releaseOnce(tenant, class, need), nil
}

func (c *Controller) wait(ctx context.Context, w *waiter, wait time.Duration, since func() time.Time, tenant string, class Class) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	var err error
	for left := wait; left > 0 && err == nil; {
		select {
		case <-w.done:
			return nil
		case <-timer.C:
			if left = 0; since != nil {
				left = time.Until(since().Add(wait))
			}
			timer.Reset(max(left, 0))
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tenant(tenant)
	select {
	case <-w.done: // Just now.
		if err != nil {
			c.put(tenant, class, &w.need)
		}
		return err
	default:
	}
	c.dequeue(t, class, w)
	if err == nil {
		shed := c.shed(t, tenant, class, &w.need)
		shed.Queued, shed.Waited = true, wait
		err = shed
	}
	c.forget(tenant, t)
	return err
}

// mayWait reports whether one more request of the tenant and class may wait.
func (c *Controller) mayWait(t *tenantState, class Class) bool {
	q := t.queues[class]
	return c.classes[class].queued < c.opts.Queue && (q == nil || len(q.waiters) < c.opts.TenantQueue)
}

// shed says what keeps a request out: the narrower bound, if both do.
func (c *Controller) shed(t *tenantState, tenant string, class Class, need *Need) *Shed {
	if most := c.opts.tenantMax(tenant); most > 0 && t.held >= most {
		return &Shed{Tenant: true, Limit: most}
	}
	if most := c.opts.Classes[class].Max; most > 0 && c.classes[class].held >= most {
		return &Shed{Class: &class, Limit: most}
	}
	if c.opts.Max > 0 && c.held >= c.opts.Max {
		return &Shed{Limit: c.opts.Max}
	}
	return &Shed{Room: !c.hasRoom(need), Who: c.hasRoom(need), Limit: c.share()}
}

func (c *Controller) tenant(name string) *tenantState {
	t, ok := c.tenants[name]
	if !ok {
		t = &tenantState{}
		c.tenants[name] = t
	}
	return t
}

// forget drops a tenant that has nothing, so that names do not pile up.
func (c *Controller) forget(name string, t *tenantState) {
	if t.held == 0 && t.queued == 0 {
		delete(c.tenants, name)
	}
}

// fits reports whether a permit is free for this tenant and class.
func (c *Controller) fits(t *tenantState, tenant string, class Class) bool {
	if c.opts.Max > 0 && c.held >= c.opts.Max {
		return false
	}
	if most := c.opts.Classes[class].Max; most > 0 && c.classes[class].held >= most {
		return false
	}
	most := c.opts.tenantMax(tenant)
	return most == 0 || t.held < most
}

// grants reports whether a request may have what it needs besides a permit. Alerts
// always may.
func (c *Controller) grants(class Class, need *Need) bool {
	return class == Alerts || c.hasRoom(need) && (need.Who == "" || c.opts.Max < 2 || c.who[need.Who] < c.share())
}

func (c *Controller) hasRoom(need *Need) bool {
	return need.Bytes == 0 || c.room == 0 || c.taken == 0 || c.taken+need.Bytes <= c.room/int64(max(c.opts.Replicas, 1))
}

// share is how many permits one who asks may have.
func (c *Controller) share() int { return (c.opts.Max + 1) / 2 }

func (c *Controller) take(t *tenantState, class Class, need *Need) {
	c.taken += need.Bytes
	if need.Who != "" {
		c.who[need.Who]++
	}
	c.held++
	c.classes[class].held++
	t.held++
}

// put gives a permit back and grants it to who is next.
func (c *Controller) put(tenant string, class Class, need *Need) {
	t := c.tenants[tenant]
	c.taken -= need.Bytes
	if need.Who != "" {
		c.who[need.Who]--
		if c.who[need.Who] == 0 {
			delete(c.who, need.Who)
		}
	}
	c.held--
	c.classes[class].held--
	t.held--
	c.forget(tenant, t)
	c.grant()
}

func (c *Controller) releaseOnce(tenant string, class Class, need Need) func() {
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.put(tenant, class, &need)
	})
}

func (c *Controller) enqueue(t *tenantState, tenant string, class Class, need Need) *waiter {
	s := &c.classes[class]
	if s.queued == 0 {
		s.passed = max(s.passed, c.now)
	}
	q := t.queues[class]
	if q == nil {
		q = &tenantQueue{name: tenant}
		t.queues[class] = q
	}
	if len(q.waiters) == 0 {
		s.turns = append(s.turns, q)
	}
	c.seq++
	w := &waiter{seq: c.seq, need: need, done: make(chan struct{})}
	q.waiters = append(q.waiters, w)
	s.queued++
	t.queued++
	return w
}

func (c *Controller) dequeue(t *tenantState, class Class, w *waiter) {
	s, q := &c.classes[class], t.queues[class]
	q.waiters = slices.DeleteFunc(q.waiters, func(other *waiter) bool { return other == w })
	if len(q.waiters) == 0 {
		s.turns = slices.DeleteFunc(s.turns, func(other *tenantQueue) bool { return other == q })
	}
	s.queued--
	t.queued--
}

// next returns the request of a class that is next, and its tenant's turn, or -1. Of a
// tenant's requests it is the first that may have what it needs, of whoever holds least.
func (c *Controller) next(class Class) (next *waiter, turn int) {
	for i, q := range c.classes[class].turns {
		if !c.fits(c.tenants[q.name], q.name, class) {
			continue
		}
		for _, w := range q.waiters {
			if c.grants(class, &w.need) && (next == nil || c.who[w.need.Who] < c.who[next.need.Who]) {
				next = w
			}
		}
		if next != nil {
			return next, i
		}
	}
	return nil, -1
}

// grant hands out all permits that can be.
func (c *Controller) grant() {
	for {
		var w *waiter
		best, turn := NumClasses, -1
		for _, class := range Classes() {
			if next, i := c.next(class); next != nil && (w == nil || c.classes[class].passed < c.classes[best].passed) {
				w, best, turn = next, class, i
			}
		}
		if w == nil {
			return
		}
		s := &c.classes[best]
		q := s.turns[turn]
		t := c.tenants[q.name]
		c.dequeue(t, best, w)
		if len(q.waiters) > 0 { // Behind the other tenants.
			s.turns = append(slices.Delete(s.turns, turn, turn+1), q)
		}
		c.now = max(c.now, s.passed)
		s.passed += 1 / float64(c.opts.Classes[best].Weight)
		c.take(t, best, &w.need)
		close(w.done)
	}
}
