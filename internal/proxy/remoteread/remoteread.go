// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package remoteread reads requests of Prometheus's remote read protocol as a proxy
// must: within bounds that hold before memory is taken, strictly, and into a struct
// from which the request is written anew. What two readers of the protocol could
// understand in two ways is an error.
package remoteread

import (
	"errors"
	"fmt"
	"math"
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
	if err := (&decoder{}).request(b, &r.pb); err != nil {
		return nil, fmt.Errorf("remote read: %w", err)
	}
	if b, err = r.pb.Marshal(); err != nil {
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

// decoder counts what a request has.
type decoder struct{ matchers, groupings int }

func (d *decoder) request(b []byte, r *prompb.ReadRequest) error {
	return fields(b, func(f *field) error {
		switch f.number {
		case 1:
			if len(r.Queries) == querylimit.MaxReadQueries {
				return fmt.Errorf("it has more than %d queries", querylimit.MaxReadQueries)
			}
			q := &prompb.Query{}
			r.Queries = append(r.Queries, q)
			return f.message(func(b []byte) error { return d.query(b, q) })
		case 2:
			return f.enums(&r.AcceptedResponseTypes)
		}
		return nil
	})
}

func (d *decoder) query(b []byte, q *prompb.Query) error {
	return fields(b, func(f *field) error {
		switch f.number {
		case 1:
			return f.int64(&q.StartTimestampMs)
		case 2:
			return f.int64(&q.EndTimestampMs)
		case 3:
			d.matchers++
			if d.matchers > maxMatchers {
				return fmt.Errorf("it has more than %d matchers", maxMatchers)
			}
			m := &prompb.LabelMatcher{}
			q.Matchers = append(q.Matchers, m)
			return f.message(func(b []byte) error { return matcher(b, m) })
		case 4:
			q.Hints = &prompb.ReadHints{}
			return f.once(f.message(func(b []byte) error { return d.hints(b, q.Hints) }))
		}
		return nil
	})
}

func matcher(b []byte, m *prompb.LabelMatcher) error {
	err := fields(b, func(f *field) error {
		switch f.number {
		case 1:
			var n int64
			if err := f.int64(&n); err != nil {
				return err
			}
			if n < 0 || n >= int64(len(matchTypes)) {
				return fmt.Errorf("it has a matcher of the unknown type %d", n)
			}
			m.Type = prompb.LabelMatcher_Type(n)
		case 2:
			return f.once(f.text(&m.Name))
		case 3:
			return f.once(f.text(&m.Value))
		}
		return nil
	})
	if err == nil && m.Name == "" {
		err = errors.New("it has a matcher without a label name")
	}
	return err
}

func (d *decoder) hints(b []byte, h *prompb.ReadHints) error {
	return fields(b, func(f *field) error {
		switch f.number {
		case 1:
			return f.int64(&h.StepMs)
		case 2:
			return f.once(f.text(&h.Func))
		case 3:
			return f.int64(&h.StartMs)
		case 4:
			return f.int64(&h.EndMs)
		case 5:
			d.groupings++
			if d.groupings > maxGroupings {
				return fmt.Errorf("it has more than %d labels in its hints", maxGroupings)
			}
			var label string
			err := f.text(&label)
			h.Grouping = append(h.Grouping, label)
			return err
		case 6:
			var n int64
			err := f.int64(&n)
			h.By = n != 0
			return err
		case 7:
			return f.int64(&h.RangeMs)
		}
		return nil
	})
}

// field is one field of a message on the wire.
type field struct {
	number protowire.Number
	typ    protowire.Type
	varint uint64
	bytes  []byte
	again  bool // it was there before
}

// fields calls read for each field of a message. Numbers that read does not know
// are left out of what is sent on.
func fields(b []byte, read func(*field) error) error {
	seen := uint64(0)
	for len(b) > 0 {
		var f field
		var n int
		if f.number, f.typ, n = protowire.ConsumeTag(b); n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		switch f.typ {
		case protowire.VarintType:
			f.varint, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(b)
		case protowire.Fixed32Type, protowire.Fixed64Type:
			n = protowire.ConsumeFieldValue(f.number, f.typ, b)
		default:
			return fmt.Errorf("field %d is a group", f.number)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if f.number < 64 {
			bit := uint64(1) << f.number
			f.again = seen&bit != 0
			seen |= bit
		}
		if err := read(&f); err != nil {
			return err
		}
	}
	return nil
}

// once refuses a field that a message has twice: of two, or of one message merged
// from two, another reader may take another.
func (f *field) once(err error) error {
	if err == nil && f.again {
		return fmt.Errorf("field %d is given twice", f.number)
	}
	return err
}

func (f *field) wrongType() error {
	return fmt.Errorf("field %d has the wire type %d", f.number, f.typ)
}

func (f *field) int64(into *int64) error {
	if f.typ != protowire.VarintType {
		return f.wrongType()
	}
	*into = int64(f.varint)
	return f.once(nil)
}

func (f *field) text(into *string) error {
	if f.typ != protowire.BytesType {
		return f.wrongType()
	}
	if !utf8.Valid(f.bytes) {
		return fmt.Errorf("field %d is not UTF-8", f.number)
	}
	*into = string(f.bytes)
	return nil
}

func (f *field) message(read func([]byte) error) error {
	if f.typ != protowire.BytesType {
		return f.wrongType()
	}
	return read(f.bytes)
}

// enums reads a repeated enum, packed or not.
func (f *field) enums(into *[]prompb.ReadRequest_ResponseType) error {
	add := func(n uint64) error {
		if n > math.MaxInt32 || len(*into) == maxTypes {
			return fmt.Errorf("it accepts more than %d types of answers, or an unknown one", maxTypes)
		}
		*into = append(*into, prompb.ReadRequest_ResponseType(n))
		return nil
	}
	if f.typ == protowire.VarintType {
		return add(f.varint)
	}
	return f.message(func(b []byte) error {
		for len(b) > 0 {
			value, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return protowire.ParseError(n)
			}
			b = b[n:]
			if err := add(value); err != nil {
				return err
			}
		}
		return nil
	})
}
