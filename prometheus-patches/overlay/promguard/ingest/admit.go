// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/golang/snappy"
)

const (
	// maxReceived is the most bytes of a request, as sent and as decompressed. The handlers
	// refuse what is larger.
	maxReceived = 32 << 20
	// mostDecoded is how much more a request may take in memory than its bytes: a data point
	// or a histogram of no bytes takes two of them.
	mostDecoded = 256
	// usuallyDecoded is how much more it takes that somebody has sent for its samples.
	usuallyDecoded = 8
	// requestPart is the part of the memory limit that a request may take.
	requestPart = 4
	// patience is how long a request waits for memory, and looks when there is some.
	patience = 5 * time.Second
	patrol   = 50 * time.Millisecond
)

var errNoRoom = errors.New("there is no memory for this request now: send it again")

// admit lets a request to h when there is memory for it. One that finds none is told to come
// back, and one that never could be let in that it is too large.
func (g *Gate) admit(source Source, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit := g.Limit()
		if limit <= 0 || r.Method != http.MethodPost {
			h.ServeHTTP(w, r)
			return
		}
		read := &request{gate: g, source: source}
		defer read.done()
		err := read.body(r)
		if err == nil {
			err = read.memory(r.Context(), limit/requestPart)
		}
		switch {
		case errors.Is(err, errNoRoom):
			w.Header().Set("Retry-After", "5")
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		case errors.Is(err, errTooLarge), errors.Is(err, errTooLong):
			http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		case err != nil:
			http.Error(w, err.Error(), http.StatusBadRequest)
		default:
			h.ServeHTTP(w, r)
		}
	})
}

var (
	errTooLarge = errors.New("too large for the memory limit (--guard.memory-limit)")
	errTooLong  = fmt.Errorf("request body exceeds the %d bytes limit", maxReceived) // As upstream says it.
)

// request is one that is read before it is decoded.
type request struct {
	gate   *Gate
	source Source
	json   bool
	// symbols says that it is one of remote write 2.
	symbols bool
	sent    []byte
	plain   []byte // What was sent, decompressed.
	size    int64  // Of what is decompressed.
	taken   int64
	worst   int64
}

// done gives back what the request took.
func (q *request) done() {
	q.give(q.taken)
	q.gate.worst.Add(-q.worst)
}

// take counts bytes that are allocated next, or says that there is no room for them.
func (q *request) take(bytes int64) bool {
	ok := q.gate.Take(bytes)
	if ok {
		q.gate.room.pending.Add(bytes)
		q.taken += bytes
	}
	return ok
}

func (q *request) give(bytes int64) {
	q.gate.room.pending.Add(-bytes)
	q.gate.Give(bytes)
	q.taken -= bytes
}

// body reads the body and leaves it for the handler, decompressed if it is of gzip, as that
// does not say how much it is going to be.
func (q *request) body(r *http.Request) (err error) {
	if q.source == RemoteWrite && r.ContentLength > maxReceived {
		// A client that is still sending would see a reset connection, and send it again.
		_, _ = io.CopyN(io.Discard, r.Body, maxReceived+1)
		return errTooLong
	}
	if q.sent, err = q.readAll(r.Body, r.ContentLength); err != nil {
		return err
	}
	_ = r.Body.Close()
	q.json, q.size = isJSON(r), int64(len(q.sent))
	q.symbols = strings.Contains(r.Header.Get("Content-Type"), "v2.Request")
	switch encoding := r.Header.Get("Content-Encoding"); {
	case q.source == RemoteWrite:
		size, err := snappy.DecodedLen(q.sent)
		if err != nil || size > maxReceived {
			size = 0 // The handler says what is wrong with it, and decodes nothing.
		}
		q.size = int64(size)
	case encoding == "gzip":
		if err := q.gunzip(r); err != nil {
			return err
		}
	default:
		q.plain = q.sent
	}
	r.Body = io.NopCloser(bytes.NewReader(q.sent))
	return nil
}

