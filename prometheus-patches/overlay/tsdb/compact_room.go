// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"runtime"
	"sync"
	"time"
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
		series, err := seriesOf(dirs)
		if err != nil {
			return nil, nil, err
		}
		bytes = compactionBytes + compactionBytesPerBlockSeries*series
	}
	if !db.opts.Memory.Room(bytes) {
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

// seriesOf returns how many series blocks have.
func seriesOf(dirs []string) (series int64, err error) {
	for _, dir := range dirs {
		meta, _, err := readMetaFile(dir)
		if err != nil {
			return 0, err
		}
		series += int64(meta.Stats.NumSeries)
	}
	return series, nil
}
