// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/tsdb/wlog"
)

// Contents is what a log holds.
type Contents struct {
	Segments int
	Bytes    int64
	Records  int
	Series   int // entries in series records; a series logged twice counts twice
	Samples  int // floats and native histograms

	Exemplars int
	// Corruption is what ended the count early, if anything did: a replay ends
	// there as well, and Prometheus repairs the log.
	Corruption error
}

// Segments are the paths of the log's segments in the order of a replay: those
// of the last checkpoint, those after it, and those with out-of-order samples.
func (d *Dir) Segments() ([]string, error) {
	paths, err := d.walSegments()
	if err != nil {
		return nil, err
	}
	for _, part := range d.parts {
		if part.to == wlog.WblDirName {
			return appendSegments(paths, part.from, 0)
		}
	}
	return paths, nil
}

func (d *Dir) walSegments() (paths []string, err error) {
	checkpoint, at, err := wlog.LastCheckpoint(d.wal)
	if errors.Is(err, record.ErrNotFound) {
		return appendSegments(nil, d.wal, 0)
	}
	if err == nil {
		paths, err = appendSegments(nil, checkpoint, 0)
	}
	if err != nil {
		return nil, err
	}
	return appendSegments(paths, d.wal, at+1)
}

func appendSegments(paths []string, dir string, from int) ([]string, error) {
	first, last, err := wlog.Segments(dir)
	if err != nil {
		return nil, err
	}
	for i := max(first, from); first >= 0 && i <= last; i++ {
		paths = append(paths, wlog.SegmentName(dir, i))
	}
	return paths, nil
}

// Count reads the log from end to end, but for the one with out-of-order samples. It
// returns an error if not one record can be read.
func (d *Dir) Count(ctx context.Context) (Contents, error) {
	segments, err := d.walSegments()
	if err != nil {
		return Contents{}, err
	}
	c, err := Read(ctx, segments, true)
	if _, ok := errors.AsType[*fs.PathError](err); ok || ctx.Err() != nil {
		return Contents{}, err
	}
	if err != nil && c.Records == 0 {
		return Contents{}, fmt.Errorf("%s is not a readable WAL: %w", d.wal, err)
	}
	c.Corruption = err
	return c, nil
}

// Read passes once over segments, in the order given. With decode it takes the bytes
// apart into records, and decompresses and decodes them with upstream's code;
// otherwise it merely reads them. With an error, which the first segment that cannot
// be read or is corrupt is, it returns what was read until then.
func Read(ctx context.Context, segments []string, decode bool) (Contents, error) {
	return read(ctx, segments, decode, func(*reader) {})
}

// read is Read that shows the series and samples of each record, whose buffers it uses
// again.
func read(ctx context.Context, segments []string, decode bool, show func(*reader)) (Contents, error) {
	r := reader{ctx: ctx, show: show, dec: record.NewDecoder(labels.NewSymbolTable(), promslog.NewNopLogger())}
	for _, path := range segments {
		if err := r.segment(path, decode); err != nil {
			return r.Contents, fmt.Errorf("%s: %w", path, err)
		}
		r.Segments++
	}
	return r.Contents, nil
}

// reader decodes records into buffers that it uses again.
type reader struct {
	Contents

	ctx  context.Context
	dec  record.Decoder
	show func(*reader)

	series     []record.RefSeries
	samples    []record.RefSample
	histograms []record.RefHistogramSample
	floats     []record.RefFloatHistogramSample
	exemplars  []record.RefExemplar
	metadata   []record.RefMetadata
	markers    []record.RefMmapMarker
}

func (r *reader) segment(path string, decode bool) error {
	segment, err := wlog.OpenReadSegment(path)
	if err != nil {
		return err
	}
	in := &counted{SegmentFile: segment.SegmentFile, reader: r}
	segment.SegmentFile = in
	defer in.Close()
	if !decode {
		_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, in, make([]byte, 1<<20))
		return err
	}
	// It fills the last page up with zeros: a killed process leaves part of a page.
	records := wlog.NewReader(wlog.NewSegmentBufReader(segment))
	for records.Next() {
		if err := r.record(records.Record()); err != nil {
			return fmt.Errorf("record before offset %d: %w", records.Offset(), err)
		}
		r.Records++
	}
	return records.Err()
}

func (r *reader) record(rec []byte) (err error) {
	r.series, r.samples = r.series[:0], r.samples[:0]
	defer r.show(r)
	switch r.dec.Type(rec) {
	case record.Series:
		r.series, err = r.dec.Series(rec, r.series)
		r.Series += len(r.series)
	case record.Samples, record.SamplesV2:
		r.samples, err = r.dec.Samples(rec, r.samples)
		r.Samples += len(r.samples)
	case record.HistogramSamples, record.HistogramSamplesV2, record.CustomBucketsHistogramSamples:
		r.histograms, err = r.dec.HistogramSamples(rec, r.histograms[:0])
		r.Samples += len(r.histograms)
	case record.FloatHistogramSamples, record.FloatHistogramSamplesV2, record.CustomBucketsFloatHistogramSamples:
		r.floats, err = r.dec.FloatHistogramSamples(rec, r.floats[:0])
		r.Samples += len(r.floats)
	case record.Exemplars:
		r.exemplars, err = r.dec.Exemplars(rec, r.exemplars[:0])
		r.Exemplars += len(r.exemplars)
	case record.Metadata:
		r.metadata, err = r.dec.Metadata(rec, r.metadata[:0])
	case record.MmapMarkers:
		r.markers, err = r.dec.MmapMarkers(rec, r.markers[:0])
	case record.Tombstones:
		_, err = r.dec.Tombstones(rec, nil)
	}
	return err // A type that is not known is passed over, as Prometheus does.
}

// counted counts what is read, and ends when the context does.
type counted struct {
	wlog.SegmentFile

	reader *reader
}

func (c *counted) Read(b []byte) (int, error) {
	if err := c.reader.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.SegmentFile.Read(b)
	c.reader.Bytes += int64(n)
	return n, err
}
