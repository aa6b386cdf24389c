// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/tsdb/wlog"
)

// recordVisitor is called with a record and the bytes that it takes in the log,
// which are known for segments only.
type recordVisitor func(rec []byte, size int64) error

// writeAheadLog is a log on disk: the newest checkpoint and the segments after it.
type writeAheadLog struct {
	dir        string
	checkpoint string // Empty if there is none.
	from, last int
}

// findLog returns nil if the directory has no log.
func findLog(path string) (*writeAheadLog, error) {
	dir := filepath.Join(path, "wal")
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	l := &writeAheadLog{dir: dir}
	first, last, err := wlog.Segments(dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	l.from, l.last = first, last
	checkpoint, n, err := wlog.LastCheckpoint(dir)
	switch {
	case errors.Is(err, record.ErrNotFound):
	case err != nil:
		return nil, fmt.Errorf("%s: %w", dir, err)
	default:
		l.checkpoint = checkpoint
		l.from = max(first, n+1)
	}
	return l, nil
}

// eachOfCheckpoint calls visit with every record of the checkpoint.
func (l *writeAheadLog) eachOfCheckpoint(ctx context.Context, visit recordVisitor) error {
	if l.checkpoint == "" {
		return nil
	}
	if err := eachRecord(ctx, visit, wlog.SegmentRange{Dir: l.checkpoint, First: -1, Last: -1}); err != nil {
		return fmt.Errorf("%s: %w", l.checkpoint, err)
	}
	return nil
}

// eachOfSegments calls visit with every record after the checkpoint. torn is set
// if the last segment ends in something that is no record, as after a crash; a
// server cuts it off when it starts.
func (l *writeAheadLog) eachOfSegments(ctx context.Context, visit recordVisitor) (torn, err error) {
	for n := l.from; n >= 0 && n <= l.last; n++ {
		err := eachRecord(ctx, visit, wlog.SegmentRange{Dir: l.dir, First: n, Last: n})
		if corrupt, ok := errors.AsType[*wlog.CorruptionErr](err); ok && n == l.last {
			return corrupt, nil
		}
		if err != nil {
			return nil, fmt.Errorf("segment %s: %w", wlog.SegmentName(l.dir, n), err)
		}
	}
	return nil, nil
}

func eachRecord(ctx context.Context, visit recordVisitor, segments wlog.SegmentRange) (err error) {
	r, err := wlog.NewSegmentsRangeReader(segments)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	records := wlog.NewReader(r)
	end := int64(0)
	for records.Next() {
		if err := ctx.Err(); err != nil {
			return err
		}
		began := end
		end = records.Offset()
		if err := visit(records.Record(), end-began); err != nil {
			return err
		}
	}
	return records.Err()
}

// readSamples finds when each series got samples, and measures the log.
func (d *Directory) readSamples(ctx context.Context, l *writeAheadLog) error {
	d.samples = map[chunks.HeadSeriesRef]*span{}
	byLabels := map[uint64]*span{}
	series := seriesReader(func(s record.RefSeries) error {
		// One that was created anew after a restart is the same series.
		hash := s.Labels.Hash()
		if byLabels[hash] == nil {
			byLabels[hash] = newSpan()
		}
		d.samples[s.Ref] = byLabels[hash]
		return nil
	})
	var n, size int64
	samples := newSampleReader(func(ref chunks.HeadSeriesRef, t int64, stale bool) {
		n++
		// Samples of series that are not in the log any more are none of the head.
		if s := d.samples[ref]; s != nil {
			s.add(t, stale)
			d.newest = max(d.newest, t)
		}
	})
	read := func(rec []byte, bytes int64) error {
		before := n
		err := errors.Join(series(rec, bytes), samples.read(rec))
		if n > before {
			size += bytes
		}
		return err
	}
	if err := l.eachOfCheckpoint(ctx, read); err != nil {
		return err
	}
	n, size = 0, 0
	torn, err := l.eachOfSegments(ctx, read)
	if err != nil {
		return err
	}
	if torn != nil {
		d.Note = "it ends in a record that was not completed, and was read up to it: " + torn.Error()
	}
	if n > 0 {
		// Without the labels of new series: a short log has little else.
		d.WALBytesPerSample = float64(size) / float64(n)
	}
	return nil
}

// sampleReader finds the times of samples in records.
type sampleReader struct {
	decoder    record.Decoder
	visit      func(ref chunks.HeadSeriesRef, t int64, stale bool)
	floats     []record.RefSample
	histograms []record.RefHistogramSample
	buckets    []record.RefFloatHistogramSample
}

func newSampleReader(visit func(ref chunks.HeadSeriesRef, t int64, stale bool)) *sampleReader {
	return &sampleReader{decoder: record.NewDecoder(nil, promslog.NewNopLogger()), visit: visit}
}

func (s *sampleReader) read(rec []byte) (err error) {
	switch s.decoder.Type(rec) {
	case record.Samples, record.SamplesV2:
		if s.floats, err = s.decoder.Samples(rec, s.floats[:0]); err != nil {
			return err
		}
		for i := range s.floats {
			s.visit(s.floats[i].Ref, s.floats[i].T, value.IsStaleNaN(s.floats[i].V))
		}
	case record.HistogramSamples, record.CustomBucketsHistogramSamples, record.HistogramSamplesV2:
		if s.histograms, err = s.decoder.HistogramSamples(rec, s.histograms[:0]); err != nil {
			return err
		}
		for i := range s.histograms {
			s.visit(s.histograms[i].Ref, s.histograms[i].T, value.IsStaleNaN(s.histograms[i].H.Sum))
		}
	case record.FloatHistogramSamples, record.CustomBucketsFloatHistogramSamples, record.FloatHistogramSamplesV2:
		if s.buckets, err = s.decoder.FloatHistogramSamples(rec, s.buckets[:0]); err != nil {
			return err
		}
		for i := range s.buckets {
			s.visit(s.buckets[i].Ref, s.buckets[i].T, value.IsStaleNaN(s.buckets[i].FH.Sum))
		}
	}
	return nil
}

// eachOfLog visits the series in the log that have samples in it.
func (d *Directory) eachOfLog(ctx context.Context, visit func(Series) error) error {
	l, err := findLog(d.path)
	if err != nil {
		return err
	}
	if l == nil {
		return fmt.Errorf("%s: the write-ahead log is gone", d.path)
	}
	seen := make(map[*span]bool, len(d.samples))
	read := seriesReader(func(s record.RefSeries) error {
		at := d.samples[s.Ref]
		if at == nil || at.n == 0 || seen[at] {
			return nil
		}
		seen[at] = true
		return visit(Series{Labels: s.Labels, Now: !at.stale && at.last >= d.newest-lookback.Milliseconds(), Rate: at.rate()})
	})
	if err := l.eachOfCheckpoint(ctx, read); err != nil {
		return err
	}
	_, err = l.eachOfSegments(ctx, read)
	return err
}

// seriesReader finds the series in records. Their labels are not copied.
func seriesReader(visit func(record.RefSeries) error) recordVisitor {
	decoder := record.NewDecoder(nil, promslog.NewNopLogger())
	var series []record.RefSeries
	return func(rec []byte, _ int64) (err error) {
		if decoder.Type(rec) != record.Series {
			return nil
		}
		if series, err = decoder.Series(rec, series[:0]); err != nil {
			return err
		}
		for i := range series {
			if err := visit(series[i]); err != nil {
				return err
			}
		}
		return nil
	}
}
