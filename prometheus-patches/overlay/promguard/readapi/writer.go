// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package readapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/prometheus/prometheus/promguard/reads"
)

const (
	// writeChunk is how much of an answer is written between two looks at the
	// context and at the client's rate, in bytes.
	writeChunk = 64 << 10
	// writeGrace is how long an error may take to be written.
	writeGrace = time.Second
	// stallAfter is how long a client may take for a piece of its answer before the
	// read gives back its place: others do not wait for clients.
	stallAfter = 100 * time.Millisecond
	// retryAfter is when a client may come again after a 503, in seconds.
	retryAfter = "5"
	// headerStopping is by which upstream tells a server that ends, "true", from one
	// that is not ready yet.
	headerStopping = "X-Prometheus-Stopping"
)

// writer is the http.ResponseWriter of a limited request. If the read has been
// stopped before the handler writes its header, the answer is the reason for
// that, whatever the handler answers. If it is stopped later, the answer is cut
// off.
type writer struct {
	http.ResponseWriter
	ctx      context.Context
	read     *reads.Read
	endpoint *endpoint
	handlers *Handlers
	request  *http.Request
	// clock is the request's deadline, if that stands still for the client.
	clock *clock
	pace  pace
	until time.Time // When a client that is waited for is too slow.
	// header is what the header was before the handler ran.
	header http.Header
	// place gives back the read's place in its pool; nil if it has none yet.
	place func()

	running     bool // The handler has not returned; in finish, it panicked.
	wroteHeader bool
	replaced    bool // An error was sent: what the handler writes is dropped.
	aborted     bool // The answer is incomplete and must not look complete.
	slow        bool // The client reads too slowly.

	mtx sync.Mutex
	// cuttable says that a Write may be cut off when the read ends: the answer
	// has begun, and the handler has not returned.
	cuttable bool
	ended    bool // The handler has returned.
}

// Unwrap is for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *writer) WriteHeader(code int) {
	if w.wroteHeader || w.replaced {
		return
	}
	if !w.read.Begun() {
		w.replaced = true // The handler runs again.
		return
	}
	if stop := reads.Stopped(w.ctx); stop != nil {
		w.replaceByStop(stop)
		return
	}
	if code == http.StatusServiceUnavailable && w.endpoint.json && w.Header().Get(headerStopping) != "" {
		w.refuse(code, "unavailable", w.handlers.notReady(w.Header()))
		return
	}
	// Informational headers come before the real one.
	if w.wroteHeader = code >= http.StatusOK; w.wroteHeader {
		w.setCuttable()
		if w.clock != nil { // The server's own deadline would end the context. Nothing more is to be read.
			_ = http.NewResponseController(w.ResponseWriter).SetReadDeadline(time.Time{})
		}
	}
	w.sayWhenToRetry(code)
	w.ResponseWriter.WriteHeader(code)
}

func (w *writer) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.replaced {
		return len(p), nil
	}
	written := 0
	for {
		if err := reads.Check(w.ctx); err != nil {
			w.aborted = true
			return written, w.writeError(err)
		}
		chunk := p[written:min(written+writeChunk, len(p))]
		n, err := w.await(func() (int, error) { return w.ResponseWriter.Write(chunk) })
		written += n
		w.read.Wrote(n)
		if err != nil {
			w.aborted = true
			return written, w.writeError(err)
		}
		if written == len(p) {
			return written, nil
		}
	}
}

// await writes to the client, which may have to wait for it. The read has no processor
// and no place meanwhile, and its deadline stands still.
func (w *writer) await(write func() (int, error)) (int, error) {
	w.expect()
	long := w.read.Wait()
	w.clock.pause()
	stalled := time.AfterFunc(stallAfter, w.leave)
	began := time.Now()
	n, err := write()
	stalled.Stop()
	w.pace.took(n, time.Since(began))
	w.clock.resume()
	if w.request.ProtoMajor == 2 {
		w.expectNothing()
	}
	if long && err == nil {
		_ = w.read.Yield(w.ctx) // The next look at the context is for errors.
	}
	return n, err
}

// leave gives back the read's place, if it has one.
func (w *writer) leave() {
	if w.place != nil {
		w.place()
	}
}

// restart makes the writer ready for a handler, which may have run before.
func (w *writer) restart() {
	w.leave()
	w.replaced = false
	clear(w.Header())
	maps.Copy(w.Header(), w.header)
}

// expect bounds how long what is written next may take.
func (w *writer) expect() {
	if w.pace.rate > 0 {
		w.mtx.Lock()
		defer w.mtx.Unlock()
		if w.ctx.Err() == nil { // Else unblock has set the last deadline.
			w.until = time.Now().Add(w.pace.left)
			w.setWriteDeadline(w.until)
		}
	}
}

// expectNothing lets the time until the next Write be as long as it may. Over
// HTTP/2 a write deadline that passes between two writes breaks the answer.
func (w *writer) expectNothing() {
	w.mtx.Lock()
	defer w.mtx.Unlock()
	if w.ctx.Err() == nil {
		w.setWriteDeadline(time.Time{})
	}
}

