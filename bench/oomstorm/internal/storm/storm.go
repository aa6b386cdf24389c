// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package storm is the clients of the storm: many at once, impatient, slow, or
// asking for everything. They read and throw away.
package storm

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Outcomes of requests besides status codes.
const (
	Left    = "left"    // the client left, as it meant to
	Timeout = "timeout" // the client had waited for Config.Timeout
	Cut     = "cut"     // the connection ended within the request or the answer
	Refused = "refused" // no connection
	Ended   = "ended"   // still open when the storm ended
)

const (
	readBuffer = 256 << 10
	// slowBytes are read per slowPeriod by a slow reader, for slowFor at most.
	slowBytes  = 1 << 10
	slowPeriod = time.Second
	slowFor    = 30 * time.Second

	minLeave, maxLeave = 200 * time.Millisecond, 2 * time.Second
	maxPause           = 100 * time.Millisecond
	refusedPause       = 500 * time.Millisecond
)

// Config is what the clients do. Shares are from 0 to 1.
type Config struct {
	URL     string
	Clients int
	Seed    uint64
	Mix     Mix
	// Timeout is how long a client waits for the whole answer.
	Timeout time.Duration
	// Slow reads 1 KB/s, Leave leaves after 0.2 to 2 s: shares of the requests
	// that are not the dashboard's. Gzip and Post are shares of all.
	Slow, Leave, Gzip, Post float64
	From                    time.Time
	Points                  int
}

// Answers are what came back for one kind of request.
type Answers struct {
	// Outcomes counts requests by status code, if the answer was read to its
	// end, or by one of the outcomes.
	Outcomes map[string]int `json:"outcomes"`
	// Bytes of bodies, as they were sent.
	Bytes int64 `json:"bytes"`
}

// Result are the Answers by kind.
type Result map[string]*Answers

// Run storms until ctx ends.
func Run(ctx context.Context, c Config) Result {
	s := &storm{Config: c, builder: Builder{URL: c.URL, From: c.From, Points: c.Points}, result: Result{}}
	s.fast = &http.Transport{MaxIdleConnsPerHost: c.Clients, DisableCompression: true, ReadBufferSize: readBuffer}
	s.slow = &http.Transport{DisableKeepAlives: true, DisableCompression: true, DialContext: dialNarrow}
	defer s.fast.CloseIdleConnections()
	var clients sync.WaitGroup
	for i := range c.Clients {
		clients.Go(func() {
			r := rand.New(rand.NewPCG(c.Seed, uint64(i)))
			buf := make([]byte, readBuffer)
			for ctx.Err() == nil {
				pause(ctx, s.one(ctx, r, buf))
			}
		})
	}
	clients.Wait()
	return s.result
}

// dialNarrow dials a connection that takes little in before it is read.
func dialNarrow(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if tcp, ok := conn.(*net.TCPConn); ok && err == nil {
		err = tcp.SetReadBuffer(4 << 10)
	}
	return conn, err
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

type storm struct {
	Config
	builder    Builder
	fast, slow *http.Transport

	mu     sync.Mutex
	result Result
}

// plan is how one request is made. Every plan takes the same draws, so that what
// a client does depends on the seed alone.
type plan struct {
	kind       Kind
	gzip, post bool
	slow       bool
	leave      time.Duration // 0: it stays
	think      time.Duration // pause before the client's next request
}

func (s *storm) plan(r *rand.Rand) plan {
	p := plan{kind: s.Mix.pick(r), gzip: r.Float64() < s.Gzip, post: r.Float64() < s.Post}
	manner := r.Float64()
	leave := minLeave + time.Duration(r.Float64()*float64(maxLeave-minLeave))
	p.think = time.Duration(r.Float64() * float64(maxPause))
	switch {
	case p.kind.Name == "dashboard":
	case manner < s.Slow:
		p.slow = true
	case manner < s.Slow+s.Leave:
		p.leave = leave
	}
	return p
}

// one makes a request and says how long to pause after it.
func (s *storm) one(ctx context.Context, r *rand.Rand, buf []byte) time.Duration {
	p := s.plan(r)
	limit, leaving := s.Timeout, false
	switch {
	case p.slow:
		limit, leaving = min(limit, slowFor), slowFor <= limit
	case p.leave > 0:
		limit, leaving = min(limit, p.leave), p.leave <= limit
	}
	rctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	status, n, err := s.exchange(rctx, r, p, buf)
	outcome := classify(ctx, rctx, status, leaving, err)
	s.count(p.kind.Name, outcome, n)
	if outcome == Refused {
		return refusedPause
	}
	return p.think
}

func (s *storm) exchange(ctx context.Context, r *rand.Rand, p plan, buf []byte) (status int, n int64, err error) {
	req, err := s.builder.Build(ctx, p.kind, r, p.gzip, p.post)
	if err != nil {
		return 0, 0, err
	}
	transport := s.fast
	if p.slow {
		transport = s.slow
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return 0, 0, err
	}
	defer res.Body.Close()
	if p.slow {
		n, err = trickle(ctx, res.Body, buf[:slowBytes])
	} else {
		n, err = drain(res.Body, buf)
	}
	return res.StatusCode, n, err
}

func drain(body io.Reader, buf []byte) (n int64, err error) {
	for {
		m, err := body.Read(buf)
		n += int64(m)
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// trickle reads as much as fits in buf once in a while.
func trickle(ctx context.Context, body io.Reader, buf []byte) (n int64, err error) {
	for {
		m, err := body.Read(buf)
		n += int64(m)
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		pause(ctx, slowPeriod)
		if err := ctx.Err(); err != nil {
			return n, err // What is buffered could still be read.
		}
	}
}

// classify names what came of a request. outer is the storm's context, inner the
// request's.
func classify(outer, inner context.Context, status int, leaving bool, err error) string {
	var op *net.OpError
	switch {
	case err == nil:
		return strconv.Itoa(status)
	case outer.Err() != nil:
		return Ended
	case inner.Err() != nil && leaving:
		return Left
	case inner.Err() != nil:
		return Timeout
	case errors.As(err, &op) && op.Op == "dial":
		return Refused
	default:
		return Cut
	}
}

func (s *storm) count(kind, outcome string, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.result[kind]
	if a == nil {
		a = &Answers{Outcomes: map[string]int{}}
		s.result[kind] = a
	}
	a.Outcomes[outcome]++
	a.Bytes += n
}
