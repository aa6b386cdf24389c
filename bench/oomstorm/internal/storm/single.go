// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package storm

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"time"
)

// Single is one request on its own.
type Single struct {
	// Outcome is the status code, or one of the outcomes.
	Outcome string
	// FirstByte is from the request to the first byte of the answer's body; 0 if
	// there was none.
	FirstByte time.Duration
	// Total is from the request to the end of the answer or of the wait for it.
	Total time.Duration
	Bytes int64
}

// Once makes one request and reads the answer to its end. With leave above 0,
// the client leaves after that time; otherwise it leaves after timeout.
func Once(ctx context.Context, b Builder, k Kind, gzip bool, leave, timeout time.Duration) (Single, error) {
	limit := timeout
	if leave > 0 {
		limit = leave
	}
	inner, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := b.Build(inner, k, rand.New(rand.NewPCG(1, 1)), gzip, false)
	if err != nil {
		return Single{}, err
	}
	transport := &http.Transport{DisableKeepAlives: true, DisableCompression: true, ReadBufferSize: readBuffer}
	begin := time.Now()
	var s Single
	status := 0
	res, err := transport.RoundTrip(req)
	if err == nil {
		status = res.StatusCode
		first := &firstByte{Reader: res.Body}
		s.Bytes, err = drain(first, make([]byte, readBuffer))
		res.Body.Close()
		if !first.at.IsZero() {
			s.FirstByte = first.at.Sub(begin)
		}
	}
	s.Total = time.Since(begin)
	if ctx.Err() != nil {
		return Single{}, context.Cause(ctx)
	}
	s.Outcome = classify(ctx, inner, status, leave > 0, err)
	return s, nil
}

// firstByte notes when the first byte was read.
type firstByte struct {
	io.Reader
	at time.Time
}

func (f *firstByte) Read(b []byte) (int, error) {
	n, err := f.Reader.Read(b)
	if n > 0 && f.at.IsZero() {
		f.at = time.Now()
	}
	return n, err
}
