// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"

	"github.com/gogo/protobuf/proto"
	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// series is a series and all its chunks.
type series struct {
	labels labels.Labels
	chunks []prompb.Chunk
}

// samples iterates over the samples; where chunks overlap, over each time once.
func (s *series) samples() (chunkenc.Iterator, error) {
	var (
		iterators = make([]chunkenc.Iterator, 0, len(s.chunks))
		overlap   bool
		last      int64
	)
	for i, c := range s.chunks {
		chunk, err := chunkenc.FromData(chunkenc.Encoding(c.Type), c.Data)
		if err != nil {
			return nil, fmt.Errorf("series %s: %w", s.labels, err)
		}
		iterators = append(iterators, chunk.Iterator(nil))
		overlap = overlap || i > 0 && c.MinTimeMs <= last
		last = max(last, c.MaxTimeMs)
		if i == 0 {
			last = c.MaxTimeMs
		}
	}
	if overlap {
		return storage.ChainSampleIteratorFromIterators(nil, iterators), nil
	}
	return &concatenated{Iterator: chunkenc.NewNopIterator(), rest: iterators}, nil
}

// concatenated iterates over chunks that do not overlap. Only Next and what
// reads the present sample are of use.
type concatenated struct {
	chunkenc.Iterator

	rest []chunkenc.Iterator
}

func (c *concatenated) Next() chunkenc.ValueType {
	for {
		if t := c.Iterator.Next(); t != chunkenc.ValNone || c.Err() != nil || len(c.rest) == 0 {
			return t
		}
		c.Iterator, c.rest = c.rest[0], c.rest[1:]
	}
}

// source gives series in the order of their labels, and io.EOF after the last.
type source interface {
	next() (*series, error)
}

// stream is the answer to a remote read of everything.
type stream struct {
	frames  *remote.ChunkedReader
	body    io.Closer
	builder labels.ScratchBuilder
	ahead   *series // of a frame that was read too far
}

// everything asks a server for all series and samples. Remote read is the one
// endpoint that streams them sorted, so that heads of any size are compared in
// the memory of one series.
func everything(ctx context.Context, url string) (*stream, error) {
	request := &prompb.ReadRequest{
		AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{prompb.ReadRequest_STREAMED_XOR_CHUNKS},
		Queries: []*prompb.Query{{
			// Any other end would cut the last chunk, which upstream up to 3.16 cannot
			// do when there are several deletions in it.
			StartTimestampMs: math.MinInt64, EndTimestampMs: math.MaxInt64,
			Matchers: []*prompb.LabelMatcher{{Type: prompb.LabelMatcher_RE, Name: labels.MetricName, Value: ".*"}},
		}},
	}
	b, err := proto.Marshal(request)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/api/v1/read", bytes.NewReader(snappy.Encode(nil, b)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("Content-Encoding", "snappy")
	req.Header.Set("X-Prometheus-Remote-Read-Version", "0.1.0")
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if kind := res.Header.Get("Content-Type"); res.StatusCode != http.StatusOK || !strings.Contains(kind, "ChunkedReadResponse") {
		defer res.Body.Close()
		return nil, refused(res)
	}
	return &stream{frames: remote.NewChunkedReader(bufio.NewReaderSize(res.Body, 1<<20), maxFrame, nil), body: res.Body, builder: labels.NewScratchBuilder(16)}, nil
}

// next joins the frames of a series: one that is large comes in several.
func (s *stream) next() (*series, error) {
	whole := s.ahead
	s.ahead = nil
	for {
		part, err := s.part()
		switch {
		case errors.Is(err, io.EOF) && whole != nil:
			return whole, nil
		case err != nil:
			return nil, err
		case whole == nil:
			whole = part
		case labels.Equal(whole.labels, part.labels):
			whole.chunks = append(whole.chunks, part.chunks...)
		default:
			s.ahead = part
			return whole, nil
		}
	}
}

func (s *stream) part() (*series, error) {
	var res prompb.ChunkedReadResponse
	if err := s.frames.NextProto(&res); errors.Is(err, io.EOF) {
		return nil, err
	} else if err != nil {
		return nil, fmt.Errorf("a frame of the remote read's answer: %w", err)
	}
	if len(res.ChunkedSeries) != 1 {
		return nil, fmt.Errorf("a frame of the remote read's answer has %d series, not 1", len(res.ChunkedSeries))
	}
	c := res.ChunkedSeries[0]
	return &series{c.ToLabels(&s.builder, nil), c.Chunks}, nil
}

func (s *stream) Close() error { return s.body.Close() }

// maxFrame is far above what a server sends: by default a frame ends with the
// first chunk beyond 1 MiB.
const maxFrame = 16 << 20
