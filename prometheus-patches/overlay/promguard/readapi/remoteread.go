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

// Fields of the messages of a remote read request.
const (
	fieldQueries       = 1 // Of ReadRequest.
	fieldAcceptedTypes = 2 // Of ReadRequest.
	fieldMatchers      = 3 // Of Query.
	fieldHints         = 4 // Of Query.
	fieldMatcherType   = 1 // Of LabelMatcher.
	fieldMatcherValue  = 3 // Of LabelMatcher.
	fieldHintsGrouping = 5 // Of ReadHints.
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

// readScan looks through a remote read request without decoding it. What is no
// request is left to the handler.
type readScan struct {
	queries, matchers int
	// regexes are compiled before anything else is looked at.
	regexes []string
	// typed is set once the first type of answer that is accepted is known, and chunks if
	// that is chunks that are streamed.
	typed, chunks bool
}

func (s *readScan) request(b []byte) error {
	return eachField(b, func(field protowire.Number, number uint64, query []byte) error {
		switch field {
		case fieldAcceptedTypes:
			s.accepts(number, query)
			return nil
		case fieldQueries:
		default:
			return nil
		}
		s.queries++
		if s.queries > maxReadQueries {
			return fmt.Errorf("Send fewer queries in a request: this one has more than %d", maxReadQueries) //nolint:staticcheck // It is what a client reads.
		}
		return eachField(query, s.queryField)
	})
}

// accepts notes the first type of answer that the server knows, of a number or of a packed
// list of numbers.
func (s *readScan) accepts(number uint64, list []byte) {
	if list == nil {
		list = protowire.AppendVarint(nil, number)
	}
	for !s.typed && len(list) > 0 {
		number, n := protowire.ConsumeVarint(list)
		if n < 0 {
			return
		}
		list = list[n:]
		_, s.typed = prompb.ReadRequest_ResponseType_name[int32(number)]
		s.chunks = s.typed && prompb.ReadRequest_ResponseType(number) == prompb.ReadRequest_STREAMED_XOR_CHUNKS
	}
}

func (s *readScan) queryField(field protowire.Number, _ uint64, value []byte) error {
	switch field {
	case fieldMatchers:
		return s.matcher(value)
	case fieldHints:
		return eachField(value, func(field protowire.Number, _ uint64, _ []byte) error {
			if field == fieldHintsGrouping {
				return s.count()
			}
			return nil
		})
	}
	return nil
}

func (s *readScan) matcher(b []byte) error {
	var kind uint64
	var value []byte
	_ = eachField(b, func(field protowire.Number, number uint64, bytes []byte) error {
		switch field {
		case fieldMatcherType:
			kind = number
		case fieldMatcherValue:
			value = bytes
		}
		return nil
	})
	if t := prompb.LabelMatcher_Type(kind); t == prompb.LabelMatcher_RE || t == prompb.LabelMatcher_NRE {
		s.regexes = append(s.regexes, string(value))
	}
	return s.count()
}

// count counts a matcher, or a label that a query groups by.
func (s *readScan) count() error {
	s.matchers++
	if s.matchers > maxReadMatchers {
		return fmt.Errorf("Send fewer queries in a request: this one has more than %d matchers", maxReadMatchers) //nolint:staticcheck // It is what a client reads.
	}
	return nil
}

// eachField calls f for each field of a message, with its number or its bytes. It
// stops where the message is malformed.
func eachField(b []byte, f func(field protowire.Number, number uint64, bytes []byte) error) error {
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil
		}
		b = b[n:]
		var number uint64
		var bytes []byte
		switch kind {
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			bytes, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(field, kind, b)
		}
		if n < 0 {
			return nil
		}
		b = b[n:]
		if err := f(field, number, bytes); err != nil {
			return err
		}
	}
	return nil
}
