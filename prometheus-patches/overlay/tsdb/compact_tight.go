// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/prometheus/storage"
)

// Memory knows how scarce memory is.
type Memory interface {
	// Tight reports whether what can be made smaller should be.
	Tight() bool
	// Room is how many bytes are left.
	Room() int64
	// Reserve says that so many bytes are about to be needed, until done is called.
	Reserve(bytes int64) (done func())
}

// A compaction of the head, and the checkpoint after it, take so much at their peak.
// Series that have ended mostly have label values of their own, of which a block's index
// has a table while it is written.
const (
	compactionBytes          = 32 << 20
	compactionBytesPerSeries = 96
	endedBytesPerSeries      = 400
)

// early is the state of compactions that come early.
type early struct {
	// next is when the next may begin, look when the blocks are to be reloaded at the
	// latest.
	next, look time.Time
	// from is the first of the ended series whose turn it is.
	from storage.SeriesRef
}

// reserveMemory lets others leave room for a compaction of the head.
func (db *DB) reserveMemory() (done func()) {
	if db.opts.Memory == nil {
		return func() {}
	}
	return db.opts.Memory.Reserve(compactionBytes + compactionBytesPerSeries*int64(db.head.NumSeries()))
}

// What makes it worth while to compact the head before its time.
const (
	// tightStaleShare is the part of the series, as 1 of so many, that has ended.
	tightStaleShare = 50
	// tightChunkRanges is the time, in parts of a chunk range, that can be written.
	tightChunkRanges = 4
	// tightPause is the pause after a compaction, in times of how long it took. Each writes
	// a block, so that it is no shorter than tightLeastPause. Most of a long one is a wait
	// for readers, which costs nothing, so that it is no longer than tightMostPause.
	tightPause      = 3
	tightLeastPause = 15 * time.Second
	tightMostPause  = time.Minute
	// tightLook is how often it is looked at.
	tightLook = time.Second
)

// tightLeastPortion is how many series that have ended are written at a time at least.
var tightLeastPortion int64 = 20_000

// untilLook is how long the database waits before it looks whether it has to do
// something.
func (db *DB) untilLook() time.Duration {
	if db.opts.Memory == nil {
		return db.opts.BlockReloadInterval
	}
	if db.early.look.IsZero() {
		db.early.look = time.Now().Add(db.opts.BlockReloadInterval)
	}
	return min(tightLook, db.opts.BlockReloadInterval)
}

// due reports whether the interval of blocks has passed since the last time, or the head
// is to be compacted early.
func (db *DB) due() bool {
	now := time.Now()
	if db.opts.Memory != nil && now.Before(db.early.look) && !db.tightCompactable(now) {
		return false
	}
	db.early.look = now.Add(db.opts.BlockReloadInterval)
	return true
}

// tightCompactable reports whether memory is tight and an early compaction frees some.
func (db *DB) tightCompactable(now time.Time) bool {
	return db.opts.Memory != nil && db.opts.Memory.Tight() && !now.Before(db.early.next) && (db.manyStale() || db.oldHead() != nil)
}

// compactTight makes the head smaller while memory is tight: series that have ended
// are written to blocks and leave the head, and so does what is older than any sample
// that can still be appended, which the next compaction would have written.
//
// Both are upstream's compactions, at another time. They do not begin where little is
// to be gained, or soon after the last.
func (db *DB) compactTight() {
	if !db.tightCompactable(time.Now()) {
		return
	}
	db.autoCompactMtx.Lock()
	defer db.autoCompactMtx.Unlock()
	start := time.Now()
	defer func() { db.early.next = time.Now().Add(pauseAfter(time.Since(start))) }()
	if !db.autoCompact {
		return
	}
	for more := db.manyStale(); more && db.goesOn(); {
		var err error
		if more, err = db.compactEnded(); err != nil {
			db.logger.Error("compaction of ended series while memory is tight failed", "err", err)
			break
		}
	}
	if rh := db.oldHead(); rh != nil {
		defer db.reserveMemory()()
		db.head.WaitForAppendersOverlapping(rh.MaxTime())
		if err := db.CompactHead(rh); err != nil {
			db.logger.Error("compaction of the head while memory is tight failed", "mint", rh.MinTime(), "maxt", rh.MaxTime(), "err", err)
		}
	}
	// What was freed is known after a collection, which may be minutes away.
	runtime.GC()
}

