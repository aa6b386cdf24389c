// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package spareconn keeps a server's health checks, metrics and alerts in reach
// when its connections are used up.
//
// Prometheus accepts --web.max-connections connections and lets all others wait
// in the kernel, those of the kubelet's probes among them: as many slow clients
// make it look dead, and it is killed. Here some more connections are accepted,
// each for one request that must never wait, and not for long.
package spareconn

import (
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/prometheus/prometheus/util/netconnlimit"
)

const (
	// patience is how long a spare connection may ask for nothing: others that
	// do keep the probes out.
	patience = 2 * time.Second
	// lifetime bounds how long it stays open once it has asked. Scrapes and
	// probes give up earlier.
	lifetime = 30 * time.Second
)

// served are the paths that a spare connection may ask for.
var served = []string{"/-/", "/metrics", "/api/v1/rules", "/api/v1/alerts", "/api/v1/status/guard/"}

// Pool holds the spare connections of a server. A nil *Pool has none. Safe for
// concurrent use.
type Pool struct {
	permits  chan struct{}
	open     sync.Map // The timers that close spare connections, by remote address.
	accepted prometheus.Counter
	refused  prometheus.Counter
}

// NewPool returns a pool of n connections, or nil if n is not positive.
func NewPool(n int, reg prometheus.Registerer) *Pool {
	if n <= 0 {
		return nil
	}
	factory := promauto.With(reg)
	return &Pool{
		permits: make(chan struct{}, n),
		accepted: factory.NewCounter(prometheus.CounterOpts{
			Name: "prometheus_guard_spare_connections_accepted_total",
			Help: "Connections that were accepted although --web.max-connections were open.",
		}),
		refused: factory.NewCounter(prometheus.CounterOpts{
			Name: "prometheus_guard_spare_connections_refused_total",
			Help: "Requests over such connections that were refused because they may wait.",
		}),
	}
}

// Listener returns a listener that accepts as many connections at a time as the
// semaphore has room for, like netconnlimit.SharedLimitListener, and then those
// of the pool.
func (p *Pool) Listener(l net.Listener, sem chan struct{}) net.Listener {
	if p == nil {
		return netconnlimit.SharedLimitListener(l, sem)
	}
	return &listener{Listener: l, pool: p, sem: sem, closed: make(chan struct{})}
}

type listener struct {
	net.Listener
	pool      *Pool
	sem       chan struct{}
	closeOnce sync.Once
	closed    chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	select {
	case l.sem <- struct{}{}:
		return &conn{Conn: c, release: func() { <-l.sem }}, nil
	default:
	}
	select {
	case l.sem <- struct{}{}:
		return &conn{Conn: c, release: func() { <-l.sem }}, nil
	case l.pool.permits <- struct{}{}:
		return l.pool.spare(c), nil
	case <-l.closed:
		c.Close()
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	err := l.Listener.Close()
	l.closeOnce.Do(func() { close(l.closed) })
	return err
}

func (p *Pool) spare(c net.Conn) net.Conn {
	p.accepted.Inc()
	addr := c.RemoteAddr().String()
	spare := &conn{Conn: c}
	timer := time.AfterFunc(patience, func() { spare.Close() })
	p.open.Store(addr, timer)
	spare.release = func() {
		timer.Stop()
		p.open.Delete(addr)
		<-p.permits
	}
	return spare
}

// conn gives back its permit when it is closed.
type conn struct {
	net.Conn
	once    sync.Once
	release func()
}

func (c *conn) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.release)
	return err
}

// Handler refuses requests over spare connections but those that must never
// wait. Paths begin with prefix.
func (p *Pool) Handler(prefix string, next http.Handler) http.Handler {
	if p == nil {
		return next
	}
	prefix = strings.TrimSuffix(prefix, "/")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if timer, spare := p.open.Load(r.RemoteAddr); spare {
			timer.(*time.Timer).Reset(lifetime)
			w.Header().Set("Connection", "close")
			if !mustNotWait(strings.TrimPrefix(r.URL.Path, prefix)) {
				p.refused.Inc()
				w.Header().Set("Retry-After", "5")
				http.Error(w, "all --web.max-connections are in use: this connection serves only health checks, metrics, rules and alerts (--guard.spare-connections)", http.StatusServiceUnavailable)
				return
			}
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
