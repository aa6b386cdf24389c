// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package walgen

import (
	"cmp"
	"errors"
	"os"
	"slices"

	"github.com/prometheus/prometheus/tsdb/wlog"
)

// log writes the records of one scrape, in the order in which a commit does.
func (g *generator) log() error {
	for batch := range chunked(g.series, g.o.SeriesPerRecord) {
		if err := g.logRecord(g.enc.Series(batch, g.buf[:0])); err != nil {
			return err
		}
	}
	if len(g.metadata) > 0 {
		if err := g.logRecord(g.enc.Metadata(g.metadata, g.buf[:0])); err != nil {
			return err
		}
	}
	if len(g.stones) > 0 {
		if err := g.logRecord(g.enc.Tombstones(g.stones, g.buf[:0])); err != nil {
			return err
		}
	}
	for batch := range chunked(g.samples, g.o.SamplesPerRecord) {
		if err := g.logRecord(g.enc.Samples(batch, g.buf[:0])); err != nil {
			return err
		}
	}
	for batch := range chunked(g.ints, g.o.SamplesPerRecord) {
		rec, _ := g.enc.HistogramSamples(batch, g.buf[:0])
		if err := g.logRecord(rec); err != nil {
			return err
		}
	}
	for batch := range chunked(g.floats, g.o.SamplesPerRecord) {
		rec, _ := g.enc.FloatHistogramSamples(batch, g.buf[:0])
		if err := g.logRecord(rec); err != nil {
			return err
		}
	}
	if len(g.exemplars) > 0 {
		if err := g.logRecord(g.enc.Exemplars(g.exemplars, g.buf[:0])); err != nil {
			return err
		}
	}
	if len(g.late) == 0 {
		return nil
	}
	g.buf = g.enc.Samples(g.late, g.buf[:0])
	return g.wbl.Log(g.buf)
}

// chunked is slices.Chunk, but for size 0, which is all in one.
func chunked[T any](all []T, size int) func(func([]T) bool) {
	return slices.Chunk(all, max(1, cmp.Or(size, len(all))))
}

func (g *generator) logRecord(rec []byte) error {
	g.buf = rec
	g.stats.Records++
	return g.wal.Log(rec)
}

func (g *generator) close() error {
	err := g.wal.Close()
	if g.wbl != nil {
		err = errors.Join(err, g.wbl.Close())
	}
	return err
}

// leaveAsKilled closes the logs.
func (g *generator) leaveAsKilled() error {
	if g.wbl != nil {
		if err := closeAsKilled(g.wbl); err != nil {
			return errors.Join(err, g.wal.Close())
		}
	}
	if err := closeAsKilled(g.wal); err != nil {
		return err
	}
	first, last, err := wlog.Segments(g.wal.Dir())
	if err != nil {
		return err
	}
	g.stats.Segments = last - first + 1
	g.stats.Bytes, err = g.wal.Size()
	return err
}

// closeAsKilled closes a log and cuts off what closing it added: a killed
// process does not fill up its last page.
func closeAsKilled(w *wlog.WL) error {
	last, offset, err := w.LastSegmentAndOffset()
	if err != nil {
		return errors.Join(err, w.Close())
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.Truncate(wlog.SegmentName(w.Dir(), last), int64(offset))
}
