// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package floor measures how fast the bytes of a write-ahead log can merely be
// read here, and decoded, by one goroutine that does nothing with them: the least
// that a replay of the log could take on one thread.
package floor

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/tsdb/wlog"

	"github.com/promguard/promguard/bench/walreplay/internal/progress"
)

// Stage is how far the bytes are taken. Each contains the ones before.
type Stage int

// The stages.
const (
	Read   Stage = iota // the files are read
	Decode              // and taken apart into records, decompressed and decoded, with upstream's code
)

// Stages are all stages, in order.
func Stages() []Stage { return []Stage{Read, Decode} }

func (s Stage) String() string { return [...]string{"read", "decode"}[s] }

// Result is what one pass over the log took, and how much it passed. Counts
// that a stage does not get to are 0.
type Result struct {
	Stage Stage
	Wall  time.Duration
	// CPU is the user and system time of this process during the pass, garbage
	// collection included.
	CPU     time.Duration
	Bytes   int64 // read
	Records int
	Series  int // entries in series records
	Samples int // floats and native histograms
	Others  int // exemplars, metadata, tombstones and markers
}

// Measure passes once over segments, in the order given. It returns an error at
// the first one that cannot be read or is corrupt. p gets the bytes read.
func Measure(ctx context.Context, segments []string, s Stage, p *progress.Line) (Result, error) {
	m := meter{result: Result{Stage: s}, progress: p}
	m.dec.Decoder = record.NewDecoder(labels.NewSymbolTable(), promslog.NewNopLogger())
	cpu, err := cpuTime()
	if err != nil {
		return Result{}, err
	}
	begin := time.Now()
	for _, path := range segments {
		if err := m.segment(ctx, path); err != nil {
			return Result{}, fmt.Errorf("%s: %w", path, err)
		}
	}
	m.result.Wall = time.Since(begin)
	after, err := cpuTime()
	m.result.CPU = after - cpu
	return m.result, err
}

// meter takes segments to a stage.
type meter struct {
	result   Result
	dec      decoder
	progress *progress.Line
}

func (m *meter) segment(ctx context.Context, path string) error {
	segment, err := wlog.OpenReadSegment(path)
	if err != nil {
		return err
	}
	in := &counted{ctx: ctx, SegmentFile: segment.SegmentFile, meter: m}
	segment.SegmentFile = in
	defer in.Close()
	if m.result.Stage == Read {
		_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, in, make([]byte, 1<<20))
		return err
	}
	// It fills the last page up with zeros: a killed process leaves part of a page.
	r := wlog.NewReader(wlog.NewSegmentBufReader(segment))
	for r.Next() {
		m.result.Records++
		if err := m.dec.decode(r.Record(), &m.result); err != nil {
			return fmt.Errorf("record before offset %d: %w", r.Offset(), err)
		}
	}
	return r.Err()
}

// counted counts what is read, and ends when the context does.
type counted struct {
	wlog.SegmentFile

	ctx   context.Context
	meter *meter
}

func (c *counted) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.SegmentFile.Read(b)
	c.meter.result.Bytes += int64(n)
	c.meter.progress.Add(float64(n))
	return n, err
}

// decoder decodes records into buffers that it uses again.
type decoder struct {
	record.Decoder

	series     []record.RefSeries
	samples    []record.RefSample
	histograms []record.RefHistogramSample
	floats     []record.RefFloatHistogramSample
	exemplars  []record.RefExemplar
	metadata   []record.RefMetadata
	markers    []record.RefMmapMarker
}

func (d *decoder) decode(rec []byte, r *Result) (err error) {
	switch d.Type(rec) {
	case record.Series:
		d.series, err = d.Series(rec, d.series[:0])
		r.Series += len(d.series)
	case record.Samples, record.SamplesV2:
		d.samples, err = d.Samples(rec, d.samples[:0])
		r.Samples += len(d.samples)
	case record.HistogramSamples, record.HistogramSamplesV2, record.CustomBucketsHistogramSamples:
		d.histograms, err = d.HistogramSamples(rec, d.histograms[:0])
		r.Samples += len(d.histograms)
	case record.FloatHistogramSamples, record.FloatHistogramSamplesV2, record.CustomBucketsFloatHistogramSamples:
		d.floats, err = d.FloatHistogramSamples(rec, d.floats[:0])
		r.Samples += len(d.floats)
	case record.Exemplars:
		d.exemplars, err = d.Exemplars(rec, d.exemplars[:0])
		r.Others += len(d.exemplars)
	case record.Metadata:
		d.metadata, err = d.Metadata(rec, d.metadata[:0])
		r.Others += len(d.metadata)
	case record.MmapMarkers:
		d.markers, err = d.MmapMarkers(rec, d.markers[:0])
		r.Others += len(d.markers)
	case record.Tombstones:
		stones, tombErr := d.Tombstones(rec, nil)
		r.Others, err = r.Others+len(stones), tombErr
	}
	return err // A type that is not known is passed over, as Prometheus does.
}
