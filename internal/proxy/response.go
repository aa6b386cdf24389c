// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"io"
	"net/http"
	"time"
)

// responseWriter remembers what was sent, and gives a client only so long to
// take each piece: a client that stops reading would otherwise hold a request of
// the upstream server for as long as it likes.
type responseWriter struct {
	http.ResponseWriter

	control  *http.ResponseController
	stall    time.Duration
	code     int // 0 before the headers
	bytes    int64
	writeErr error
	refused  *apiError // what promguard answers itself
}

func newResponseWriter(w http.ResponseWriter, stall time.Duration) *responseWriter {
	return &responseWriter{ResponseWriter: w, control: http.NewResponseController(w), stall: stall}
}

// Unwrap lets http.ResponseController find Flush and the rest.
func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *responseWriter) WriteHeader(code int) {
	if w.code == 0 && code >= 200 { // 1xx is not the answer yet.
		w.code = code
	}
	w.ResponseWriter.WriteHeader(code)
}

// Write implements io.Writer.
func (w *responseWriter) Write(p []byte) (int, error) {
	// An error means that the connection has no deadlines, as in tests.
	_ = w.control.SetWriteDeadline(time.Now().Add(w.stall))
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	if err != nil {
		w.writeErr = err
	}
	return n, err
}

// breakOff sends the headers of an answer that will not be whole, unless they are
// sent. Without them, a client would take its connection for one that had been
// closed before, and send the request again.
func (w *responseWriter) breakOff() {
	if w.code == 0 || w.code == statusClientGone {
		return
	}
	_ = w.control.SetWriteDeadline(time.Now().Add(w.stall)) // As in Write.
	_ = w.control.Flush()                                   // An error means that the client is gone.
}

func (w *responseWriter) setReadDeadline(t time.Time) { _ = w.control.SetReadDeadline(t) }

type readCloser struct {
	io.Reader
	io.Closer
}
