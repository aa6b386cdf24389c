// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"errors"
	"sync"

	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// replayPageChunks holds the m-mapped chunks of a page's references until their
// series are created.
type replayPageChunks struct {
	// Of reference i: chunks[end[i-1]:end[i]], and chunks[:end[0]] for the first.
	end    [replayPageRefs]uint32
	chunks []*mmappedChunk
}

// of returns the chunks of the reference at a place of the page. Appending to
// them copies them.
func (c *replayPageChunks) of(i int) []*mmappedChunk {
	if c == nil {
		return nil
	}
	var start uint32
	if i > 0 {
		start = c.end[i-1]
	}
	if start == c.end[i] {
		return nil
	}
	return c.chunks[start:c.end[i]:c.end[i]]
}

var errOddHeadChunks = errors.New("m-mapped chunks out of sequence")

// loadMmappedChunks reads the headers of all head chunks, one file per goroutine,
// into the table of references. After an error nothing but the table is changed,
// and upstream's loadMmappedChunks finds and handles the cause.
func (r *walReplay) loadMmappedChunks() error {
	mapper := r.h.chunkDiskMapper
	seqs := mapper.FileSequences()
	files := make([][]chunks.HeadChunkMeta, len(seqs))
	errs := make([]error, len(seqs))
	limit := make(chan struct{}, r.decoders)
	var wg sync.WaitGroup
	for i, seq := range seqs {
		limit <- struct{}{}
		wg.Go(func() {
			files[i], errs[i] = mapper.ReadChunkMetas(seq, nil)
			<-limit
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	mapper.FilesRead()

	for _, metas := range files {
		if len(metas) > 0 {
			r.lastMmapRef = metas[len(metas)-1].Ref
		}
		if err := r.countChunks(metas); err != nil {
			return err
		}
	}
	for _, p := range r.refs.pages {
		p.mmapped.allocate()
	}
	for i := range files {
		if err := r.placeChunks(files[i]); err != nil {
			return err
		}
		files[i] = nil
	}
	for _, p := range r.refs.pages {
		p.setMmMaxTimes()
	}
	return nil
}

// inOrder reports whether the chunk counts: upstream ignores those that a block
// holds already, and those of an encoding that it does not know.
func (r *walReplay) inOrder(m *chunks.HeadChunkMeta) bool {
	return !m.IsOOO && m.MaxTime >= r.minValidTime && chunkenc.IsValidEncoding(m.Encoding)
}

// countChunks counts the chunks of each reference, and keeps those that are out
// of order.
func (r *walReplay) countChunks(metas []chunks.HeadChunkMeta) error {
	for i := range metas {
		m := &metas[i]
		if m.IsOOO && chunkenc.IsValidEncoding(m.Encoding) {
			c := newReplayChunk(m)
			r.oooMmapped[m.SeriesRef] = append(r.oooMmapped[m.SeriesRef], &c)
		}
		if !r.inOrder(m) {
			continue
		}
		if m.SeriesRef >= replayMaxRef {
			return errOddReplay
		}
		p := r.refs.addPage(m.SeriesRef)
		if p.mmapped == nil {
			p.mmapped = &replayPageChunks{}
		}
		p.mmapped.end[m.SeriesRef&replayPageMask]++
	}
	return nil
}

// allocate makes room for the chunks that were counted: one array of chunks for
// the page, which they leave at about the same time, and one of pointers. Each
// end becomes the start of its reference's chunks, to be moved as they come.
func (c *replayPageChunks) allocate() {
	var n uint32
	for i, count := range c.end {
		c.end[i] = n
		n += count
	}
	slab := make([]mmappedChunk, n)
	c.chunks = make([]*mmappedChunk, n)
	for i := range slab {
		c.chunks[i] = &slab[i]
	}
}

func (r *walReplay) placeChunks(metas []chunks.HeadChunkMeta) error {
	for i := range metas {
		m := &metas[i]
		if !r.inOrder(m) {
			continue
		}
		at := int(m.SeriesRef & replayPageMask)
		p := r.refs.page(m.SeriesRef)
		c := p.mmapped
		if p.mmMaxTime[at] >= m.MinTime {
			return errOddHeadChunks
		}
		*c.chunks[c.end[at]] = newReplayChunk(m)
		c.end[at]++
		p.mmMaxTime[at] = m.MaxTime
	}
	return nil
}

func newReplayChunk(m *chunks.HeadChunkMeta) mmappedChunk {
	return mmappedChunk{ref: m.Ref, minTime: m.MinTime, maxTime: m.MaxTime, numSamples: m.NumSamples, encoding: m.Encoding}
}
