// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package readapi

import (
	"bytes"
	"fmt"
	"io"
	"net/http"

	"github.com/golang/snappy"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage/remote"
)

// A remote read request is larger in memory than on the wire: a query or a matcher
// of no bytes is two bytes there, and a hundred once it is decoded.
const (
	// maxReadRequest is the most bytes of a remote read request, not compressed.
	maxReadRequest = 1 << 20
	// maxReadQueries and maxReadMatchers are the most queries of a request, and
	// matchers of all of them together.
	maxReadQueries  = 1000
	maxReadMatchers = 10_000
)

// scanRead reads the body of a remote read request and leaves it for the handler. It
// returns what is looked at before the request has its turn, or an error if the request
// costs too much to decode.
func scanRead(r *http.Request) (s readScan, err error) {
	compressed, err := io.ReadAll(r.Body)
	if err != nil {
		return s, err
	}
	r.Body = readAgain{bytes.NewReader(compressed)}
	size, err := snappy.DecodedLen(compressed)
	if err != nil {
		return s, nil // The handler says what is wrong with it.
	}
	if size > maxReadRequest {
		return s, fmt.Errorf("Send fewer queries in a request: this one has %d bytes, and at most %d are allowed", size, maxReadRequest) //nolint:staticcheck // It is what a client reads.
	}
	request, err := snappy.Decode(nil, compressed)
	if err != nil {
		return s, nil
	}
	return s, s.request(request)
}

// readAgain is a body that can be read from its start again.
type readAgain struct{ *bytes.Reader }

// Close implements io.Closer.
func (readAgain) Close() error { return nil }

// readScan is what is looked at before a request has its turn.
type readScan struct {
	// regexes are compiled before anything else is looked at.
	regexes []string
	// chunks says that the answer is chunks that are streamed.
	chunks bool
}

// request looks through a remote read request. What is none is left to the handler.
func (s *readScan) request(b []byte) error {
	if err := bounded(b); err != nil {
		return err
	}
	var r prompb.ReadRequest
	if r.Unmarshal(b) != nil {
		return nil
	}
	kind, err := remote.NegotiateResponseType(r.AcceptedResponseTypes)
	s.chunks = err == nil && kind == prompb.ReadRequest_STREAMED_XOR_CHUNKS
	for _, q := range r.Queries {
		for _, m := range q.Matchers {
			if m.Type == prompb.LabelMatcher_RE || m.Type == prompb.LabelMatcher_NRE {
				s.regexes = append(s.regexes, m.Value)
			}
		}
	}
	return nil
}

// bounded refuses a request that would take more than its share of memory once it is
// decoded. A label that a query groups by counts as a matcher.
func bounded(b []byte) error {
	queries, matchers := 0, 0
	more := func(n *int, most int, what string) error {
		*n++
		if *n > most {
			return fmt.Errorf("Send fewer queries in a request: this one has more than %d%s", most, what) //nolint:staticcheck // It is what a client reads.
		}
		return nil
	}
	inHints := func(number protowire.Number, _ []byte) error {
		if number == 5 { // grouping
			return more(&matchers, maxReadMatchers, " matchers")
		}
		return nil
	}
	inQuery := func(number protowire.Number, value []byte) error {
		switch number {
		case 3: // matchers
			return more(&matchers, maxReadMatchers, " matchers")
		case 4: // hints
			return eachMessage(value, inHints)
		}
		return nil
	}
	return eachMessage(b, func(number protowire.Number, value []byte) error {
		if number != 1 { // queries
			return nil
		}
		if err := more(&queries, maxReadQueries, ""); err != nil {
			return err
		}
		return eachMessage(value, inQuery)
	})
}

// eachMessage calls f for each field that has bytes, of a message on the wire, up to where
// that is malformed.
func eachMessage(b []byte, f func(number protowire.Number, value []byte) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return nil
		}
		if value, _ := protowire.ConsumeBytes(b); kind == protowire.BytesType {
			if err := f(number, value); err != nil {
				return err
			}
		}
		b = b[n:]
	}
	return nil
}
