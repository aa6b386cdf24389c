// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"context"
	"net"

	jsoniter "github.com/json-iterator/go"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promguard/deadline"
	"github.com/prometheus/prometheus/promql"
)

// encodeChunk is about how many bytes are encoded between two looks at the
// context. The encoding is kept in pieces of this size, because growing one
// buffer to hundreds of megabytes stops everything for longer than a look may
// take, and needs twice the memory.
const encodeChunk = 256 << 10

// encodeWithin encodes resp to the same bytes as codec does. For a read request
// with a deadline it stops with the context's cause soon after the context is
// done, also in the middle of a large answer.
func encodeWithin(ctx context.Context, codec Codec, resp *Response) (net.Buffers, error) {
	if _, ok := codec.(JSONCodec); ok && deadline.Bounds(ctx) {
		return newBoundEncoder(ctx).encode(resp)
	}
	b, err := codec.Encode(resp)
	return net.Buffers{b}, err
}

// boundEncoder encodes large values element by element.
type boundEncoder struct {
	ctx    context.Context
	stream *jsoniter.Stream
	out    net.Buffers
}

func newBoundEncoder(ctx context.Context) *boundEncoder {
	return &boundEncoder{ctx: ctx, stream: jsoniter.NewStream(jsoniter.ConfigCompatibleWithStandardLibrary, nil, 4<<10)}
}

func (e *boundEncoder) encode(resp *Response) (net.Buffers, error) {
	rest := *resp
	rest.Data = nil
	head, tail, err := splitEnvelope(&rest)
	if err != nil {
		return nil, err
	}
	e.stream.WriteRaw(head)
	if resp.Data != nil {
		e.stream.WriteRaw(`,"data":`)
		if err := e.data(resp.Data); err != nil {
			return nil, err
		}
	}
	e.stream.WriteRaw(tail)
	e.out = append(e.out, e.stream.Buffer())
	return e.out, e.stream.Error
}

// splitEnvelope encodes a response without data and cuts it where the data
// would stand: behind the status.
func splitEnvelope(resp *Response) (head, tail string, err error) {
	json := jsoniter.ConfigCompatibleWithStandardLibrary
	whole, err := json.Marshal(resp)
	if err != nil {
		return "", "", err
	}
	status, err := json.Marshal(resp.Status)
	if err != nil {
		return "", "", err
	}
	cut := len(`{"status":`) + len(status)
	return string(whole[:cut]), string(whole[cut:]), nil
}

// data encodes the types of answer that grow with the database element by
// element, and all others at once.
func (e *boundEncoder) data(data any) error {
	switch v := data.(type) {
	case []labels.Labels:
		if v == nil {
			break // null, not [].
		}
		return writeArray(e, v, func(l labels.Labels) { marshalLabelsJSON(l, e.stream) })
	case []string:
		if v == nil {
			break
		}
		return writeArray(e, v, func(s string) { e.stream.WriteVal(s) })
	case *QueryData:
		return e.queryData(v)
	}
	e.stream.WriteVal(data)
	return e.check()
}

func (e *boundEncoder) queryData(d *QueryData) error {
	e.stream.WriteRaw(`{"resultType":`)
	e.stream.WriteVal(d.ResultType)
	e.stream.WriteRaw(`,"result":`)
	var err error
	switch v := d.Result.(type) {
	case promql.Vector:
		err = writeArray(e, v, func(s promql.Sample) { marshalSampleJSON(s, e.stream) })
	case promql.Matrix:
		err = writeArray(e, v, func(s promql.Series) { marshalSeriesJSON(s, e.stream) })
	default:
		e.stream.WriteVal(d.Result)
	}
	if err != nil {
		return err
	}
	if d.Stats != nil {
		e.stream.WriteRaw(`,"stats":`)
		e.stream.WriteVal(d.Stats)
	}
	e.stream.WriteObjectEnd()
	return e.check()
}

func writeArray[T any](e *boundEncoder, elements []T, write func(T)) error {
	e.stream.WriteArrayStart()
	for i, element := range elements {
		if i > 0 {
			e.stream.WriteMore()
		}
		write(element)
		if e.stream.Buffered() >= encodeChunk {
			if err := e.check(); err != nil {
				return err
			}
		}
	}
	e.stream.WriteArrayEnd()
	return e.stream.Error
}

// check sets the filled buffer aside and looks at the context.
func (e *boundEncoder) check() error {
	if e.ctx.Err() != nil {
		return context.Cause(e.ctx)
	}
	e.out = append(e.out, e.stream.Buffer())
	e.stream.SetBuffer(make([]byte, 0, encodeChunk+encodeChunk/8))
	return e.stream.Error
}
