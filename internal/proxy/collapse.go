// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/promguard/promguard/internal/querylimit"
)

// maxShared bounds what is held, of all answers together, for those who have not
// taken it yet while others who asked for the same have.
const maxShared = 32 << 20

// collapser sends identical requests that come while one of them waits for the
// headers of its answer only once. The request that is sent, a flight, belongs to
// none of them: it goes on as long as one is there, and each gets the whole answer as
// it comes. So nobody waits for what it will not get, and nobody is worse off than if
// it had sent its request itself, which would have been later. The first one waits
// for the headers where it has sent the request, as nearly all are alone; if its
// deadline passes meanwhile, the others begin anew.
type collapser struct {
	send   func(*http.Request, *trip) (*http.Response, error)
	joined func()
	most   int // maxShared

	mu      sync.Mutex
	room    sync.Cond // there may be room for more of an answer
	flights map[string]*flight
	shared  int // bytes held
}

// flight is one request that is sent, and its answer. Its collapser guards it.
type flight struct {
	collapser *collapser
	key       string
	cancel    context.CancelFunc

	holders []*holder // who want the answer and have not left
	joined  time.Time // when the last one came
	req     *http.Request
	closed  bool // nobody joins any more
	gaveUp  bool // the deadline of the first holder has passed before the headers
	started chan struct{}
	// Read after started: the headers of the answer, or the error.
	res *http.Response
	err error

	more   sync.Cond // there is more of the answer, or somebody has left
	blocks []*block
	came   int64 // bytes of the answer
	ended  error // io.EOF, or why there is no more
}

// block is a piece of an answer. What was read of it never changes.
type block struct {
	data []byte
	from int64 // its place in the answer
}

const (
	firstBlockBytes = 4 << 10 // As most answers are short.
	blockBytes      = 64 << 10
)

// holder is one who wants the answer. It is the body that its client reads.
type holder struct {
	*flight

	ctx    context.Context
	stop   func() bool   // ends the watch over ctx
	first  bool          // it began the flight
	direct io.ReadCloser // the answer, of the only holder
	read   int64
	left   bool
}

func newCollapser(send func(*http.Request, *trip) (*http.Response, error), joined func()) *collapser {
	c := &collapser{send: send, joined: joined, most: maxShared, flights: map[string]*flight{}}
	c.room.L = &c.mu
	return c
}

// roundTrip sends a request, or has it wait for the answer to an identical one.
func (c *collapser) roundTrip(req *http.Request, key string, t *trip) (*http.Response, error) {
	h := &holder{ctx: req.Context()}
	c.mu.Lock()
	f := c.flights[key]
	if f == nil {
		f, h.first = c.begin(req, key, t), true
	}
	h.flight = f
	f.holders = append(f.holders, h)
	f.joined = time.Now()
	c.mu.Unlock()

	h.stop = context.AfterFunc(h.ctx, h.leave)
	if h.first {
		f.fly(t)
	} else {
		c.joined()
		select {
		case <-f.started:
		case <-h.ctx.Done():
		}
	}
	if err := h.ctx.Err(); err != nil {
		_ = h.Close() // The answer may have come meanwhile.
		return nil, err
	}
	if f.err == nil {
		return h.response(req), nil
	}
	_ = h.Close()
	if f.gaveUp {
		return c.roundTrip(req, key, t)
	}
	return nil, f.err
}

// begin makes a request of its own of one, on nobody's behalf.
func (c *collapser) begin(req *http.Request, key string, t *trip) *flight {
	f := &flight{collapser: c, key: key, started: make(chan struct{})}
	f.more.L = &c.mu
	ctx, cancel := context.WithCancel(context.WithoutCancel(req.Context()))
	f.req, f.cancel = req.WithContext(ctx), cancel
	t.waitsSince = f.lastJoined
	c.flights[key] = f
	return f
}

// lastJoined is since when the request waits for a permit: none of those who want its
// answer is refused before it has waited as long as it may.
func (f *flight) lastJoined() time.Time {
	f.collapser.mu.Lock()
	defer f.collapser.mu.Unlock()
	return f.joined
}

// fly sends the request, and hands out the answer once it has begun.
func (f *flight) fly(t *trip) {
	res, err := f.collapser.send(f.req, t)
	f.collapser.mu.Lock()
	f.close()
	if f.gaveUp = len(f.holders) > 0 && f.req.Context().Err() != nil; f.gaveUp && err == nil { // Just too late.
		err = context.DeadlineExceeded
	}
	f.res, f.err = res, err
	switch {
	case res == nil:
	case err != nil || len(f.holders) == 0:
		defer res.Body.Close()
	case len(f.holders) == 1:
		f.holders[0].direct = res.Body
	default:
		go f.pump(res.Body)
	}
	close(f.started)
	f.collapser.mu.Unlock()
}

// close ends the time in which others join.
func (f *flight) close() {
	if !f.closed {
		f.closed = true
		delete(f.collapser.flights, f.key)
	}
}

