// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"math"

	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// xorHeadChunk is a head chunk with floats, the chunk itself and its appender, which
// live equally long, in one object.
type xorHeadChunk struct {
	memChunk
	xor chunkenc.OpenXORChunk
}

// newHeadChunk returns a head chunk without samples. One of an unknown encoding is for
// floats.
func newHeadChunk(mint int64, e chunkenc.Encoding) *memChunk {
	if e == chunkenc.EncXOR || !chunkenc.IsValidEncoding(e) {
		c := &xorHeadChunk{memChunk: memChunk{minTime: mint, maxTime: math.MinInt64}}
		c.xor.Open()
		c.chunk = &c.xor
		return &c.memChunk
	}
	chunk, err := chunkenc.NewEmptyChunk(e)
	if err != nil {
		panic(err) // This should never happen.
	}
	return &memChunk{chunk: chunk, minTime: mint, maxTime: math.MinInt64}
}

// appender returns the appender of the head chunk. It is nil only if there is no head
// chunk.
func (s *memSeries) appender() chunkenc.Appender {
	if s.headChunks != nil {
		if c, ok := s.headChunks.chunk.(*chunkenc.OpenXORChunk); ok {
			return c.OpenAppender()
		}
	}
	return s.app
}

// setAppender keeps the appender of the head chunk, unless the chunk has it.
func (s *memSeries) setAppender(app chunkenc.Appender) {
	if s.headChunks != nil {
		if _, ok := s.headChunks.chunk.(*chunkenc.OpenXORChunk); ok {
			app = nil
		}
	}
	if s.app != app {
		s.rare().app = app
	}
	if *s.rareFields == noRareFields {
		s.rareFields = &noRareFields
	}
}
