// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"errors"
	"math"
	"math/bits"
	"slices"
	"sync"

	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// replayPageChunks holds the m-mapped chunks of a page's references until their
// series are created. References that have none take no room.
type replayPageChunks struct {
	counts *[replayPageRefs]uint32 // Of chunks, until all are counted.

	has uint64 // A bit for each reference with chunks.
	// Of the n-th of them: chunks[ends[n-1]:ends[n]], and chunks[:ends[0]] for the
	// first; and the time of their newest sample.
	ends     []uint32
	maxTimes []int64
	chunks   []*mmappedChunk
	// oldest and newest are of maxTimes.
	oldest, newest int64
}

// nth returns which of the references with chunks the one at a place of the page
// is.
func (c *replayPageChunks) nth(i int) (n int, ok bool) {
	if c == nil || c.has>>i&1 == 0 {
		return 0, false
	}
	return bits.OnesCount64(c.has & (1<<i - 1)), true
}

// of returns the chunks of the reference at a place of the page. Appending to
// them copies them.
func (c *replayPageChunks) of(i int) []*mmappedChunk {
	n, ok := c.nth(i)
	if !ok {
		return nil
	}
	var start uint32
	if n > 0 {
		start = c.ends[n-1]
	}
	return c.chunks[start:c.ends[n]:c.ends[n]]
}

// hold reports whether the chunks of the reference at a place of the page have the
// samples of a time.
func (c *replayPageChunks) hold(i int, t int64) bool {
	n, ok := c.nth(i)
	return ok && t <= c.maxTimes[n]
}

// holding has a bit for each reference whose chunks have the samples of a time.
func (c *replayPageChunks) holding(t int64) (mask uint64) {
	switch {
	case c == nil || t > c.newest:
		return 0
	case t <= c.oldest:
		return c.has
	}
	left := c.has
	for _, end := range c.maxTimes {
		if t <= end {
			mask |= left & -left
		}
		left &= left - 1
	}
	return mask
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
		p.mmapped.oldest, p.mmapped.newest = slices.Min(p.mmapped.maxTimes), slices.Max(p.mmapped.maxTimes)
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
			p.mmapped = &replayPageChunks{counts: &[replayPageRefs]uint32{}}
		}
		p.mmapped.counts[m.SeriesRef&replayPageMask]++
	}
	return nil
}

// allocate makes room for the chunks that were counted: one array of chunks for
// the page, which they leave at about the same time, and one of pointers. Each
// end becomes the start of its reference's chunks, to be moved as they come.
func (c *replayPageChunks) allocate() {
	var n uint32
	for i, count := range c.counts {
		if count > 0 {
			c.has |= 1 << i
			c.ends = append(c.ends, n)
			c.maxTimes = append(c.maxTimes, math.MinInt64)
			n += count
		}
	}
	c.counts = nil
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
		c := r.refs.page(m.SeriesRef).mmapped
		n, _ := c.nth(int(m.SeriesRef & replayPageMask))
		if c.maxTimes[n] >= m.MinTime {
			return errOddHeadChunks
		}
		*c.chunks[c.ends[n]] = newReplayChunk(m)
		c.ends[n]++
		c.maxTimes[n] = m.MaxTime
	}
	return nil
}

func newReplayChunk(m *chunks.HeadChunkMeta) mmappedChunk {
	return mmappedChunk{ref: m.Ref, minTime: m.MinTime, maxTime: m.MaxTime, numSamples: m.NumSamples, encoding: m.Encoding}
}
