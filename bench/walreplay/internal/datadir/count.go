// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/tsdb/wlog"

	"github.com/promguard/promguard/bench/walreplay/internal/progress"
)

// Contents is what a log holds: its last checkpoint and the segments after it.
type Contents struct {
	Segments int
	Records  int
	Series   int // entries in series records; a series logged twice counts twice
	Samples  int // floats and native histograms

	Exemplars int
	// Corruption is what ended the reading early, if anything did: a replay
	// ends there as well, and Prometheus repairs the log.
	Corruption error
}

// Segments are the paths of the log's segments in the order of a replay: those
// of the last checkpoint, those after it, and those with out-of-order samples.
func (d *Dir) Segments() ([]string, error) {
	var paths []string
	from := 0
	checkpoint, at, err := wlog.LastCheckpoint(d.wal)
	switch {
	case err == nil:
		if paths, err = appendSegments(paths, checkpoint, 0); err != nil {
			return nil, err
		}
		from = at + 1
	case !errors.Is(err, record.ErrNotFound):
		return nil, err
	}
	if paths, err = appendSegments(paths, d.wal, from); err != nil {
		return nil, err
	}
	for _, part := range d.parts {
		if part.to == wlog.WblDirName {
			return appendSegments(paths, part.from, 0)
		}
	}
	return paths, nil
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

// Count reads the log from end to end. It returns an error if not one record can
// be read. p gets the bytes as they are read.
func (d *Dir) Count(ctx context.Context, p *progress.Line) (Contents, error) {
	c := counter{dec: record.NewDecoder(labels.NewSymbolTable(), promslog.NewNopLogger()), progress: p}
	from := 0
	dir, at, err := wlog.LastCheckpoint(d.wal)
	switch {
	case err == nil:
		if err := c.read(ctx, wlog.SegmentRange{Dir: dir, First: -1, Last: -1}); err != nil {
			return Contents{}, err
		}
		from = at + 1
	case !errors.Is(err, record.ErrNotFound):
		return Contents{}, err
	}
	first, last, err := wlog.Segments(d.wal)
	if err != nil {
		return Contents{}, err
	}
	for i := max(first, from); first >= 0 && i <= last && c.Corruption == nil; i++ {
		if err := c.read(ctx, wlog.SegmentRange{Dir: d.wal, First: i, Last: i}); err != nil {
			return Contents{}, err
		}
		c.Segments++
	}
	if c.Records == 0 && c.Corruption != nil {
		return Contents{}, fmt.Errorf("%s is not a readable WAL: %w", d.wal, c.Corruption)
	}
	return c.Contents, nil
}

// counter reads logs and counts.
type counter struct {
	Contents
	dec      record.Decoder
	progress *progress.Line

	series     []record.RefSeries
	samples    []record.RefSample
	histograms []record.RefHistogramSample
	floats     []record.RefFloatHistogramSample
	exemplars  []record.RefExemplar
}

// read reads a range of segments up to its end or to what cannot be read.
func (c *counter) read(ctx context.Context, r wlog.SegmentRange) error {
	sr, err := wlog.NewSegmentsRangeReader(r)
	if err != nil {
		return err
	}
	defer sr.Close()
	counted := &countingReader{r: sr}
	reader := wlog.NewReader(counted)
	for reader.Next() {
		if err := c.record(reader.Record()); err != nil {
			c.Corruption = err
			break
		}
		c.Records++
		if c.Records%1024 == 0 {
			c.progress.Add(float64(counted.take()))
			if err := ctx.Err(); err != nil {
				return err
			}
		}
	}
	if c.Corruption == nil {
		c.Corruption = reader.Err()
	}
	c.progress.Add(float64(counted.take()))
	return nil
}

func (c *counter) record(rec []byte) (err error) {
	switch c.dec.Type(rec) {
	case record.Series:
		c.series, err = c.dec.Series(rec, c.series[:0])
		c.Series += len(c.series)
	case record.Samples, record.SamplesV2:
		c.samples, err = c.dec.Samples(rec, c.samples[:0])
		c.Samples += len(c.samples)
	case record.HistogramSamples, record.HistogramSamplesV2, record.CustomBucketsHistogramSamples:
		c.histograms, err = c.dec.HistogramSamples(rec, c.histograms[:0])
		c.Samples += len(c.histograms)
	case record.FloatHistogramSamples, record.FloatHistogramSamplesV2, record.CustomBucketsFloatHistogramSamples:
		c.floats, err = c.dec.FloatHistogramSamples(rec, c.floats[:0])
		c.Samples += len(c.floats)
	case record.Exemplars:
		c.exemplars, err = c.dec.Exemplars(rec, c.exemplars[:0])
		c.Exemplars += len(c.exemplars)
	}
	return err
}

// countingReader counts the bytes that pass.
type countingReader struct {
	r            io.Reader
	total, taken int64
}

func (r *countingReader) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	r.total += int64(n)
	return n, err
}

// take is how many bytes passed since it was last called.
func (r *countingReader) take() int64 {
	n := r.total - r.taken
	r.taken = r.total
	return n
}
