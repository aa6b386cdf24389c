// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import "time"

// Memory knows how scarce memory is.
type Memory interface {
	// Tight reports whether what can be made smaller should be.
	Tight() bool
	// Reserve says that so many bytes are about to be needed, until done is called.
	Reserve(bytes int64) (done func())
	// Room reports whether so many bytes can be used now. 0 bytes say that nobody waits for
	// them.
	Room(bytes int64) bool
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
	tightPause      = 10
	tightLeastPause = 15 * time.Second
	tightMostPause  = time.Minute
	// tightLook is how often it is looked at.
	tightLook = time.Second
)

// untilLook is how long the database waits before it looks whether it has to do
// something.
func (db *DB) untilLook() time.Duration {
	if db.opts.Memory == nil {
		return db.opts.BlockReloadInterval
	}
	if db.nextLook.IsZero() {
		db.nextLook = time.Now().Add(db.opts.BlockReloadInterval)
	}
	return min(tightLook, db.opts.BlockReloadInterval)
}

// due reports whether the interval of blocks has passed since the last time, or the head
// is to be compacted early.
func (db *DB) due() bool {
	now := time.Now()
	if db.opts.Memory != nil && now.Before(db.nextLook) && !db.tightCompactable(now) {
		return false
	}
	db.nextLook = now.Add(db.opts.BlockReloadInterval)
	return true
}

// tightCompactable reports whether memory is tight and an early compaction frees some.
func (db *DB) tightCompactable(now time.Time) bool {
	return db.opts.Memory != nil && db.opts.Memory.Tight() && !now.Before(db.nextTight) && (db.manyStale() || db.oldHead() != nil)
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
	defer func() { db.nextTight = time.Now().Add(pauseAfter(time.Since(start))) }()
	if !db.autoCompact {
		return
	}
	defer db.reserve(db.head.CompactionBytes())()
	if db.manyStale() {
		if err := db.CompactStaleHead(); err != nil {
			db.logger.Error("compaction of stale series while memory is tight failed", "err", err)
		}
	}
	if rh := db.oldHead(); rh != nil {
		db.head.WaitForAppendersOverlapping(rh.MaxTime())
		if err := db.CompactHead(rh); err != nil {
			db.logger.Error("compaction of the head while memory is tight failed", "mint", rh.MinTime(), "maxt", rh.MaxTime(), "err", err)
		}
	}
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
