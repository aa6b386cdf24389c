// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package spareconn keeps a server's health checks, metrics and alerts in reach
// when its connections are used up.
//
// Prometheus accepts --web.max-connections connections and lets all others wait
// in the kernel, those of the kubelet's probes among them: as many clients that
// are idle or slow make it look dead, and it is killed. Here a connection gets to the
// server when its client has said something. Until then it waits where it takes little,
// and the one that has waited for longest is closed when there are too many. One on which
// no request runs any more is closed when another one needs its room. If requests run on
// all, some more connections are accepted for what must never wait.
package spareconn

import (
	"container/list"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// lifetime bounds a request over a spare connection. Scrapes and probes give up
// earlier.
const lifetime = 30 * time.Second

// beginning is how long a request may take from its first byte to its handler.
const beginning = time.Second

// served are the paths that are answered over spare connections.
var served = []string{"/-/", "/metrics", "/api/v1/rules", "/api/v1/alerts", "/api/v1/status/guard", "/api/v1/status/guard/", "/guard", "/guard/"}

// Pool holds the connections of a server. Safe for concurrent use.
type Pool struct {
	most     int // Connections on which requests run.
	spare    int
	waiting  int // Connections whose client has not said anything.
	spared   prometheus.Counter
	refused  prometheus.Counter
	replaced prometheus.Counter

	mtx  sync.Mutex
	room *sync.Cond // A connection has been closed, or its request has ended.
	open int        // Connections that the server has.
	// spares are how many of those on which requests run are spare.
	spares int
	// silent are the connections that the server does not have yet. On unused and idle
	// ones no request runs; on the unused ones none ever has. Those are first that have
	// been so for longest.
	silent, unused, idle *list.List
}

// NewPool returns a pool of at most so many connections on which requests run, some to
// spare for what must never wait, and so many that wait for their client's first byte:
// each takes 8 KiB.
func NewPool(most, spare, waiting int, reg prometheus.Registerer) *Pool {
	factory := promauto.With(reg)
	p := &Pool{
		most:    most,
		spare:   spare,
		waiting: waiting,
		silent:  list.New(),
		unused:  list.New(),
		idle:    list.New(),
		spared: factory.NewCounter(prometheus.CounterOpts{
			Name: "prometheus_guard_spare_connections_accepted_total",
			Help: "Connections that were accepted although requests ran on --web.max-connections others.",
		}),
		refused: factory.NewCounter(prometheus.CounterOpts{
			Name: "prometheus_guard_spare_connections_refused_total",
			Help: "Requests over such connections that were refused because they may wait.",
		}),
		replaced: factory.NewCounter(prometheus.CounterOpts{
			Name: "prometheus_guard_idle_connections_closed_total",
			Help: "Connections without a request that were closed because others needed their room.",
		}),
	}
	p.room = sync.NewCond(&p.mtx)
	return p
}

// Extra is by how many connections the listeners have to take more.
func (p *Pool) Extra() int {
	if p == nil {
		return 0
	}
	return p.spare + p.waiting
}

// Bound makes the server take its connections from the pool, and returns the
// listeners that it has to serve. Paths begin with prefix. A nil *Pool leaves all
// as it is.
func (p *Pool) Bound(s *http.Server, prefix string, listeners []net.Listener) []net.Listener {
	if p == nil {
		return listeners
	}
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, ours(c))
	}
	s.ConnState = func(c net.Conn, state http.ConnState) { p.note(ours(c), state) }
	s.Handler = p.handler(strings.TrimSuffix(prefix, "/"), s.Handler)
	bound := make([]net.Listener, len(listeners))
	for i, l := range listeners {
		bound[i] = &listener{Listener: l, pool: p, patience: s.ReadTimeout, spoken: make(chan accepted), closed: make(chan struct{})}
	}
	return bound
}

type connKey struct{}

// ours returns the pool's connection below the one that a server has.
func ours(c net.Conn) *conn {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	return c.(*conn)
}

// listener accepts connections whose clients have said something.
type listener struct {
	net.Listener
	pool     *Pool
	patience time.Duration // How long a client may say nothing. 0: for ever.
	begin    sync.Once
	spoken   chan accepted
	end      sync.Once
	closed   chan struct{}
}

