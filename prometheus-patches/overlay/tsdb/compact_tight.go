// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"fmt"
	"time"
)

// Memory knows how scarce memory is.
type Memory interface {
	// Tight reports whether what can be made smaller should be.
	Tight() bool
	// Reserve says that so many bytes are about to be needed, until done is called.
	Reserve(bytes int64) (done func())
}

// A compaction of the head, and the checkpoint after it, take so much at their peak.
const (
	compactionBytes          = 32 << 20
	compactionBytesPerSeries = 96
)

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
	// tightPause is the pause after a compaction, in times of how long it took: of the
	// time, no more than an eleventh is spent.
	tightPause = 10
)

// compactTight makes the head smaller while memory is tight: series that have ended
// are written to blocks and leave the head, and so does what is older than any sample
// that can still be appended, which the next compaction would have written.
//
// Both are upstream's compactions, at another time. They do not begin where little is
// to be gained, or soon after the last.
func (db *DB) compactTight() {
	if db.opts.Memory == nil || !db.opts.Memory.Tight() || time.Now().Before(db.nextTight) {
		return
	}
	db.autoCompactMtx.Lock()
	defer db.autoCompactMtx.Unlock()
	if !db.autoCompact {
		return
	}
	defer db.reserveMemory()()
	start := time.Now()
	if stale := db.head.NumStaleSeries(); !db.sendsBlocks() && stale > 0 && stale >= db.head.NumSeries()/tightStaleShare {
		if err := db.CompactStaleHead(); err != nil {
			db.logger.Error("compaction of stale series while memory is tight failed", "err", err)
		}
	}
	if err := db.compactOldHead(); err != nil {
		db.logger.Error("compaction of the head while memory is tight failed", "err", err)
	}
	db.nextTight = time.Now().Add(tightPause * time.Since(start))
}

// sendsBlocks reports whether blocks are sent elsewhere and compacted there, as with
// Thanos's sidecar, by the sign that they are not made larger here. Blocks of stale series
// overlap with others: those of one class are merged here all the same, after which a
// sidecar leaves them out, and the other end may not want the rest.
func (db *DB) sendsBlocks() bool { return db.opts.MinBlockDuration == db.opts.MaxBlockDuration }

// compactOldHead writes the part of the head that no appender can add to any more, of
// at most one block, if it is long enough.
func (db *DB) compactOldHead() error {
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
	rh := NewRangeHeadWithIsolationDisabled(db.head, mint, maxt-1)
	db.head.WaitForAppendersOverlapping(rh.MaxTime())
	if err := db.CompactHead(rh); err != nil {
		return fmt.Errorf("mint %d, maxt %d: %w", mint, maxt, err)
	}
	return nil
}
