// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// replayMarker is a file in the data directory for as long as a replay goes on, so
// that the start after one that was killed meanwhile, for the memory that it took
// or whatever, does not try the same again. Only the start after that does: if the
// sequential replay is killed too, for it takes longer, neither way is for ever.
const replayMarker = "promguard_wal_replay"

// markReplay leaves the marker, or takes it away if there is one and reports that
// the sequential replay's turn has come. Nothing that happens to the marker fails a
// start.
func (h *Head) markReplay() (sequential bool) {
	name := filepath.Join(h.opts.ChunkDirRoot, replayMarker)
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err == nil {
		err = f.Close()
	}
	if errors.Is(err, fs.ErrExist) {
		h.logger.Warn("The WAL is replayed sequentially, as a start before this one ended while it replayed it in parallel")
		h.unmarkReplay()
		return true
	}
	if err != nil {
		h.logger.Warn("If this replay is killed, the next start will not know", "err", err)
	}
	return false
}

func (h *Head) unmarkReplay() {
	err := os.Remove(filepath.Join(h.opts.ChunkDirRoot, replayMarker))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		h.logger.Warn("The next start will replay the WAL sequentially", "err", err)
	}
}

// end is to be called when the head is replayed, in whatever way.
func (r *walReplay) end() {
	if r != nil {
		r.h.unmarkReplay()
	}
}