type accepted struct {
	conn *conn
	err  error
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	l.begin.Do(func() { go l.acceptAll() })
	for {
		select {
		case a := <-l.spoken:
			if a.err != nil {
				return nil, a.err
			}
			if l.pool.enter(a.conn) {
				return a.conn, nil
			}
		case <-l.closed:
			return nil, net.ErrClosed
		}
	}
}

// Close implements net.Listener. It closes the connections that the server does not have
// yet.
func (l *listener) Close() error {
	err := l.Listener.Close()
	l.end.Do(func() {
		close(l.closed)
		l.pool.closeSilent(l)
	})
	return err
}

func (l *listener) acceptAll() {
	for {
		inner, err := l.Listener.Accept()
		if err != nil {
			select {
			case l.spoken <- accepted{err: err}: // The server comes again if it may pass.
				continue
			case <-l.closed:
				return
			}
		}
		if c := l.pool.accept(inner, l); c != nil {
			go c.listen()
		}
	}
}

// conn is a connection of a pool. Its fields are guarded by the pool's mtx but for those
// that are said not to be.
type conn struct {
	net.Conn // Not guarded.
	pool     *Pool
	from     *listener
	first    [1]byte // What the client has said first. For who reads.
	hasFirst bool    // It is not read yet.
	// spoke is when the client began to send what no handler has seen yet, in Unix
	// nanoseconds. Not guarded.
	spoke  atomic.Int64
	silent bool // The server does not have it yet.
	closed bool
	state  http.ConnState
	used   bool
	// requests is how many handlers run.
	requests int
	// spare says that there was room on no other when a request began.
	spare bool
	// answered says that a handler has run since the connection was idle: what it
	// wrote may not have been sent yet.
	answered bool
	// place is where the connection is in the pool's lists, or nil.
	place *list.Element
}

// listen waits for the client's first byte.
func (c *conn) listen() {
	if c.from.patience > 0 {
		_ = c.SetReadDeadline(time.Now().Add(c.from.patience)) // It fails if it is closed.
	}
	if _, err := io.ReadFull(c.Conn, c.first[:]); err != nil {
		c.Close()
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	c.hasFirst = true
	c.spoke.Store(time.Now().UnixNano())
	select {
	case c.from.spoken <- accepted{conn: c}:
	case <-c.from.closed:
		c.Close()
	}
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	if c.hasFirst && len(b) > 0 {
		c.hasFirst = false
		return copy(b, c.first[:]), nil
	}
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.spoke.CompareAndSwap(0, time.Now().UnixNano())
	}
	return n, err
}

// list returns the list in which the connection is while no request runs on it.
func (c *conn) list() *list.List {
	switch {
	case c.silent:
		return c.pool.silent
	case c.used:
		return c.pool.idle
	default:
		return c.pool.unused
	}
}

// accept takes in a connection whose client has not said anything yet, and closes the one
// that has been such for longest if there are too many. It returns nil if the listener is
// closed.
func (p *Pool) accept(inner net.Conn, l *listener) *conn {
	c := &conn{Conn: inner, pool: p, from: l, silent: true}
	var replaced *conn
	p.mtx.Lock()
	select {
	case <-l.closed:
		p.mtx.Unlock()
		inner.Close()
		return nil
	default:
	}
	c.file()
	if p.silent.Len() > p.waiting {
		if replaced = first(p.silent); replaced != nil {
			replaced.unfile()
		}
	}
	p.mtx.Unlock()
	p.replace(replaced)
	return c
}

func (p *Pool) replace(c *conn) {
	if c != nil {
		p.replaced.Inc()
		c.Close()
	}
}

// enter gives the server a connection whose client has said something, and closes
// another one in its favour if there are too many. It waits if requests run or begin on
// all and the spare ones, and returns false if c was closed meanwhile.
func (p *Pool) enter(c *conn) bool {
	p.mtx.Lock()
	var replaced *conn
	for !c.closed && p.open >= p.most {
		if replaced = p.replaceable(); replaced != nil || p.open < p.most+p.spare {
			break
		}
		again := time.AfterFunc(beginning, p.room.Broadcast)
		p.room.Wait()
		again.Stop()
	}
	if c.closed {
		p.mtx.Unlock()
		return false
	}
	if replaced != nil {
		replaced.unfile()
		replaced.leave()
	}
	c.unfile()
	c.silent = false
	p.open++
	c.file()
	isSpare := p.open > p.most
	p.mtx.Unlock()
	if isSpare {
		p.spared.Inc()
	}
	p.replace(replaced)
	return true
}

