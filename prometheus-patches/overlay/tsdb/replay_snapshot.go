// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"os"
	"path/filepath"

	"github.com/prometheus/prometheus/tsdb/wlog"
)

// replaySnapshotCost is how many bytes of log are replayed in parallel, about,
// while one byte of a chunk snapshot is loaded or one of the log behind it is
// replayed sequentially. Both take one processor.
const replaySnapshotCost = 4

// replaySnapshot says what there is of a chunk snapshot.
type replaySnapshot int

const (
	replayNoSnapshot     replaySnapshot = iota // Or it may not be loaded.
	replaySlowerSnapshot                       // Than the log, which has all that it has.
	replayUsedSnapshot
)

// findSnapshot looks at the last chunk snapshot. A snapshot takes nothing out of
// the log: without it, the log gives the same head, but for the exemplars that are
// older than it.
func (h *Head) findSnapshot() replaySnapshot {
	if !h.opts.EnableMemorySnapshotOnShutdown {
		return replayNoSnapshot
	}
	dir, segment, offset, err := LastChunkSnapshot(h.opts.ChunkDirRoot)
	if err != nil {
		return replayNoSnapshot
	}
	_, last, err := wlog.Segments(h.wal.Dir())
	if err != nil || last < segment || h.opts.MaxExemplars.Load() > 0 {
		return replayUsedSnapshot
	}
	snapshot, err := sizeOfFiles(dir)
	if err != nil {
		return replayUsedSnapshot
	}
	checkpoint, first, err := wlog.LastCheckpoint(h.wal.Dir())
	before, after := int64(offset), -int64(offset)
	if err == nil {
		first++
		if first > segment {
			return replaySlowerSnapshot // It is older than the checkpoint.
		}
		size, err := sizeOfFiles(checkpoint)
		if err != nil {
			return replayUsedSnapshot
		}
		before += size
	}
	for i := first; i <= last; i++ {
		info, err := os.Stat(wlog.SegmentName(h.wal.Dir(), i))
		switch {
		case err != nil && i < segment:
			return replayUsedSnapshot
		case err != nil:
		case i < segment:
			before += info.Size()
		default:
			after += info.Size()
		}
	}
	if before > replaySnapshotCost*snapshot+(replaySnapshotCost-1)*after {
		return replayUsedSnapshot
	}
	return replaySlowerSnapshot
}

func sizeOfFiles(dir string) (size int64, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		info, err := os.Stat(filepath.Join(dir, e.Name()))
		if err != nil {
			return 0, err
		}
		size += info.Size()
	}
	return size, err
}
