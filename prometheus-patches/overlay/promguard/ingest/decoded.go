// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"bytes"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
)

// message is a type of protobuf messages: how many bytes one takes that is an element of a
// list, and its fields that are messages, by their numbers.
type message struct {
	size   int64
	fields map[protowire.Number]*message
}

// messageBytes is what a message of OTLP takes at most whose size is nobody's business:
// a data point of an exponential histogram, with the pointer to it.
const messageBytes = 320

const (
	deepest    = 32 // Messages in messages. What is deeper is refused by decoders, or has no size of its own.
	textBytes  = 16 // Of a text, besides itself.
	numberSize = 8
)

// Sizes are doubled, as lists are while they grow.
func listed[T any](fields map[protowire.Number]*message) *message {
	var v T
	return &message{2 * int64(unsafe.Sizeof(v)), fields}
}

// numbers are a list of numbers, each of which may be a byte.
var numbers = &message{}

var (
	writeRequest = &message{fields: map[protowire.Number]*message{
		1: listed[prompb.TimeSeries](map[protowire.Number]*message{
			1: listed[prompb.Label](nil),
			2: listed[prompb.Sample](nil),
			3: listed[prompb.Exemplar](map[protowire.Number]*message{1: listed[prompb.Label](nil)}),
			4: listed[prompb.Histogram](histogramFields(listed[prompb.BucketSpan](nil))),
		}),
		3: listed[prompb.MetricMetadata](nil),
	}}
	writeRequest2 = &message{fields: map[protowire.Number]*message{
		4: listed[string](nil),
		5: listed[writev2.TimeSeries](map[protowire.Number]*message{
			1: numbers,
			2: listed[writev2.Sample](nil),
			3: listed[writev2.Histogram](histogramFields(listed[writev2.BucketSpan](nil))),
			4: listed[writev2.Exemplar](map[protowire.Number]*message{1: numbers}),
		}),
	}}
	otlpRequest = otlpSchema()
)

func histogramFields(span *message) map[protowire.Number]*message {
	return map[protowire.Number]*message{8: span, 9: numbers, 10: numbers, 11: span, 12: numbers, 13: numbers}
}

func otlpSchema() *message {
	in := func(fields map[protowire.Number]*message) *message { return &message{messageBytes, fields} }
	value := &message{size: 64}
	attribute := &message{2 * 64, map[protowire.Number]*message{2: value}}
	value.fields = map[protowire.Number]*message{
		5: in(map[protowire.Number]*message{1: value}),
		6: in(map[protowire.Number]*message{1: attribute}),
	}
	exemplar := in(map[protowire.Number]*message{7: attribute})
	buckets := &message{fields: map[protowire.Number]*message{2: numbers}}
	points := func(fields map[protowire.Number]*message) *message {
		return in(map[protowire.Number]*message{1: in(fields)})
	}
	number := points(map[protowire.Number]*message{5: exemplar, 7: attribute})
	metric := in(map[protowire.Number]*message{
		5:  number,
		7:  number,
		9:  points(map[protowire.Number]*message{8: exemplar, 9: attribute}),
		10: points(map[protowire.Number]*message{1: attribute, 8: buckets, 9: buckets, 11: exemplar}),
		11: points(map[protowire.Number]*message{6: in(nil), 7: attribute}),
		12: attribute,
	})
	scope := in(map[protowire.Number]*message{3: attribute})
	resource := in(map[protowire.Number]*message{1: attribute, 3: in(nil)})
	return &message{fields: map[protowire.Number]*message{
		1: in(map[protowire.Number]*message{
			1: resource,
			2: in(map[protowire.Number]*message{1: scope, 2: metric}),
		}),
	}}
}

// decoded returns how many bytes the message takes that b is the encoding of. It stops where
// that is malformed, as a decoder does.
func (m *message) decoded(b []byte, depth int) (n int64) {
	for len(b) > 0 {
		field, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return n
		}
		b = b[size:]
		if kind != protowire.BytesType {
			if size = protowire.ConsumeFieldValue(field, kind, b); size < 0 {
				return n
			}
			b, n = b[size:], n+numberSize
			continue
		}
		value, size := protowire.ConsumeBytes(b)
		if size < 0 {
			return n
		}
		b = b[size:]
		switch of := m.fields[field]; {
		case of == numbers:
			n += numberSize * int64(len(value))
		case of != nil && depth < deepest:
			n += of.size + of.decoded(value, depth+1)
		default:
			n += textBytes + int64(len(value))
		}
	}
	return n
}

// eachText calls f with the fields of a message that have a length.
func eachText(b []byte, f func(field protowire.Number, value []byte)) {
	for len(b) > 0 {
		field, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return
		}
		b = b[size:]
		if kind == protowire.BytesType {
			value, size := protowire.ConsumeBytes(b)
			if size < 0 {
				return
			}
			f(field, value)
			b = b[size:]
			continue
		}
		if size = protowire.ConsumeFieldValue(field, kind, b); size < 0 {
			return
		}
		b = b[size:]
	}
}

// builtOfSymbols returns how many bytes the labels of all series have, in a request of remote
// write 2.
func builtOfSymbols(b []byte) (n int64) {
	var symbols []int64
	eachText(b, func(field protowire.Number, value []byte) {
		if field == 4 {
			symbols = append(symbols, int64(len(value)))
		}
	})
	eachText(b, func(field protowire.Number, value []byte) {
		if field != 5 {
			return
		}
		eachText(value, func(field protowire.Number, refs []byte) {
			for field == 1 && len(refs) > 0 {
				ref, size := protowire.ConsumeVarint(refs)
				if size < 0 {
					return
				}
				if ref < uint64(len(symbols)) {
					n += symbols[ref]
				}
				refs = refs[size:]
			}
		})
	})
	return n
}

// builtOfMetrics returns how many bytes the labels of all series have at most, in a request
// of OTLP or a message in it, at a depth: a point has the name of its metric, and each of its
// buckets has all attributes of the point.
func builtOfMetrics(b []byte, depth int) (n int64) {
	if depth < metricDepth {
		eachText(b, func(field protowire.Number, value []byte) {
			if field == 2 || depth == 0 && field == 1 {
				n += builtOfMetrics(value, depth+1)
			}
		})
		return n
	}
	name, points := int64(0), int64(0)
	eachText(b, func(field protowire.Number, value []byte) {
		switch field {
		case 1, 3: // The name, and the unit, which may be a part of it.
			name += int64(len(value))
		case 5, 7, 9, 10, 11:
			eachText(value, func(_ protowire.Number, point []byte) {
				lists := int64(1)
				eachText(point, func(inner protowire.Number, list []byte) {
					switch {
					case field == 9 && inner == 7: // Bounds.
						lists += int64(len(list) / 8)
					case field == 11 && inner == 6: // A quantile.
						lists++
					}
				})
				points += lists
				n += lists * int64(len(point))
			})
		}
	})
	return n + points*name
}

// metricDepth is how deep metrics are: in scopes, in resources, in a request.
const metricDepth = 3

// longestText returns the most bytes between two quotes.
func longestText(b []byte) (longest int64) {
	for len(b) > 0 {
		i := bytes.IndexByte(b, '"')
		if i < 0 {
			i = len(b) - 1
		}
		longest = max(longest, int64(i))
		b = b[i+1:]
	}
	return longest
}
