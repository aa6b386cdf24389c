// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/index"
)

// Directory is the data directory of a Prometheus that does not run, or a
// snapshot of one. It is only read. Of a directory with a write-ahead log, the
// series are those of the head; of one without, as snapshots are, those of the
// newest block.
type Directory struct {
	path string
	// samples are those in the log, by series; nil if there is no log.
	samples map[chunks.HeadSeriesRef]*span
	newest  int64
	// block is the path of the newest block if there is no log.
	block string

	// WALBytesPerSample and BlockBytesPerSample are measured on what is there, 0
	// if nothing is.
	WALBytesPerSample, BlockBytesPerSample float64
	// Note says what part of the directory the series are of, and what could not
	// be read of it.
	Note string
}

// span is when a series got samples.
type span struct {
	first, last int64
	n           int64
	// stale says that the last one was a marker that the series has ended.
	stale bool
}

func newSpan() *span { return &span{first: math.MaxInt64, last: math.MinInt64} }

func (s *span) add(t int64, stale bool) {
	if t >= s.last {
		s.stale = stale
	}
	s.first, s.last = min(s.first, t), max(s.last, t)
	s.n++
}

// rate is in samples per second, 0 if there are too few to tell.
func (s *span) rate() float64 {
	if s.n < 2 || s.last <= s.first {
		return 0
	}
	return float64(s.n-1) * 1000 / float64(s.last-s.first)
}

// OpenDirectory reads when each series got samples, and how many bytes they take.
// The memory is about 330 bytes per series. The error is that of a directory
// without data, or of a log that is damaged before its last segment.
func OpenDirectory(ctx context.Context, path string) (*Directory, error) {
	d := &Directory{path: path, newest: math.MinInt64}
	blocks, err := readBlocks(path)
	if err != nil {
		return nil, err
	}
	d.BlockBytesPerSample = blocks.bytesPerSample()
	log, err := findLog(path)
	if err != nil {
		return nil, err
	}
	if log != nil {
		if err := d.readSamples(ctx, log); err != nil {
			return nil, err
		}
	}
	switch {
	case d.newest > math.MinInt64:
		d.Note = joined(fmt.Sprintf("the head of %s, from its write-ahead log", path), d.Note)
	case blocks.newest != "":
		d.samples, d.block = nil, blocks.newest
		d.Note = joined(fmt.Sprintf("the newest block of %s; there are no samples in a write-ahead log", path), d.Note)
	default:
		return nil, fmt.Errorf("%s: there is neither a block nor a write-ahead log with samples in it", path)
	}
	return d, nil
}

func joined(a, b string) string {
	if b == "" {
		return a
	}
	return a + "; " + b
}

// Each implements Source.
func (d *Directory) Each(ctx context.Context, visit func(Series) error) error {
	if d.samples == nil {
		return d.eachOfBlock(ctx, visit)
	}
	return d.eachOfLog(ctx, visit)
}

// blockTotals sums up the blocks of a directory.
type blockTotals struct {
	samples, bytes uint64
	newest         string
}

func (b blockTotals) bytesPerSample() float64 {
	if b.samples == 0 {
		return 0
	}
	return float64(b.bytes) / float64(b.samples)
}

func readBlocks(path string) (blockTotals, error) {
	var all blockTotals
	entries, err := os.ReadDir(path)
	if err != nil {
		return all, err
	}
	newest := int64(math.MinInt64)
	for _, e := range entries {
		// Blocks that are being written have another name.
		if _, err := ulid.ParseStrict(e.Name()); err != nil || !e.IsDir() {
			continue
		}
		dir := filepath.Join(path, e.Name())
		b, err := tsdb.OpenBlock(nil, dir, nil, nil)
		if err != nil {
			return all, fmt.Errorf("block %s: %w", dir, err)
		}
		meta := b.Meta()
		all.samples += meta.Stats.NumSamples
		all.bytes += uint64(b.Size())
		if meta.MaxTime > newest {
			newest, all.newest = meta.MaxTime, dir
		}
		if err := b.Close(); err != nil {
			return all, err
		}
	}
	return all, nil
}

// eachOfBlock visits the series of the newest block. How often a series got
// samples is not in the index, so each counts as the mean of all.
func (d *Directory) eachOfBlock(ctx context.Context, visit func(Series) error) error {
	b, err := tsdb.OpenBlock(nil, d.block, nil, nil)
	if err != nil {
		return fmt.Errorf("block %s: %w", d.block, err)
	}
	return errors.Join(eachOfIndex(ctx, b, visit), b.Close())
}

func eachOfIndex(ctx context.Context, b *tsdb.Block, visit func(Series) error) (err error) {
	ir, err := b.Index()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ir.Close()) }()
	name, value := index.AllPostingsKey()
	postings, err := ir.Postings(ctx, name, value)
	if err != nil {
		return err
	}
	meta := b.Meta()
	rate := 0.0
	if seconds := float64(meta.MaxTime-meta.MinTime) / 1000; seconds > 0 && meta.Stats.NumSeries > 0 {
		rate = float64(meta.Stats.NumSamples) / seconds / float64(meta.Stats.NumSeries)
	}
	var (
		builder labels.ScratchBuilder
		metas   []chunks.Meta
	)
	for postings.Next() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := ir.Series(postings.At(), &builder, &metas); err != nil {
			return err
		}
		last := int64(math.MinInt64)
		for _, m := range metas {
			last = max(last, m.MaxTime)
		}
		// The end of a block's range is not in it.
		s := Series{Labels: builder.Labels(), Now: last >= meta.MaxTime-1-lookback.Milliseconds(), Rate: rate}
		if err := visit(s); err != nil {
			return err
		}
	}
	return postings.Err()
}