// replaceable returns which connection of the server is closed in favour of another, or
// nil: one on which no request runs or begins.
func (p *Pool) replaceable() *conn {
	if c := first(p.unused); c != nil {
		return c
	}
	return first(p.idle)
}

// mostLooks is how many connections are looked at for one that may be closed.
const mostLooks = 16

// first returns the first of the list on which no request begins, or nil.
func first(l *list.List) *conn {
	for e, looks := l.Front(), 0; e != nil && looks < mostLooks; e, looks = e.Next(), looks+1 {
		if c := e.Value.(*conn); time.Since(time.Unix(0, c.spoke.Load())) > beginning {
			return c
		}
	}
	return nil
}

// closeSilent closes the connections of a listener that the server does not have yet.
func (p *Pool) closeSilent(l *listener) {
	var silent []*conn
	p.mtx.Lock()
	for e := p.silent.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*conn); c.from == l {
			silent = append(silent, c)
		}
	}
	p.mtx.Unlock()
	for _, c := range silent {
		c.Close()
	}
}

// file puts the connection behind those that wait, if no request runs on it.
func (c *conn) file() {
	busy := c.requests > 0 || c.answered && c.state == http.StateActive
	if c.place == nil && !busy && !c.closed {
		c.place = c.list().PushBack(c)
		c.setSpare(false)
		c.pool.room.Signal()
	}
}

func (c *conn) setSpare(spare bool) {
	if c.spare {
		c.pool.spares--
	}
	if c.spare = spare; spare {
		c.pool.spares++
	}
}

func (c *conn) unfile() {
	if c.place != nil {
		c.list().Remove(c.place)
		c.place = nil
	}
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.pool.mtx.Lock()
	c.unfile()
	c.leave()
	c.pool.mtx.Unlock()
	return c.Conn.Close()
}

// leave takes the connection out of the pool's counts.
func (c *conn) leave() {
	if c.closed {
		return
	}
	c.closed = true
	c.setSpare(false)
	if !c.silent {
		c.pool.open--
	}
	c.pool.room.Broadcast()
}

// note notes the state that the server says the connection is in.
func (p *Pool) note(c *conn, state http.ConnState) {
	p.mtx.Lock()
	defer p.mtx.Unlock()
	c.state = state
	if state == http.StateIdle {
		c.answered = false
		c.file()
	}
}

// begin notes that a request runs on the connection, and says whether requests
// run on so many others that it can only be served if it must never wait.
func (p *Pool) begin(c *conn) (spare bool) {
	p.mtx.Lock()
	defer p.mtx.Unlock()
	c.requests++
	c.answered = true
	c.unfile()
	c.used = true
	c.spoke.Store(0)
	if !c.spare && !c.closed {
		c.setSpare(p.busy()-p.spares > p.most)
	}
	return c.spare
}

// busy returns on how many connections requests run.
func (p *Pool) busy() int { return p.open - p.unused.Len() - p.idle.Len() }

func (p *Pool) end(c *conn) {
	p.mtx.Lock()
	defer p.mtx.Unlock()
	c.requests--
	c.file()
}

func (p *Pool) handler(prefix string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := r.Context().Value(connKey{}).(*conn)
		spare := p.begin(c)
		defer p.end(c)
		if spare {
			w.Header().Set("Connection", "close")
			if !mustNotWait(strings.TrimPrefix(r.URL.Path, prefix)) {
				p.refused.Inc()
				w.Header().Set("Retry-After", "5")
				http.Error(w, "requests run on all --web.max-connections: only health checks, metrics, rules, alerts and /guard are served (--guard.spare-connections)", http.StatusServiceUnavailable)
				return
			}
			until, control := time.Now().Add(lifetime), http.NewResponseController(w)
			_ = control.SetReadDeadline(until) // Writers that cannot do it go without.
			_ = control.SetWriteDeadline(until)
		}
		next.ServeHTTP(w, r)
	})
}

func mustNotWait(path string) bool {
	if path == "/guard/events" { // It does not end: who looks asks again and again instead.
		return false
	}
	return slices.ContainsFunc(served, func(s string) bool {
		return path == s || strings.HasPrefix(path, s) && strings.HasSuffix(s, "/")
	})
}
