// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"

	"github.com/promguard/promguard/internal/proxy/canonical"
	"github.com/promguard/promguard/internal/proxy/upstream"
	"github.com/promguard/promguard/internal/querylimit"
)

// Reasons of promguard_upstream_resent_total: why a request may go to a second
// server.
const (
	resentUnsent   = "not_sent"  // there was no connection to the first
	resentNotReady = "not_ready" // the first said that it is not ready
	resentLight    = "light"     // the first broke, and not because of this request
)

// send sends a request to the server that is read from. If that fails before an
// answer has begun, and the server has not worked on it or the request is light,
// another server gets it, once.
func (p *Proxy) send(req *http.Request, t *trip) (*http.Response, error) {
	status := t.request.Endpoint.Class == querylimit.ClassStatus
	first, err := p.pool.Pick(status)
	if err != nil {
		return nil, err
	}
	path := *req.URL
	first.Locate(req.URL)
	res, err := p.sendTo(first, req)
	if p.pool.Alone() || req.Context().Err() != nil {
		return res, err
	}
	reason := p.failure(t, first, res, err)
	if reason == "" {
		return res, err
	}
	second := p.pool.Other(first)
	switch {
	case second == nil && reason == resentUnsent:
		return nil, p.pool.Unavailable()
	case second == nil:
		return res, err
	}
	if res != nil {
		_, _ = io.CopyN(io.Discard, res.Body, 4<<10) // So that the connection can be used again.
		_ = res.Body.Close()
	}
	p.metrics.resent.WithLabelValues(reason).Inc()
	again, err := canonical.Again(req)
	if err != nil {
		return nil, err
	}
	*again.URL = path // A clone has a URL of its own.
	second.Locate(again.URL)
	return p.sendTo(second, again)
}

// headerServer says which of several servers gave an answer.
const headerServer = "X-Promguard-Upstream"

// sendTo sends a request to one server, and returns when its answer has begun, or the
// server is gone.
func (p *Proxy) sendTo(s *upstream.Server, req *http.Request) (*http.Response, error) {
	if p.pool.Alone() {
		return p.begun(req)
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	alive := p.pool.Alive(s)
	stop := context.AfterFunc(alive, func() { cancel(context.Cause(alive)) })
	defer stop() // The context ends with that of the request.
	res, err := p.begun(req.WithContext(ctx))
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, upstream.ErrGone) {
			err = cause
		}
		cancel(nil)
		return nil, err
	}
	res.Header.Set(headerServer, strconv.Itoa(s.Number()))
	return res, nil
}

// heldBack is how much of an answer is read before any of it is passed on: a client
// cannot be told of an error once its status has gone.
const heldBack = 32 << 10

// begun sends a request, and reads the beginning of the answer. One that breaks off
// there is an error.
func (p *Proxy) begun(req *http.Request) (*http.Response, error) {
	res, err := p.transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	var begin bytes.Buffer
	if 0 < res.ContentLength && res.ContentLength <= heldBack {
		begin.Grow(int(res.ContentLength) + bytes.MinRead) // So that it is read in one go.
	}
	if _, err := begin.ReadFrom(io.LimitReader(res.Body, heldBack)); err != nil {
		_ = res.Body.Close()
		return nil, err
	}
	rest := res.Body
	if res.Body = (readCloser{&begin, rest}); begin.Len() == heldBack {
		res.Body = readCloser{io.MultiReader(&begin, rest), rest}
	}
	return res, nil
}

// failure tells the pool what an answer, or none, says about a server, and returns
// why the request may go to another one, or "".
func (p *Proxy) failure(t *trip, s *upstream.Server, res *http.Response, err error) string {
	switch op, _ := errors.AsType[*net.OpError](err); {
	case err == nil && res.StatusCode == http.StatusServiceUnavailable && res.Header.Get("X-Prometheus-Stopping") != "":
		p.pool.Failed(s, upstream.NotReady) // It works on nothing then.
		return resentNotReady
	case err == nil:
		return ""
	case op != nil && op.Op == "dial":
		p.pool.Failed(s, upstream.Away)
		return resentUnsent
	}
	p.pool.Suspect(s)
	if t.request.Light() {
		return resentLight
	}
	return ""
}
