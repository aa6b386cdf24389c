// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package deadline

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// writeChunk is how much of an answer is written between two looks at the
// context, in bytes.
const writeChunk = 64 << 10

// writeGrace is how much longer than to the deadline a Write may wait for the
// client.
const writeGrace = time.Second

// writer is the http.ResponseWriter of a bounded request. If the deadline has
// passed before the handler writes its header, the answer is the deadline's
// error whatever the handler answers. If it passes later, the answer is cut off.
type writer struct {
	http.ResponseWriter
	ctx      context.Context
	endpoint endpoint

	wroteHeader bool
	replaced    bool // The deadline's error was sent: what the handler writes is dropped.
	aborted     bool // The answer is incomplete and must not look complete.
}

// Unwrap is for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *writer) WriteHeader(code int) {
	if w.wroteHeader || w.replaced {
		return
	}
	if cause := exceeded(w.ctx); cause != nil {
		w.replaced = true
		w.setWriteDeadline(time.Now().Add(writeGrace))
		w.endpoint.respond(w.ResponseWriter, http.StatusServiceUnavailable, "timeout", cause)
		return
	}
	// Informational headers come before the real one.
	if w.wroteHeader = code >= http.StatusOK; w.wroteHeader {
		// A Write that waits for the client does not look at the context. The
		// server clears the write deadline before the connection's next request.
		if deadline, ok := w.ctx.Deadline(); ok {
			w.setWriteDeadline(deadline.Add(writeGrace))
		}
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *writer) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.replaced {
		return len(p), nil
	}
	written := 0
	for {
		if w.ctx.Err() != nil {
			w.aborted = true
			return written, context.Cause(w.ctx)
		}
		chunk := p[written:min(written+writeChunk, len(p))]
		n, err := w.ResponseWriter.Write(chunk)
		written += n
		if err != nil {
			w.aborted = true
			return written, err
		}
		if written == len(p) {
			return written, nil
		}
	}
}

// finish ends the answer of a handler that has returned. A handler that looks
// at the context may have returned early and silently, as if there was nobody
// left to answer to.
func (w *writer) finish() {
	switch {
	case w.ctx.Err() == nil || w.replaced || w.aborted:
	case w.wroteHeader:
		// It may be incomplete: nobody but the handler knows.
		w.aborted = true
	case exceeded(w.ctx) != nil:
		w.WriteHeader(http.StatusOK) // Replaced by the deadline's error.
	}
}

// Flush is for handlers that stream.
func (w *writer) Flush() {
	w.WriteHeader(http.StatusOK)
	if !w.replaced {
		_ = http.NewResponseController(w.ResponseWriter).Flush()
	}
}

// setWriteDeadline bounds how long a Write may wait for the client. Writers
// that cannot do it, as in tests, go without.
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

// respond writes an error as the endpoint's clients understand it.
func (e endpoint) respond(w http.ResponseWriter, code int, errorType string, err error) {
	// What a handler had meant for its own answer.
	w.Header().Del("Content-Encoding")
	w.Header().Del("Content-Length")
	if !e.json {
		http.Error(w, err.Error(), code)
		return
	}
	body, _ := json.Marshal(struct {
		Status    string `json:"status"`
		ErrorType string `json:"errorType"`
		Error     string `json:"error"`
	}{"error", errorType, err.Error()})
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(body)
}