// pump reads the answer, as far ahead of the slowest as there is room.
func (f *flight) pump(body io.ReadCloser) {
	c := f.collapser
	for {
		b := f.nextBlock()
		n, err := body.Read(b.data[len(b.data):cap(b.data)])
		if err != nil {
			_ = body.Close() // Before the end is told: with it the request is over.
		}
		c.mu.Lock()
		b.data = b.data[:len(b.data)+n]
		f.came += int64(n)
		f.ended = err
		f.more.Broadcast()
		if err != nil {
			f.release()
		}
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// nextBlock returns a block with room, for which it may have to wait. Each flight may
// always have one.
func (f *flight) nextBlock() *block {
	c := f.collapser
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(f.blocks); n > 0 && len(f.blocks[n-1].data) < cap(f.blocks[n-1].data) {
		return f.blocks[n-1]
	}
	for len(f.blocks) > 0 && c.shared+blockBytes > c.most && len(f.holders) > 0 {
		c.room.Wait()
	}
	size := blockBytes
	if f.came == 0 {
		size = firstBlockBytes
	}
	b := &block{make([]byte, 0, size), f.came}
	f.blocks = append(f.blocks, b)
	c.shared += size
	return b
}

// release drops blocks that everybody has taken, and all if nobody is there.
func (f *flight) release() {
	slowest := int64(-1)
	for _, h := range f.holders {
		if slowest < 0 || h.read < slowest {
			slowest = h.read
		}
	}
	n := 0
	for n < len(f.blocks) {
		b := f.blocks[n]
		done := len(b.data) == cap(b.data) || f.ended != nil
		if slowest >= 0 && (!done || b.from+int64(len(b.data)) > slowest) {
			break
		}
		f.collapser.shared -= cap(b.data)
		n++
	}
	if n > 0 {
		f.blocks = slices.Delete(f.blocks, 0, n)
		f.collapser.room.Broadcast()
	}
}

// response is the answer as this holder gets it.
func (h *holder) response(req *http.Request) *http.Response {
	res := *h.res
	res.Request, res.Body, res.Trailer = req, h, nil
	if h.direct == nil {
		res.Header = res.Header.Clone()
	}
	if !h.first && len(res.Header["Set-Cookie"]) > 0 { // It is for one client only.
		res.Header.Del("Set-Cookie")
		res.Header.Set("Cache-Control", "private")
	}
	return &res
}

// Read implements io.Reader.
func (h *holder) Read(p []byte) (int, error) {
	if h.direct != nil {
		return h.direct.Read(p)
	}
	piece, err := h.next()
	n := copy(p, piece)
	if n > 0 {
		h.collapser.mu.Lock()
		h.read += int64(n)
		h.release()
		h.collapser.mu.Unlock()
	}
	return n, err
}

// next waits for a piece of the answer that was not read yet.
func (h *holder) next() ([]byte, error) {
	h.collapser.mu.Lock()
	defer h.collapser.mu.Unlock()
	for {
		if h.left { // What it has not read is gone.
			return nil, cmp.Or(context.Cause(h.ctx), context.Canceled)
		}
		for _, b := range h.blocks {
			if end := b.from + int64(len(b.data)); h.read < end {
				return b.data[h.read-b.from:], nil
			}
		}
		if h.ended != nil {
			return nil, h.ended
		}
		h.more.Wait()
	}
}

// Close implements io.Closer.
func (h *holder) Close() error {
	h.stop()
	h.leave()
	if h.direct == nil { // It gets none any more.
		return nil
	}
	return h.direct.Close()
}

// leave takes part in the flight no more. When the last one leaves, it ends.
func (h *holder) leave() {
	h.collapser.mu.Lock()
	defer h.collapser.mu.Unlock()
	if h.left {
		return
	}
	h.left = true
	h.holders = slices.DeleteFunc(h.holders, func(other *holder) bool { return other == h })
	h.release()
	h.more.Broadcast()
	givesUp := h.first && !h.closed && errors.Is(h.ctx.Err(), context.DeadlineExceeded)
	if len(h.holders) == 0 || givesUp {
		h.close()
		h.cancel()
	}
	h.collapser.room.Broadcast()
}

// saysNothing are headers that differ between requests for the same answer. All
// others may be what an answer depends on, and are a part of the key: the host and
// the scheme that the client used, too, which a proxy in front of the server may
// route by.
var saysNothing = map[string]bool{
	"User-Agent": true, "Via": true, headerForwardedFor: true,
	"Traceparent": true, "Tracestate": true, "X-Request-Id": true, "Content-Length": true,
	"X-Dashboard-Uid": true, "X-Dashboard-Title": true, "X-Panel-Id": true, "X-Panel-Title": true, "X-Panel-Plugin-Id": true,
	"X-Query-Group-Id": true, "X-Datasource-Uid": true, "X-Grafana-From-Expr": true, "Fromalert": true,
	"X-Rule-Uid": true, "X-Rule-Name": true, "X-Rule-Folder": true, "X-Rule-Source": true, "X-Rule-Type": true, "X-Rule-Version": true,
}

// headerForwardedFor has the address of the client. Those who ask for the same at
// the same time may have several, such as the replicas of Grafana that all evaluate
// the same alert.
const headerForwardedFor = "X-Forwarded-For"

// collapseKey is the same for requests that have the same answer, or "" for one
// that is not to be shared.
func collapseKey(req *http.Request, x *exchange) string {
	if x.request.Method == http.MethodOptions || x.endpoint.Class == querylimit.ClassStatus {
		return ""
	}
	var b strings.Builder
	b.WriteString(x.request.Method)
	b.WriteByte(' ')
	b.WriteString(req.URL.Path)
	b.WriteByte('?')
	b.WriteString(x.key)
	b.WriteByte(' ')
	b.WriteString(x.trip.class.String()) // A request must not wait for one of a class that is served later.
	b.WriteString("\ntenant:")           // Of whichever header.
	b.WriteString(x.who.Tenant)
	for _, name := range telling(req.Header) {
		for _, value := range req.Header[name] {
			b.WriteByte('\n')
			b.WriteString(name)
			b.WriteByte(':')
			b.WriteString(value)
		}
	}
	return b.String()
}

// telling returns the names of the headers that an answer may depend on, in order.
func telling(h http.Header) []string {
	names := make([]string, 0, len(h))
	for name := range h {
		if !saysNothing[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
