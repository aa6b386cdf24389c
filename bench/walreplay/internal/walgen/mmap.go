// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package walgen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/tsdb/wlog"
)

// mmapChunks fills chunks_head, by having upstream's head replay the logs: it
// m-maps every chunk as the next one of its series begins, as it had done when
// the samples came. One worker replays, so that the same logs give the same
// chunks in the same order. Then the log of out-of-order samples gets the
// markers of the chunks that hold some. It returns the number of chunks; firsts are what the head calls series of other references.
func mmapChunks(ctx context.Context, o Options, firsts map[chunks.HeadSeriesRef]chunks.HeadSeriesRef) (n int, err error) {
	if err := replayInto(ctx, o); err != nil {
		return 0, fmt.Errorf("making the m-mapped chunks: %w", err)
	}
	late, n, err := listChunks(filepath.Join(o.Dir, "chunks_head"))
	if err != nil || o.OutOfOrder == 0 {
		return n, err
	}
	return n, markMmapped(o, firsts, late)
}

// interruptible ends a replay at the next series that it meets.
type interruptible struct{ ctx context.Context }

func (i interruptible) PreCreation(labels.Labels) error                   { return i.ctx.Err() }
func (interruptible) PostCreation(labels.Labels)                          {}
func (interruptible) PostDeletion(map[chunks.HeadSeriesRef]labels.Labels) {}

func replayInto(ctx context.Context, o Options) (err error) {
	log := promslog.NewNopLogger()
	opts := tsdb.DefaultHeadOptions()
	opts.ChunkDirRoot = o.Dir
	opts.WALReplayConcurrency = 1
	opts.IsolationDisabled = true
	opts.SeriesCallback = interruptible{ctx}
	// Open, in contrast to New, begins no segment.
	wal, err := wlog.Open(log, filepath.Join(o.Dir, "wal"))
	if err != nil {
		return err
	}
	var wbl *wlog.WL
	if o.OutOfOrder > 0 {
		if wbl, err = wlog.Open(log, filepath.Join(o.Dir, wlog.WblDirName)); err != nil {
			return err
		}
	}
	head, err := tsdb.NewHead(nil, log, wal, wbl, opts, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, head.Close()) }()
	if err := head.Init(math.MinInt64); err != nil {
		return err
	}
	return ctx.Err()
}

// lateChunks are a series' m-mapped chunks of out-of-order samples, oldest first.
type lateChunks map[chunks.HeadSeriesRef][]chunks.ChunkDiskMapperRef

func listChunks(dir string) (late lateChunks, n int, err error) {
	mapper, err := chunks.NewChunkDiskMapper(nil, dir, chunkenc.NewPool(), chunks.DefaultWriteBufferSize, 0)
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, mapper.Close()) }()
	late = lateChunks{}
	err = mapper.IterateAllChunks(func(series chunks.HeadSeriesRef, ref chunks.ChunkDiskMapperRef, _, _ int64, _ uint16, _ chunkenc.Encoding, outOfOrder bool) error {
		n++
		if outOfOrder {
			late[series] = append(late[series], ref)
		}
		return nil
	})
	return late, n, err
}

// markMmapped rewrites the log of out-of-order samples with a marker where a
// chunk of them was m-mapped: before the record with the first sample after it.
func markMmapped(o Options, firsts map[chunks.HeadSeriesRef]chunks.HeadSeriesRef, late lateChunks) error {
	from, to := filepath.Join(o.Dir, wlog.WblDirName), filepath.Join(o.Dir, wlog.WblDirName+".tmp")
	out, err := wlog.NewSize(nil, nil, to, o.SegmentSize, o.Compression)
	if err != nil {
		return err
	}
	if err := copyMarked(out, from, firsts, late); err != nil {
		return errors.Join(err, out.Close(), os.RemoveAll(to))
	}
	if err := closeAsKilled(out); err != nil {
		return errors.Join(err, os.RemoveAll(to))
	}
	if err := os.RemoveAll(from); err != nil {
		return err
	}
	return os.Rename(to, from)
}

func copyMarked(out *wlog.WL, from string, firsts map[chunks.HeadSeriesRef]chunks.HeadSeriesRef, late lateChunks) error {
	in, err := wlog.NewSegmentsReader(from)
	if err != nil {
		return err
	}
	defer in.Close()
	var (
		enc     record.Encoder
		dec     = record.NewDecoder(labels.NewSymbolTable(), promslog.NewNopLogger())
		samples []record.RefSample
		open    = map[chunks.HeadSeriesRef]int{} // samples in a series' chunk that is not m-mapped
		marked  = map[chunks.HeadSeriesRef]int{} // chunks that have their marker
	)
	r := wlog.NewReader(in)
	for r.Next() {
		if samples, err = dec.Samples(r.Record(), samples[:0]); err != nil {
			return err
		}
		var markers []record.RefMmapMarker
		for _, s := range samples {
			ref := s.Ref
			if first, ok := firsts[ref]; ok {
				ref = first
			}
			if open[ref] == int(tsdb.DefaultOutOfOrderCapMax) {
				markers = append(markers, record.RefMmapMarker{Ref: ref, MmapRef: late[ref][marked[ref]]})
				marked[ref]++
				open[ref] = 0
			}
			open[ref]++
		}
		if len(markers) > 0 {
			slices.SortFunc(markers, func(a, b record.RefMmapMarker) int { return cmp.Compare(a.Ref, b.Ref) })
			if err := out.Log(enc.MmapMarkers(markers, nil)); err != nil {
				return err
			}
		}
		if err := out.Log(r.Record()); err != nil {
			return err
		}
	}
	return r.Err()
}
