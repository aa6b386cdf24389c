// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package intake bounds the memory that requests take while they are read: how many
// connections there are, and how many bytes all of them together have sent of
// requests that are not over. Both follow from the memory that the process may use.
package intake

import (
	"context"
	"errors"
	"math"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/netutil"
)

// MaxHeaderBytes bounds the headers of a request, with its URL. A query of 64 KiB fits
// in, however it is escaped.
const MaxHeaderBytes = 256 << 10

const (
	// free is what a connection may send of a request whatever others send. Nearly
	// all requests are shorter.
	free = 8 << 10
	// costOfConnection is about what an idle connection takes, with what it may send
	// freely.
	costOfConnection = 40 << 10
	// costOfByte is how many bytes one takes that was sent, at most: it is read,
	// decoded and parsed.
	costOfByte = 8
	// unlimited is what is taken for the memory of a process without a bound.
	unlimited = 2 << 30
)

// ErrFull is that too much is being read.
var ErrFull = errors.New("too many long requests are being read")

// Intake is safe for concurrent use.
type Intake struct {
	connections int
	most        int64
	held        atomic.Int64
	shed        prometheus.Counter
}

// New returns an Intake for a process with so much memory; a quarter of it is for
// connections, another for what they send.
func New(memory int64, reg prometheus.Registerer) *Intake {
	in := &Intake{
		connections: int(memory / 2 / costOfConnection), most: memory / 4 / costOfByte,
		shed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "promguard_intake_shed_total", Help: "Connections that were shed, because too much was being read.",
		}),
	}
	reg.MustRegister(in.shed, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "promguard_intake_bytes", Help: "Bytes of requests that were read and are not over, but for the first 8 KiB of each.",
	}, func() float64 { return float64(in.held.Load()) }))
	return in
}

// Memory returns what the process may use, from GOMEMLIMIT.
func Memory() int64 {
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		return limit
	}
	return unlimited
}

// Serve makes srv count what it reads, and returns the listener that it must serve.
func (in *Intake) Serve(srv *http.Server, l net.Listener) net.Listener {
	next := srv.Handler
	srv.MaxHeaderBytes = MaxHeaderBytes
	srv.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 100, MaxReadFrameSize: 16 << 10, MaxReceiveBufferPerConnection: 64 << 10, MaxReceiveBufferPerStream: 64 << 10}
	srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if secure, ok := c.(interface{ NetConn() net.Conn }); ok {
			c = secure.NetConn()
		}
		return context.WithValue(ctx, connKey{}, c)
	}
	srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*conn); ok {
			defer c.forget() // Of HTTP/2, other requests may not be over; they have had their share.
		}
		next.ServeHTTP(w, r)
	})
	return &listener{netutil.LimitListener(l, in.connections), in}
}

type connKey struct{}

type listener struct {
	net.Listener

	intake *Intake
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, intake: l.intake}, nil
}

// conn counts what is read since the last request was over.
type conn struct {
	net.Conn

	intake *Intake

	mu         sync.Mutex
	read, held int64
	closed     bool
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if !c.count(int64(n)) {
		// Of such an error net/http knows that there is nobody to tell.
		return 0, &net.OpError{Op: "read", Net: "tcp", Err: ErrFull}
	}
	return n, err
}

func (c *conn) count(n int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read += n
	more := c.read - free - c.held
	if more <= 0 || c.closed {
		return true
	}
	if c.intake.held.Add(more) > c.intake.most {
		c.intake.held.Add(-more)
		c.intake.shed.Inc()
		return false
	}
	c.held += more
	return true
}

// forget is called when what was read is of no use any more.
func (c *conn) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.release()
}

func (c *conn) release() {
	c.intake.held.Add(-c.held)
	c.read, c.held = 0, 0
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.release()
	c.mu.Unlock()
	return c.Conn.Close()
}