// goesOn reports whether an early compaction has nothing to make way for.
func (db *DB) goesOn() bool {
	select {
	case <-db.stopc:
		return false
	default:
		return db.opts.Memory.Tight() && !db.head.compactable()
	}
}

// compactEnded takes ended series out of the head, so many as there is memory for, and
// reports whether there are more. Each portion makes room for the next, which is larger.
func (db *DB) compactEnded() (more bool, err error) {
	ended, err := db.head.staleSeriesRefsNoOOOData(context.Background())
	if err != nil {
		return false, err
	}
	from, _ := slices.BinarySearch(ended.sortedByRef, db.early.from)
	portion := ended.sortedByRef[from:]
	if n := max(tightLeastPortion, db.endedThatFit()); n < int64(len(portion)) {
		db.early.from, portion, more = portion[n], portion[:n], true
	} else {
		db.early.from = 0
	}
	defer db.opts.Memory.Reserve(compactionBytes + endedBytesPerSeries*int64(len(portion)))()
	err = db.CompactSelectedSeries(portion)
	if more && err == nil {
		runtime.GC()
	}
	return more, err
}

// endedThatFit returns how many ended series can be written with half of the memory that
// is left.
func (db *DB) endedThatFit() int64 {
	return (db.opts.Memory.Room()/2 - compactionBytes) / endedBytesPerSeries
}

// fits reports whether there is memory to merge blocks. Those of ended series overlap, so
// that each new one would be merged with all that left before.
func (db *DB) fits(blocks []string) bool {
	if db.opts.Memory == nil {
		return true
	}
	var series int64
	for _, dir := range blocks {
		meta, _, err := readMetaFile(dir)
		if err != nil || !hasEnded(meta) {
			return true
		}
		series += int64(meta.Stats.NumSeries)
	}
	return !db.opts.Memory.Tight() && series <= db.endedThatFit()
}

// hasEnded reports whether a block has the series that left the head before their time.
// It is not merged with other blocks.
func hasEnded(meta *BlockMeta) bool {
	return meta.Compaction.FromStaleSeries() || meta.Compaction.FromSelectedSeries()
}

// pauseAfter returns how long to wait after an early compaction that took so long.
func pauseAfter(took time.Duration) time.Duration {
	return min(max(tightLeastPause, tightPause*took), tightMostPause)
}

// sendsBlocks reports whether blocks are sent elsewhere and compacted there, as with
// Thanos's sidecar, by the sign that they are not made larger here. Blocks of stale series
// overlap with others: those of one class are merged here all the same, after which a
// sidecar leaves them out, and the other end may not want the rest.
func (db *DB) sendsBlocks() bool { return db.opts.MinBlockDuration == db.opts.MaxBlockDuration }

// manyStale reports whether enough series have ended.
func (db *DB) manyStale() bool {
	stale := db.head.NumStaleSeries()
	return !db.sendsBlocks() && stale > 0 && stale >= db.head.NumSeries()/tightStaleShare
}

// oldHead returns the part of the head that no appender can add to any more, of at most
// one block, if it is long enough.
func (db *DB) oldHead() *RangeHead {
	if !db.head.initialized() || db.head.compactable() { // Then Compact does it, in a moment.
		return nil
	}
	chunkRange := db.head.chunkRange.Load()
	mint := db.head.MinTime()
	// As for Compact: appendableMinValidTime lets no appender begin below.
	maxt := min(rangeForTimestamp(mint, chunkRange), db.head.MaxTime()-chunkRange/2)
	if maxt-mint < chunkRange/tightChunkRanges {
		return nil
	}
	return NewRangeHeadWithIsolationDisabled(db.head, mint, maxt-1)
}
