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
	fieldMatchers      = 3 // Of Query.
	fieldHints         = 4 // Of Query.
	fieldMatcherType   = 1 // Of LabelMatcher.
	fieldMatcherValue  = 3 // Of LabelMatcher.
	fieldHintsGrouping = 5 // Of ReadHints.
)

// readRegexes reads the body of a remote read request and leaves it for the handler.
// It returns the regular expressions of the request, which are compiled before
// anything else is looked at, or an error if the request costs too much to decode.
func readRegexes(r *http.Request) ([]string, error) {
	compressed, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(compressed))
	size, err := snappy.DecodedLen(compressed)
	if err != nil {
		return nil, nil // The handler says what is wrong with it.
	}
	if size > maxReadRequest {
		return nil, fmt.Errorf("Send fewer queries in a request: this one has %d bytes, and at most %d are allowed", size, maxReadRequest) //nolint:staticcheck // It is what a client reads.
	}
	request, err := snappy.Decode(nil, compressed)
	if err != nil {
		return nil, nil
	}
	var s readScan
	if err := s.request(request); err != nil {
		return nil, err
	}
	return s.regexes, nil
}

// readScan looks through a remote read request without decoding it. What is no
// request is left to the handler.
type readScan struct {
	queries, matchers int
	regexes           []string
}

func (s *readScan) request(b []byte) error {
	return eachField(b, func(field protowire.Number, _ uint64, query []byte) error {
		if field != fieldQueries {
			return nil
		}
		if s.queries++; s.queries > maxReadQueries {
			return fmt.Errorf("Send fewer queries in a request: this one has more than %d", maxReadQueries) //nolint:staticcheck // It is what a client reads.
		}
		return eachField(query, s.queryField)
	})
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
	if s.matchers++; s.matchers > maxReadMatchers {
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
