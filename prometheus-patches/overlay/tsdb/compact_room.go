// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/index"
)

// What compactions take at their peak: most of compactionBytes are buffers of writers. That
// of the head is with the checkpoint after it, and series that have ended leave by lists of
// their own.
const (
	compactionBytes               = 32 << 20
	compactionBytesPerSeries      = 96
	compactionBytesPerEnded       = 96
	compactionBytesPerBlockSeries = 32
)

// CompactionBytes returns what a compaction of the head takes at its peak, in bytes.
func (h *Head) CompactionBytes() int64 {
	return compactionBytes + compactionBytesPerSeries*int64(h.NumSeries()) + compactionBytesPerEnded*int64(h.NumStaleSeries())
}

// reserve lets others leave room for a compaction, until done is called.
func (db *DB) reserve(bytes int64) (done func()) {
	if db.opts.Memory == nil {
		return func() {}
	}
	release := db.opts.Memory.Reserve(bytes)
	return func() {
		if db.opts.Memory.Tight() {
			runtime.GC() // What was freed is known after a collection, which may be minutes away.
		}
		release()
	}
}

// reserveForHead is reserve if the head is to be compacted. done may be called twice.
func (db *DB) reserveForHead() (done func()) {
	if !db.head.compactable() {
		return func() {}
	}
	return sync.OnceFunc(db.reserve(db.head.CompactionBytes()))
}

// waitsLog is how often the log says that a compaction waits.
const waitsLog = 10 * time.Minute

// planBlocks returns the blocks that are compacted next, none if there is no memory for it:
// they can wait, until somebody asks again. The memory is reserved until done is called.
func (db *DB) planBlocks() (dirs []string, done func(), err error) {
	dirs, err = db.compactor.Plan(db.dir)
	if err != nil || db.opts.Memory == nil {
		return dirs, func() {}, err
	}
	var bytes int64
	if len(dirs) > 0 {
		bytes = compactionBytes + compactionBytesPerBlockSeries*db.seriesOf(dirs)
	}
	if !db.opts.Memory.Room(bytes) && len(dirs) > 0 {
		if now := time.Now(); now.Sub(db.waitsLogged) >= waitsLog {
			db.waitsLogged = now
			db.logger.Warn("A compaction of blocks waits until there is memory for it", "blocks", len(dirs), "bytes", bytes)
		}
		return nil, nil, nil
	}
	if len(dirs) == 0 {
		return nil, nil, nil
	}
	return dirs, db.reserve(bytes), nil
}

// sampled is how many series of each block are looked for in the blocks before it.
const sampled = 64

// seriesOf estimates how many series blocks have. One that is in several of them counts
// once, within some percent: as a rule those of all blocks are the same. What is wrong with
// a block the compaction says, and marks it.
func (db *DB) seriesOf(dirs []string) (series int64) {
	var before []IndexReader
	for _, dir := range dirs {
		meta, _, err := readMetaFile(dir)
		if err != nil {
			continue
		}
		share, n := 1.0, meta.Stats.NumSeries
		if i := slices.IndexFunc(db.blocks, func(b *Block) bool { return b.Dir() == dir }); i >= 0 {
			if reader, err := db.blocks[i].Index(); err == nil {
				defer reader.Close()
				if fresh, err := freshShare(reader, before, max(1, n/sampled)); err == nil {
					share, before = fresh, append(before, reader)
				}
			}
		}
		series += int64(share * float64(n))
	}
	return series
}

// freshShare returns the share of a block's series, of which it looks at one of so many, that
// no block before has.
func freshShare(block IndexReader, before []IndexReader, oneOf uint64) (float64, error) {
	ctx := context.Background()
	var builder labels.ScratchBuilder
	var looked, fresh float64
	p := AllSortedPostings(ctx, block)
	for i := uint64(0); p.Next(); i++ {
		if i%oneOf != 0 {
			continue
		}
		if err := block.Series(p.At(), &builder, nil); err != nil {
			return 0, err
		}
		looked++
		has, err := anyHas(ctx, before, builder.Labels())
		if err != nil {
			return 0, err
		}
		if !has {
			fresh++
		}
	}
	return fresh / max(1, looked), p.Err()
}

func anyHas(ctx context.Context, blocks []IndexReader, ls labels.Labels) (bool, error) {
	var builder labels.ScratchBuilder
	for _, block := range blocks {
		var all []index.Postings
		if err := ls.Validate(func(l labels.Label) error {
			p, err := block.Postings(ctx, l.Name, l.Value)
			all = append(all, p)
			return err
		}); err != nil {
			return false, err
		}
		p := index.Intersect(all...)
		for p.Next() { // Others may have further labels.
			if err := block.Series(p.At(), &builder, nil); err != nil {
				return false, err
			}
			if labels.Equal(builder.Labels(), ls) {
				return true, nil
			}
		}
		if p.Err() != nil {
			return false, p.Err()
		}
	}
	return false, nil
}