// writeError says why a Write failed, and stops the read, so that nothing more
// is made for a client that is gone.
func (w *writer) writeError(err error) error {
	if reads.Stopped(w.ctx) != nil {
		return err
	}
	// Over HTTP/2 the server ends the context, and a Write may not hear of anything else.
	if errors.Is(err, os.ErrDeadlineExceeded) || !w.until.IsZero() && time.Now().After(w.until) {
		w.slow = true
		return &reads.Stop{Reason: reads.ReasonSlow, Text: fmt.Sprintf("the client reads fewer than --guard.min-client-rate=%d bytes per second", w.handlers.opts.MinClientRate)}
	}
	w.read.Stop(&reads.Stop{Reason: reads.ReasonBroken, Text: err.Error()})
	return err
}

// unblock ends a Write that waits for the client when the read has ended: a
// Write does not look at the context.
func (w *writer) unblock() {
	w.mtx.Lock()
	defer w.mtx.Unlock()
	if w.cuttable && !w.ended {
		w.setWriteDeadline(time.Unix(1, 0))
	}
}

func (w *writer) setCuttable() {
	w.mtx.Lock()
	w.cuttable = true
	w.mtx.Unlock()
	if w.ctx.Err() != nil {
		w.unblock()
	}
}

// finish ends the answer of a handler that has returned. A handler that looks
// at the context may have returned early and silently, as if there was nobody
// left to answer to.
func (w *writer) finish() {
	w.mtx.Lock()
	w.ended = true
	w.mtx.Unlock()
	switch {
	case w.running:
		w.aborted = true // The panic goes on, and breaks the connection.
	case w.ctx.Err() == nil || w.replaced || w.aborted:
	case w.wroteHeader:
		// It may be incomplete: nobody but the handler knows.
		w.aborted = true
	case reads.Stopped(w.ctx) != nil:
		w.WriteHeader(http.StatusOK) // Replaced by the reason.
	default:
		w.aborted = true // The client has left, perhaps only half: no answer is not an empty one.
	}
	if w.wroteHeader && w.ctx.Err() == nil {
		w.expect() // The server has the last bytes yet to send.
	}
	w.handlers.metrics.finished(w)
	if w.aborted && !w.running {
		w.abort()
	}
}

// Flush is for handlers that stream.
func (w *writer) Flush() {
	w.WriteHeader(http.StatusOK)
	if !w.replaced {
		_, _ = w.await(func() (int, error) { return 0, http.NewResponseController(w.ResponseWriter).Flush() })
	}
}

// setWriteDeadline bounds how long a Write may wait for the client. The server
// clears it before the connection's next request. Writers that cannot do it, as
// in tests, go without.
func (w *writer) setWriteDeadline(t time.Time) {
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(t)
}

// abort makes the connection fail, so that the client does not take an
// incomplete answer for a complete one. A write deadline in the past does that
// without the stack trace that a panic with http.ErrAbortHandler leaves in
// Prometheus's log. A client that speaks HTTP/1.0 cannot tell: there the end of
// the connection is the end of the answer.
func (w *writer) abort() {
	if err := http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Unix(1, 0)); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// replaceByStop answers with the reason why the read was stopped.
func (w *writer) replaceByStop(stop *reads.Stop) {
	switch stop.Reason {
	case reads.ReasonDeadline:
		w.refuse(http.StatusServiceUnavailable, "timeout", stop)
	case reads.ReasonTooLarge, reads.ReasonText:
		w.refuse(http.StatusUnprocessableEntity, "execution", stop)
	case reads.ReasonShutdown:
		// As upstream answers from now on: whoever has another server may ask that.
		w.Header().Set(headerStopping, "true")
		w.refuse(http.StatusServiceUnavailable, "unavailable", stop)
		// The server drops the connection, perhaps before it has sent what it buffers.
		_ = http.NewResponseController(w.ResponseWriter).Flush()
	default:
		w.refuse(http.StatusServiceUnavailable, "unavailable", stop)
	}
}

// sayWhenToRetry puts into every 503 when the client may come again.
func (w *writer) sayWhenToRetry(code int) {
	if code == http.StatusServiceUnavailable && w.Header().Get("Retry-After") == "" {
		w.Header().Set("Retry-After", retryAfter)
	}
}

// refuse answers with an error as the endpoint's clients understand it.
func (w *writer) refuse(code int, errorType string, err error) {
	w.replaced = true
	w.setWriteDeadline(time.Now().Add(writeGrace))
	// What a handler had meant for its own answer.
	w.Header().Del("Content-Encoding")
	w.Header().Del("Content-Length")
	w.sayWhenToRetry(code)
	if !w.endpoint.json {
		http.Error(w.ResponseWriter, err.Error(), code)
		return
	}
	w.handlers.setCORS(w.ResponseWriter, w.request)
	respond(w.ResponseWriter, code, envelope{Status: "error", ErrorType: errorType, Error: err.Error()})
}

// notReady says why the server does not answer yet, or any more.
func (h *Handlers) notReady(header http.Header) error {
	if header.Get(headerStopping) == "true" {
		return errors.New("the server is shutting down")
	}
	if h.opts.Replay != nil {
		if progress := h.opts.Replay(); progress != "" {
			return fmt.Errorf("the server is not ready: %s", progress)
		}
	}
	return errors.New("the server is not ready")
}