func (q *request) gunzip(r *http.Request) error {
	z, err := gzip.NewReader(bytes.NewReader(q.sent))
	if err != nil {
		return nil //nolint:nilerr // The handler says so.
	}
	plain, err := q.readAll(z, -1)
	switch {
	case errors.Is(err, errNoRoom):
		return err
	case err != nil:
		return nil // The handler says so.
	}
	r.Header.Del("Content-Encoding")
	q.sent, q.plain, q.size = plain, plain, int64(len(plain))
	return nil
}

// readAll reads no more than one byte more than a request may have, into a buffer that
// grows as bytes come, up to what they are said to be, if that is known.
func (q *request) readAll(r io.Reader, said int64) (b []byte, err error) {
	most := int64(maxReceived + 1)
	if said >= 0 {
		most = min(most, said+1) // The last byte is to see the end.
	}
	for err == nil && int64(len(b)) < most {
		if size := min(max(step, 2*int64(cap(b))), most); len(b) == cap(b) {
			if !q.take(size) {
				return nil, errNoRoom
			}
			grown := make([]byte, len(b), size)
			copy(grown, b)
			q.give(int64(cap(b)))
			b = grown
		}
		var n int
		n, err = r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
	}
	if err == io.EOF {
		err = nil
	}
	return b, err
}

// memory waits until there is memory for what the request is decoded to, of which no more than
// most may be needed.
func (q *request) memory(ctx context.Context, most int64) error {
	if q.symbols {
		if err := await(ctx, q.decompress); err != nil {
			return err
		}
	}
	built := q.built()
	q.worst = mostDecoded*q.size + built
	all := q.gate.worst.Add(q.worst)
	if left, _ := q.gate.room.left(); all <= left && q.take(usuallyDecoded*q.size) {
		return nil
	}
	if err := await(ctx, q.decompress); err != nil {
		return err
	}
	need := q.need()
	if q.json { // Then built is a guess, which is no reason to refuse the request for ever.
		built = min(built, max(0, most-need))
	}
	if need += built; need > most {
		return fmt.Errorf("%w: it takes %d bytes decoded, and at most %d are allowed: send less at once", errTooLarge, need, most)
	}
	return await(ctx, func() bool { return q.take(need) })
}

// await waits until there is memory, which ok takes, or patience is at its end.
func await(ctx context.Context, ok func() bool) error {
	for deadline := time.Now().Add(patience); !ok(); {
		if time.Now().After(deadline) {
			return errNoRoom
		}
		select {
		case <-ctx.Done():
			return errNoRoom
		case <-time.After(patrol):
		}
	}
	return nil
}

// built is how many bytes of labels are built of the request. Where many series refer to one
// text, that may be a thousand times as much as was sent.
func (q *request) built() int64 {
	switch {
	case q.source == RemoteWrite && q.symbols:
		return builtOfSymbols(q.plain)
	case q.source == RemoteWrite:
		return 0
	case q.json:
		return longestText(q.plain) * int64(bytes.Count(q.plain, []byte("{")))
	default:
		return builtOfMetrics(q.plain, 0)
	}
}

// decompress has plain be what was sent as it was before it was compressed, unless there is
// no room for it. What is wrong with it the handler says.
func (q *request) decompress() bool {
	if q.source != RemoteWrite || q.plain != nil || q.size == 0 {
		return true
	}
	if !q.take(q.size) {
		return false
	}
	q.plain, _ = snappy.Decode(nil, q.sent)
	return true
}

// need is what the request takes while it is decoded.
func (q *request) need() int64 {
	// The handlers have it as it was sent, decompressed, and once more.
	raw := 4 * q.size
	switch {
	case q.source == OTLP && q.json:
		return raw + 8*q.size + messageBytes*int64(bytes.Count(q.plain, []byte("{")))
	case q.source == OTLP:
		return raw + otlpRequest.decoded(q.plain, 0)
	case q.symbols:
		return raw + writeRequest2.decoded(q.plain, 0)
	default:
		return raw + writeRequest.decoded(q.plain, 0)
	}
}
