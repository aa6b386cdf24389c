// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package remoteread reads requests of Prometheus's remote read protocol as a proxy
// must: within bounds that hold before memory is taken, and by Prometheus's own code into
// a struct from which the request is written anew, so that whoever gets it reads what was
// judged.
package remoteread

import (
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/promguard/promguard/internal/querylimit"
)

// ErrTooLong is that of a request which is longer than it may be, decompressed.
var ErrTooLong = errors.New("remote read: the request is too long")

// What a request may have at all. A matcher takes two bytes on the wire, and thirty
// times as many in memory.
const (
	maxMatchers  = 10_000
	maxGroupings = 10_000
	maxTypes     = 16
)

// Request is a decoded request.
type Request struct {
	pb   prompb.ReadRequest
	body []byte // as it is to be sent on
}

// Decode reads a request as it is sent: in protobuf, compressed by snappy. It takes
// memory in proportion to maxBytes, which bounds the decompressed length.
func Decode(compressed []byte, maxBytes int) (*Request, error) {
	n, err := snappy.DecodedLen(compressed)
	if err != nil {
		return nil, fmt.Errorf("remote read: %w", err)
	}
	if n > maxBytes {
		return nil, ErrTooLong
	}
	b, err := snappy.Decode(nil, compressed)
	if err != nil {
		return nil, fmt.Errorf("remote read: %w", err)
	}
	r := &Request{}
	if err = bounded(b); err == nil {
		err = r.pb.Unmarshal(b)
	}
	if err == nil {
		err = r.check()
	}
	if err == nil {
		b, err = r.pb.Marshal()
	}
	if err != nil {
		return nil, fmt.Errorf("remote read: %w", err)
	}
	r.body = snappy.Encode(nil, b)
	return r, nil
}

// Body returns the request as it is to be sent on: nothing but what was decoded.
func (r *Request) Body() []byte { return r.body }

// Selectors returns the matchers of each query as a PromQL selector.
func (r *Request) Selectors() []string {
	texts := make([]string, len(r.pb.Queries))
	for i, q := range r.pb.Queries {
		text := []byte{'{'}
		for j, m := range q.Matchers {
			if j > 0 {
				text = append(text, ',')
			}
			text = append(text, (&labels.Matcher{Type: matchTypes[m.Type], Name: m.Name, Value: m.Value}).String()...)
		}
		texts[i] = string(append(text, '}'))
	}
	return texts
}

// Windows returns what each query reads. Within the blocks that a query touches,
// Prometheus follows the hints.
func (r *Request) Windows() []querylimit.Window {
	windows := make([]querylimit.Window, len(r.pb.Queries))
	for i, q := range r.pb.Queries {
		start, end := q.StartTimestampMs, q.EndTimestampMs
		if h := q.Hints; h != nil {
			start, end = min(start, h.StartMs), max(end, h.EndMs)
		}
		windows[i] = querylimit.NewWindow(start, end)
	}
	return windows
}

var matchTypes = [...]labels.MatchType{
	prompb.LabelMatcher_EQ: labels.MatchEqual, prompb.LabelMatcher_NEQ: labels.MatchNotEqual,
	prompb.LabelMatcher_RE: labels.MatchRegexp, prompb.LabelMatcher_NRE: labels.MatchNotRegexp,
}

// bounded refuses a request that would take more than its share of memory once it is
// decoded.
func bounded(b []byte) error {
	queries, matchers, groupings := 0, 0, 0
	more := func(n *int, most int, what string) error {
		*n++
		if *n > most {
			return fmt.Errorf("it has more than %d %s", most, what)
		}
		return nil
	}
	inHints := func(number protowire.Number, _ []byte) error {
		if number == 5 {
			return more(&groupings, maxGroupings, "labels in its hints")
		}
		return nil
	}
	inQuery := func(number protowire.Number, value []byte) error {
		switch number {
		case 3:
			return more(&matchers, maxMatchers, "matchers")
		case 4:
			return eachMessage(value, inHints)
		}
		return nil
	}
	return eachMessage(b, func(number protowire.Number, value []byte) error {
		if number != 1 {
			return nil
		}
		if err := more(&queries, querylimit.MaxReadQueries, "queries"); err != nil {
			return err
		}
		return eachMessage(value, inQuery)
	})
}

// eachMessage calls f for each field that has bytes, of a message on the wire.
func eachMessage(b []byte, f func(number protowire.Number, value []byte) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return protowire.ParseError(n)
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

// check refuses what cannot be judged, and drops what is not known.
func (r *Request) check() error {
	r.pb.XXX_unrecognized = nil
	if types := r.pb.AcceptedResponseTypes; len(types) > maxTypes || slices.ContainsFunc(types, func(t prompb.ReadRequest_ResponseType) bool { return t < 0 }) {
		return fmt.Errorf("it accepts more than %d types of answers, or an unknown one", maxTypes)
	}
	for _, q := range r.pb.Queries {
		q.XXX_unrecognized = nil
		if q.Hints != nil {
			q.Hints.XXX_unrecognized = nil
		}
		for _, m := range q.Matchers {
			m.XXX_unrecognized = nil
			switch {
			case m.Type < 0 || int(m.Type) >= len(matchTypes):
				return fmt.Errorf("it has a matcher of the unknown type %d", m.Type)
			case m.Name == "":
				return errors.New("it has a matcher without a label name")
			case !utf8.ValidString(m.Name) || !utf8.ValidString(m.Value):
				return errors.New("it has a matcher that is not UTF-8")
			}
		}
	}
	return nil
}
