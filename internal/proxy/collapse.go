// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/promguard/promguard/internal/querylimit"
)

// maxShared is how many bytes of an answer are kept for others who asked for the
// same; maxSharedTotal of all answers together.
const (
	maxShared      = 1 << 20
	maxSharedTotal = 32 << 20
)

// collapser sends identical requests that come while one of them waits for its
// answer only once.
type collapser struct {
	send   func(*http.Request) (*http.Response, error)
	joined func()

	mu      sync.Mutex
	flights map[string]*flight
	shared  int // bytes kept
}

// flight is a request that others wait for.
type flight struct {
	// holders is the leader and its followers, as long as they may read body, and
	// kept is how many bytes are kept for them. Guarded by the collapser.
	holders, kept int
	done          chan struct{}
	// Read after done: the answer, the error, or neither if the followers must
	// send it themselves.
	header http.Header
	status int
	body   []byte
	whole  bool
	err    error
	// left is set if the leader failed for a reason of its own, such as that its
	// client went: one of the followers leads then.
	left bool
}

func newCollapser(send func(*http.Request) (*http.Response, error), joined func()) *collapser {
	return &collapser{send: send, joined: joined, flights: map[string]*flight{}}
}

func (c *collapser) roundTrip(req *http.Request, key string) (*http.Response, error) {
	c.mu.Lock()
	if f, ok := c.flights[key]; ok {
		f.holders++
		c.mu.Unlock()
		c.joined()
		return c.follow(req, key, f)
	}
	f := &flight{holders: 1, done: make(chan struct{})}
	c.flights[key] = f
	c.mu.Unlock()
	return c.lead(req, key, f)
}

func (c *collapser) follow(req *http.Request, key string, f *flight) (*http.Response, error) {
	release := sync.OnceFunc(func() { c.release(f) })
	select {
	case <-f.done:
	case <-req.Context().Done():
		release()
		return nil, req.Context().Err()
	}
	if f.whole {
		return &http.Response{
			Status: http.StatusText(f.status), StatusCode: f.status, Header: f.header.Clone(), Request: req,
			Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Body: &heldBody{io.NopCloser(bytes.NewReader(f.body)), release}, ContentLength: int64(len(f.body)),
		}, nil
	}
	release()
	switch {
	case f.err != nil:
		return nil, f.err
	case f.left:
		return c.roundTrip(req, key)
	default:
		return c.send(req)
	}
}

// lead sends the request. After its headers nobody joins any more, so that an
// answer is kept only where somebody waits for it.
func (c *collapser) lead(req *http.Request, key string, f *flight) (res *http.Response, err error) {
	defer func() { // Also if send panics.
		c.leave(key, f)
		if f.left = err != nil && req.Context().Err() != nil; !f.left {
			f.err = err // The request may be what broke the server: it is not sent again.
		}
		close(f.done)
	}()
	if res, err = c.send(req); err != nil {
		return nil, err
	}
	if !c.leave(key, f) || len(res.Header["Set-Cookie"]) > 0 { // A cookie is for this client only.
		return res, nil
	}
	return c.share(res, f)
}

// leave ends the time in which others join, and reports whether somebody did.
func (c *collapser) leave(key string, f *flight) (followed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flights[key] == f {
		delete(c.flights, key)
	}
	return f.holders > 1
}

// share reads an answer into memory, unless it is too large. Those who wait do so
// for the server then, and not for the leader's client to take its part.
func (c *collapser) share(res *http.Response, f *flight) (*http.Response, error) {
	release := sync.OnceFunc(func() { c.release(f) })
	body, err := io.ReadAll(&sharedReader{res.Body, c, f})
	if errors.Is(err, errNotShared) {
		rest := res.Body
		res.Body = &heldBody{readCloser{io.MultiReader(bytes.NewReader(body), rest), rest}, release}
		return res, nil
	}
	_ = res.Body.Close() // There is nothing more to read.
	if err != nil {
		release()
		return nil, err
	}
	f.header, f.status, f.body, f.whole = res.Header.Clone(), res.StatusCode, body, true
	res.Body = &heldBody{io.NopCloser(bytes.NewReader(body)), release}
	return res, nil
}

type readCloser struct {
	io.Reader
	io.Closer
}

var errNotShared = errors.New("the answer is too large to be shared")

// sharedReader counts what is read of an answer, up to what may be kept.
type sharedReader struct {
	io.Reader

	collapser *collapser
	flight    *flight
}

// Read implements io.Reader.
func (r *sharedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if !r.collapser.keep(r.flight, n) {
		return n, errNotShared
	}
	return n, err
}

// keep reports whether n more bytes may be kept, and counts them.
func (c *collapser) keep(f *flight, n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.kept+n > maxShared || c.shared+n > maxSharedTotal {
		return false
	}
	f.kept += n
	c.shared += n
	return true
}

// release is called by each who may read an answer that is kept, once it will not.
func (c *collapser) release(f *flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f.holders--
	if f.holders == 0 {
		c.shared -= f.kept
	}
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
	if x.request.method == http.MethodOptions || x.request.endpoint.Class == querylimit.ClassStatus {
		return ""
	}
	var b strings.Builder
	b.WriteString(x.request.method)
	b.WriteByte(' ')
	b.WriteString(req.URL.Path)
	b.WriteByte('?')
	b.WriteString(x.params)
	b.WriteByte(' ')
	b.WriteString(x.admissionClass().String()) // None waits for one that others go before.
	b.WriteString("\ntenant:")                 // Of whichever header.
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
