// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/promguard/promguard/internal/admission"
	"github.com/promguard/promguard/internal/querylimit"
)

// admissionDoc is where people read about what keeps a request out.
const admissionDoc = "https://github.com/promguard/promguard/blob/main/docs/guard-admission.md"

// admissionClass orders a request by who waits for it.
func (x *exchange) admissionClass() admission.Class {
	switch class := x.request.endpoint.Class; {
	case x.who.Alert:
		return admission.Alerts
	case class == querylimit.ClassQuery:
		return admission.Panels
	case class == querylimit.ClassMetadata:
		return admission.Metadata
	default:
		return admission.Rest
	}
}

// admitted sends a request once it has a permit, and holds the permit until the
// end of the answer.
func (p *Proxy) admitted(req *http.Request) (*http.Response, error) {
	x := exchangeOf(req.Context())
	class := x.admissionClass()
	start := time.Now()
	release, err := p.admission.Acquire(req.Context(), x.who.Tenant, class)
	p.metrics.waited[class].Observe(time.Since(start).Seconds())
	if err != nil {
		return nil, err
	}
	res, err := p.transport.RoundTrip(req)
	if err != nil {
		release()
		return nil, err
	}
	res.Body = &heldBody{res.Body, release}
	return res, nil
}

// heldBody gives a permit back when the answer has been read or left.
type heldBody struct {
	io.ReadCloser

	release func()
}

// Close implements io.Closer.
func (b *heldBody) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}

// refuseAdmission answers a request that got no permit. Grafana hides the text of
// a 429.
func (p *Proxy) refuseAdmission(w *responseWriter, userAgent string, refusal *admission.Refusal) {
	ae := &apiError{code: http.StatusServiceUnavailable, typ: typeUnavailable, reason: reasonSaturated}
	key := "admission.max"
	if refusal.Tenant {
		ae.reason, key = reasonTenantSaturated, "admission.tenant_max"
		if !strings.HasPrefix(userAgent, "Grafana/") {
			ae.code = http.StatusTooManyRequests
		}
	}
	ae.err = fmt.Errorf("admission: %w. Try again in some seconds, or ask for less at a time; an operator can raise %s. See %s", refusal, key, admissionDoc)
	p.reject(w, ae)
}

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
	followers int
	done      chan struct{}
	// Read after done: the answer, the error, or neither if each must send its
	// own.
	header http.Header
	status int
	body   []byte
	whole  bool
	err    error
}

func newCollapser(send func(*http.Request) (*http.Response, error), joined func()) *collapser {
	return &collapser{send: send, joined: joined, flights: map[string]*flight{}}
}

func (c *collapser) roundTrip(req *http.Request, key string) (*http.Response, error) {
	c.mu.Lock()
	if f, ok := c.flights[key]; ok {
		f.followers++
		c.mu.Unlock()
		c.joined()
		return c.follow(req, f)
	}
	f := &flight{done: make(chan struct{})}
	c.flights[key] = f
	c.mu.Unlock()
	return c.lead(req, key, f)
}

func (c *collapser) follow(req *http.Request, f *flight) (*http.Response, error) {
	select {
	case <-f.done:
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	switch {
	case f.whole:
		return &http.Response{
			Status: http.StatusText(f.status), StatusCode: f.status, Header: f.header.Clone(), Request: req,
			Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Body: io.NopCloser(strings.NewReader(string(f.body))), ContentLength: int64(len(f.body)),
		}, nil
	case f.err != nil:
		return nil, f.err
	default:
		return c.send(req)
	}
}

// lead sends the request. After its headers nobody joins any more, so that an
// answer is kept only where somebody waits for it.
func (c *collapser) lead(req *http.Request, key string, f *flight) (res *http.Response, err error) {
	left := true // Also if send panics.
	defer func() {
		if left {
			c.leave(key, f)
			close(f.done)
		}
	}()
	res, err = c.send(req)
	if err != nil {
		if req.Context().Err() == nil {
			f.err = err // The request may be what broke the server: it is not sent again.
		}
		return nil, err
	}
	c.leave(key, f)
	if f.followers == 0 {
		return res, nil
	}
	left = false
	f.header, f.status = res.Header.Clone(), res.StatusCode
	res.Body = &sharedBody{ReadCloser: res.Body, flight: f, collapser: c, request: req}
	return res, nil
}

func (c *collapser) leave(key string, f *flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flights[key] == f {
		delete(c.flights, key)
	}
}

// keep reports whether n more bytes may be kept, and counts them.
func (c *collapser) keep(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shared+n > maxSharedTotal {
		return false
	}
	c.shared += n
	return true
}

// sharedBody keeps an answer while it is read, for those who wait for it.
type sharedBody struct {
	io.ReadCloser

	flight    *flight
	collapser *collapser
	request   *http.Request
	kept      int
	over      bool
}

// Read implements io.Reader.
func (b *sharedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.over {
		return n, err
	}
	if b.kept+n > maxShared || !b.collapser.keep(n) {
		b.finish(false, nil)
		return n, err
	}
	b.kept += n
	b.flight.body = append(b.flight.body, p[:n]...)
	switch {
	case errors.Is(err, io.EOF):
		b.finish(true, nil)
	case err != nil && b.request.Context().Err() == nil:
		b.finish(false, err)
	case err != nil:
		b.finish(false, nil)
	}
	return n, err
}

// Close implements io.Closer.
func (b *sharedBody) Close() error {
	b.finish(false, nil)
	return b.ReadCloser.Close()
}

func (b *sharedBody) finish(whole bool, err error) {
	if b.over {
		return
	}
	b.over = true
	b.flight.whole, b.flight.err = whole, err
	if !whole {
		b.flight.body = nil
	}
	b.collapser.keep(-b.kept)
	close(b.flight.done)
}

// saysNothing are headers that differ between requests for the same answer. All
// others may be what an answer depends on, and are a part of the key.
var saysNothing = map[string]bool{
	"User-Agent": true, "X-Forwarded-For": true, "X-Forwarded-Host": true, "X-Forwarded-Proto": true,
	"Traceparent": true, "Tracestate": true, "X-Request-Id": true, "Content-Length": true,
	"X-Dashboard-Uid": true, "X-Dashboard-Title": true, "X-Panel-Id": true, "X-Panel-Title": true, "X-Panel-Plugin-Id": true,
	"X-Query-Group-Id": true, "X-Datasource-Uid": true, "X-Grafana-From-Expr": true, "Fromalert": true,
	"X-Rule-Uid": true, "X-Rule-Name": true, "X-Rule-Folder": true, "X-Rule-Source": true, "X-Rule-Type": true, "X-Rule-Version": true,
}

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
	for _, name := range sortedNames(req.Header) {
		for _, value := range req.Header[name] {
			b.WriteByte('\n')
			b.WriteString(name)
			b.WriteByte(':')
			b.WriteString(value)
		}
	}
	return b.String()
}

func sortedNames(h http.Header) []string {
	names := make([]string, 0, len(h))
	for name := range h {
		if !saysNothing[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
