// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package chunks

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// HeadChunkMeta is what the header of a chunk in a head chunk file says.
type HeadChunkMeta struct {
	SeriesRef        HeadSeriesRef
	Ref              ChunkDiskMapperRef
	MinTime, MaxTime int64
	NumSamples       uint16
	Encoding         chunkenc.Encoding
	IsOOO            bool
}

var errUnreadableHeadChunks = errors.New("unreadable head chunk file")

// FileSequences returns the numbers of the mapped files in ascending order.
func (cdm *ChunkDiskMapper) FileSequences() []int {
	cdm.readPathMtx.RLock()
	defer cdm.readPathMtx.RUnlock()
	return slices.Sorted(maps.Keys(cdm.mmappedChunkFiles))
}

// ReadChunkMetas checks every chunk of one file and appends its header to
// metas, in the order of the file. It may be called for several files at once,
// but only before the first chunk is written. Any error says no more than that
// IterateAllChunks must be asked for the canonical one.
func (cdm *ChunkDiskMapper) ReadChunkMetas(seq int, metas []HeadChunkMeta) ([]HeadChunkMeta, error) {
	cdm.readPathMtx.RLock()
	file, ok := cdm.mmappedChunkFiles[seq]
	inUse := cdm.curFile != nil
	cdm.readPathMtx.RUnlock()
	if !ok || inUse {
		return nil, errUnreadableHeadChunks
	}
	var maxTime int64
	if metas == nil {
		metas = make([]HeadChunkMeta, 0, file.byteSlice.Len()/128) // About what a chunk of floats takes.
	}
	b := file.byteSlice.Range(0, file.byteSlice.Len())
	for at := HeadChunkFileHeaderSize; at < len(b); {
		if len(b)-at < MaxHeadChunkMetaSize {
			if slices.ContainsFunc(b[at:], func(c byte) bool { return c != 0 }) {
				return nil, errUnreadableHeadChunks
			}
			break
		}
		h := b[at:]
		m := HeadChunkMeta{
			SeriesRef: HeadSeriesRef(binary.BigEndian.Uint64(h)),
			Ref:       newChunkDiskMapperRef(uint64(seq), uint64(at)),
			MinTime:   int64(binary.BigEndian.Uint64(h[SeriesRefSize:])),
			MaxTime:   int64(binary.BigEndian.Uint64(h[SeriesRefSize+MintMaxtSize:])),
		}
		if m.SeriesRef == 0 && m.MinTime == 0 && m.MaxTime == 0 {
			break // The rest of the file was allocated and not used.
		}
		n := SeriesRefSize + 2*MintMaxtSize
		enc := chunkenc.Encoding(h[n])
		n += ChunkEncodingSize
		size, k := binary.Uvarint(h[n : n+MaxChunkLengthFieldSize])
		if k <= 0 || size < 2 || size > uint64(len(h)) {
			return nil, errUnreadableHeadChunks
		}
		n += k
		if n+int(size)+CRCSize > len(h) {
			return nil, errUnreadableHeadChunks
		}
		m.NumSamples = binary.BigEndian.Uint16(h[n:])
		n += int(size)
		if err := checkCRC32(h[:n], h[n:n+CRCSize]); err != nil {
			return nil, errUnreadableHeadChunks
		}
		m.IsOOO = cdm.IsOutOfOrderChunk(enc)
		m.Encoding = cdm.RemoveMasks(enc)
		maxTime = max(maxTime, m.MaxTime)
		metas = append(metas, m)
		at += n + CRCSize
	}
	cdm.readPathMtx.Lock()
	file.maxt = max(file.maxt, maxTime)
	cdm.readPathMtx.Unlock()
	return metas, nil
}

// FilesRead says that the chunks of all files have been read: their maximum
// times are known from here on.
func (cdm *ChunkDiskMapper) FilesRead() {
	cdm.writePathMtx.Lock()
	defer cdm.writePathMtx.Unlock()
	cdm.fileMaxtSet = true
}

// DiscardWritten deletes the files with a number greater than last, which must
// be those that were written since the mapper was opened, and makes the mapper
// write as if nothing had been. No chunk may be written or read meanwhile.
func (cdm *ChunkDiskMapper) DiscardWritten(last int) error {
	for !cdm.IsQueueEmpty() {
		time.Sleep(time.Millisecond)
	}
	cdm.evtlPosMtx.Lock()
	defer cdm.evtlPosMtx.Unlock()
	cdm.writePathMtx.Lock()
	defer cdm.writePathMtx.Unlock()
	if cdm.curFile != nil {
		_ = cdm.curFile.Close() // It is deleted; a cut that failed has closed it already.
	}
	cdm.curFile, cdm.curFileSequence, cdm.curFileMaxt = nil, 0, 0
	cdm.curFileOffset.Store(0)
	if cdm.chkWriter != nil {
		cdm.chkWriter.Reset(nil)
	}
	cdm.chunkBuffer.clear()
	cdm.evtlPos = chunkPos{seq: uint64(last)}
	if err := cdm.deleteAfter(last); err != nil {
		return fmt.Errorf("discard written head chunk files: %w", err)
	}
	return nil
}

// deleteAfter deletes the files with a number greater than last, the newest
// first: whatever stops it, the files that are left have no gap, with which no
// mapper could be opened again.
func (cdm *ChunkDiskMapper) deleteAfter(last int) error {
	cdm.readPathMtx.Lock()
	defer cdm.readPathMtx.Unlock()
	files, err := listChunkFiles(cdm.dir.Name())
	if err != nil {
		return err
	}
	for _, seq := range slices.Backward(slices.Sorted(maps.Keys(files))) {
		if seq <= last {
			return nil
		}
		if c, ok := cdm.closers[seq]; ok {
			if err := c.Close(); err != nil {
				return err
			}
			delete(cdm.mmappedChunkFiles, seq)
			delete(cdm.closers, seq)
		}
		if err := os.Remove(files[seq]); err != nil {
			return err
		}
	}
	return nil
}
