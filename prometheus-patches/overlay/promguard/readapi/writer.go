// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package readapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"runtime"
	"strconv"
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
	// holdMost is how many first bytes are held back: what compresses an answer writes
	// a few at once, and the next after some 64 KiB.
	holdMost = 16
	// retryAfter is when a client may come again, in seconds.
	retryAfter = "5"
	// headerStopping is by which upstream tells a server that ends, "true", from one
	// that is not ready yet.
	headerStopping = "X-Prometheus-Stopping"
)

// writer is the http.ResponseWriter of a limited request. If the read has been
// stopped before the handler writes its first byte, the answer is the reason for
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
	ran   time.Duration
	// header is what the header was before the handler ran.
	header http.Header
	// place gives back the read's place in its pool; nil if it has none yet.
	place func()
	// code is the handler's status, if it has set one, and held its first bytes, if they
	// are too few to begin the answer with, or all if holdsAll.
	code int
	held []byte
	// holdsAll holds the whole answer back, so that its length is sent first: over HTTP/1.0,
	// text without a length looks whole when it is cut off.
	holdsAll bool

	running     bool // The handler has not returned; in finish, it panicked.
	waits       bool // The read has no turn yet.
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

// WriteHeader notes the status. It is sent with the first bytes: what compresses an
// answer writes them long after the header.
func (w *writer) WriteHeader(code int) {
	switch {
	case w.replaced:
	case code < http.StatusOK: // The real one comes later.
		w.ResponseWriter.WriteHeader(code)
	case w.code == 0:
		w.code = code
	}
}

// begin sends the header, unless the answer is another one than the handler's.
func (w *writer) begin() {
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
	code := cmp.Or(w.code, http.StatusOK)
	if code == http.StatusServiceUnavailable && w.Header().Get(headerStopping) != "" {
		w.comeAgain()
		if w.endpoint.json {
			w.refuse(code, "unavailable", w.handlers.notReady(w.Header()))
			return
		}
	}
	w.wroteHeader = true
	if !w.endpoint.streams {
		w.leave()
	}
	w.setCuttable()
	if w.clock != nil { // The server's own deadline would end the context. Nothing more is to be read.
		_ = http.NewResponseController(w.ResponseWriter).SetReadDeadline(time.Time{})
	}
	held := w.held
	w.held = nil
	if w.holdsAll {
		w.Header().Set("Content-Length", strconv.Itoa(len(held)))
	}
	w.ResponseWriter.WriteHeader(code)
	if len(held) > 0 {
		_, _ = w.Write(held) // The next Write fails, too.
	}
}

func (w *writer) Write(p []byte) (int, error) {
	if !w.wroteHeader && !w.replaced && (w.holdsAll || len(w.held)+len(p) <= holdMost) {
		w.held = append(w.held, p...)
		if w.holdsAll {
			return len(p), w.read.Use(2 * int64(len(p))) // It grows.
		}
		return len(p), nil
	}
	w.begin()
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
	w.replaced, w.code, w.held = false, 0, nil
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
	case w.replaced || w.aborted:
	case w.ctx.Err() == nil || !w.wroteHeader && reads.Stopped(w.ctx) != nil:
		w.begin() // It may be a header alone, or the reason why the read was stopped.
	case w.wroteHeader:
		// It may be incomplete: nobody but the handler knows.
		w.aborted = true
	default:
		w.aborted = true // The client has left, perhaps only half: no answer is not an empty one.
	}
	if w.wroteHeader && w.ctx.Err() == nil {
		w.expect() // The server has the last bytes yet to send.
	}
	w.handlers.metrics.finished(w)
	w.handlers.seen.note(w)
	if w.aborted && !w.running {
		w.abort()
	}
}

// Flush is for handlers that stream.
func (w *writer) Flush() {
	if w.holdsAll {
		return
	}
	w.begin()
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
// Prometheus's log. A client that speaks HTTP/1.0 sees that the JSON or the length is
// incomplete.
func (w *writer) abort() {
	if err := http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Unix(1, 0)); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// replaceByStop answers with the reason why the read was stopped. A client is asked to
// come again where that has to do with others, not with what it asked for.
func (w *writer) replaceByStop(stop *reads.Stop) {
	code, errorType := http.StatusServiceUnavailable, "unavailable"
	switch stop.Reason {
	case reads.ReasonDeadline:
		errorType = "timeout"
		if w.waits || w.handlers.table.Running() > runtime.GOMAXPROCS(0) { // Else it would take as long again.
			w.comeAgain()
		}
	case reads.ReasonTooLarge, reads.ReasonText:
		code, errorType = http.StatusUnprocessableEntity, "execution"
	case reads.ReasonOperator:
	case reads.ReasonShutdown:
		// As upstream answers from now on: whoever has another server may ask that.
		w.Header().Set(headerStopping, "true")
		w.comeAgain()
	default:
		w.comeAgain()
	}
	w.refuse(code, errorType, stop)
	if stop.Reason == reads.ReasonShutdown {
		// The server drops the connection, perhaps before it has sent what it buffers.
		_ = http.NewResponseController(w.ResponseWriter).Flush()
	}
}

// comeAgain tells the client when it may come again.
func (w *writer) comeAgain() { w.Header().Set("Retry-After", retryAfter) }

// refuse answers with an error as the endpoint's clients understand it.
func (w *writer) refuse(code int, errorType string, err error) {
	w.replaced = true
	w.setWriteDeadline(time.Now().Add(writeGrace))
	// What a handler had meant for its own answer.
	w.Header().Del("Content-Encoding")
	w.Header().Del("Content-Length")
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
