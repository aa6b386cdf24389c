// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package spareconn keeps a server's health checks, metrics and alerts in reach
// when its connections are used up.
//
// Prometheus accepts --web.max-connections connections and lets all others wait
// in the kernel, those of the kubelet's probes among them: as many clients that
// are idle or slow make it look dead, and it is killed. Here a connection on which
// no request runs is closed when another one needs its room: one that never carried a
// request if most are such, else the one that has been idle for longest. If requests run
// on all, some more connections are accepted for what must never wait.
package spareconn

import (
	"container/list"
	"context"
	"crypto/tls"
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

const (
	// fresh is how long a connection may take for its first request. It is short: what
	// waits in the kernel waits for it.
	fresh = 50 * time.Millisecond
	// speaking is how long a request may take from its first byte to its handler.
	speaking = time.Second
)

// served are the paths that are answered over spare connections.
var served = []string{"/-/", "/metrics", "/api/v1/rules", "/api/v1/alerts", "/api/v1/status/guard", "/api/v1/status/guard/"}

// Pool holds the connections of a server. Safe for concurrent use.
type Pool struct {
	most     int
	extra    int
	spare    prometheus.Counter
	refused  prometheus.Counter
	replaced prometheus.Counter

	mtx  sync.Mutex
	open int
	// spares are how many of those on which requests run are spare.
	spares int
	// unused and idle are the connections on which no request runs, those first that
	// have been so for longest. On the unused ones none ever has.
	unused, idle *list.List
}

// NewPool returns a pool of at most so many connections, and some to spare for what
// must never wait.
func NewPool(most, spare int, reg prometheus.Registerer) *Pool {
	factory := promauto.With(reg)
	return &Pool{
		most:   most,
		extra:  spare,
		unused: list.New(),
		idle:   list.New(),
		spare: factory.NewCounter(prometheus.CounterOpts{
			Name: "prometheus_guard_spare_connections_accepted_total",
			Help: "Connections that were accepted although requests ran on --web.max-connections others.",
		}),
		refused: factory.NewCounter(prometheus.CounterOpts{
			Name: "prometheus_guard_spare_connections_refused_total",
			Help: "Requests over such connections that were refused because they may wait.",
		}),
		replaced: factory.NewCounter(prometheus.CounterOpts{
			Name: "prometheus_guard_idle_connections_closed_total",
			Help: "Connections without a request that were closed because --web.max-connections were open and another one came.",
		}),
	}
}

// Extra is by how many connections the listeners have to take more.
func (p *Pool) Extra() int {
	if p == nil {
		return 0
	}
	return p.extra
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
	s.ConnState = func(c net.Conn, state http.ConnState) { p.enter(ours(c), state) }
	s.Handler = p.handler(strings.TrimSuffix(prefix, "/"), s.Handler)
	bound := make([]net.Listener, len(listeners))
	for i, l := range listeners {
		bound[i] = &listener{l, p}
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

type listener struct {
	net.Listener
	pool *Pool
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	time.Sleep(l.pool.pause())
	return l.pool.accept(c), nil
}

// conn is a connection of a pool. Its fields are guarded by the pool's mtx.
type conn struct {
	net.Conn
	pool   *Pool
	read   atomic.Int64 // When something was read last, in nanoseconds. Not guarded.
	closed bool
	state  http.ConnState
	since  time.Time // When it was accepted.
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

// list returns the list in which the connection is while no request runs on it.
func (c *conn) list() *list.List {
	if c.used {
		return c.pool.idle
	}
	return c.pool.unused
}

// accept takes a connection into the pool, and closes others in its favour.
func (p *Pool) accept(inner net.Conn) net.Conn {
	c := &conn{Conn: inner, pool: p, since: time.Now()}
	var replaced []*conn
	p.mtx.Lock()
	p.open++
	c.file()
	for over := p.open - p.most; len(replaced) < over; {
		other := p.replaceable(c)
		if other == nil {
			break
		}
		other.unfile()
		replaced = append(replaced, other)
	}
	isSpare := p.open-len(replaced) > p.most
	p.mtx.Unlock()
	if isSpare {
		p.spare.Inc()
	}
	for _, r := range replaced {
		p.replaced.Inc()
		r.Close()
	}
	return c
}

// pause returns how long the next connection has to wait so that those that never carried
// a request have had their time, if they are most of all: the server accepts faster than
// it reads.
func (p *Pool) pause() time.Duration {
	p.mtx.Lock()
	defer p.mtx.Unlock()
	if p.open < p.most || !p.mostAreUnused() {
		return 0
	}
	return fresh - time.Since(p.unused.Front().Value.(*conn).since)
}

func (p *Pool) mostAreUnused() bool { return p.unused.Len() > p.most/2 }

// replaceable returns which connection is closed in favour of c, or nil: one that never
// carried a request if most are such, then the one that has been idle for longest. One
// whose client has begun a request is closed only if all looked at have.
func (p *Pool) replaceable(c *conn) *conn {
	order := []*list.List{p.idle, p.unused}
	if p.mostAreUnused() {
		slices.Reverse(order)
	}
	for _, spoken := range []bool{false, true} {
		for _, l := range order {
			if other := first(l, func(o *conn) bool { return o != c && (spoken || !o.speaks()) }); other != nil {
				return other
			}
		}
	}
	return nil
}

// mostLooks is how many connections are looked at for one that may be closed.
const mostLooks = 16

// first returns the first of the list that fits, or nil.
func first(l *list.List, fits func(*conn) bool) *conn {
	for e, looks := l.Front(), 0; e != nil && looks < mostLooks; e, looks = e.Next(), looks+1 {
		if c := e.Value.(*conn); fits(c) {
			return c
		}
	}
	return nil
}

// speaks says whether the server has read something of late: a handshake or a request
// begins.
func (c *conn) speaks() bool { return time.Since(time.Unix(0, c.read.Load())) < speaking }

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.read.Store(time.Now().UnixNano())
	}
	return n, err
}

// file puts the connection behind those that wait, if no request runs on it.
func (c *conn) file() {
	busy := c.requests > 0 || c.answered && c.state == http.StateActive
	if c.place == nil && !busy && !c.closed {
		c.place = c.list().PushBack(c)
		c.setSpare(false)
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
	if !c.closed {
		c.closed = true
		c.unfile()
		c.setSpare(false)
		c.pool.open--
	}
	c.pool.mtx.Unlock()
	return c.Conn.Close()
}

// enter notes the state that the server says the connection is in.
func (p *Pool) enter(c *conn, state http.ConnState) {
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
				http.Error(w, "requests run on all --web.max-connections: only health checks, metrics, rules and alerts are served (--guard.spare-connections)", http.StatusServiceUnavailable)
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
	for _, s := range served {
		if path == s || strings.HasPrefix(path, s) && strings.HasSuffix(s, "/") {
			return true
		}
	}
	return false
}
