// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package walgen writes data directories as a Prometheus that was killed leaves
// them, with the series of a modelled Kubernetes cluster. It writes the
// write-ahead log's records itself, with upstream's encoders, so that their
// size, order and compression can be chosen.
package walgen

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/tsdb/wlog"
	"github.com/prometheus/prometheus/util/compression"

	"github.com/promguard/promguard/bench/walreplay/internal/progress"
	"github.com/promguard/promguard/internal/kubelike"
)

// Options say what to write.
type Options struct {
	// Dir is the data directory to make. It must not exist or be empty.
	Dir string
	// Series is how many series are scraped at any time, 1 or more.
	Series int
	// Scrapes is how often every target is scraped, 1 or more.
	Scrapes int
	// ScrapeInterval is the time between two scrapes of a target, 1 ms or more.
	ScrapeInterval time.Duration
	// Churn is the share of pods that is replaced per hour, 0 or more.
	Churn float64
	// Seed picks names, values and times: the same Options write the same bytes.
	Seed uint64
	// Start is the time of the first scrape.
	Start time.Time
	// Compression of the records: compression.Snappy, Zstd or None.
	Compression compression.Type
	// SegmentSize is the size of a WAL segment in bytes, a multiple of 32 KiB;
	// 0 is Prometheus' own, 128 MiB.
	SegmentSize int
	// SamplesPerRecord is the most samples in a record; 0 puts each scrape of a
	// target in one record, as Prometheus does.
	SamplesPerRecord int
	// Progress gets the number of samples as they are written. May be nil.
	Progress *progress.Line
}

// Stats say what was written.
type Stats struct {
	Series       int // distinct series, replaced pods' included
	Samples      int // stale markers included
	StaleMarkers int
	Records      int
	Segments     int
	Bytes        int64
}

// errNotEmpty is the cause when Options.Dir has something in it.
var errNotEmpty = errors.New("the directory is not empty; name a new one, or remove what is there first")

func (o *Options) validate() error {
	switch {
	case o.Scrapes < 1:
		return fmt.Errorf("scrapes must be 1 or more, got %d", o.Scrapes)
	case o.ScrapeInterval < time.Millisecond:
		return fmt.Errorf("scrape interval must be 1ms or more, got %s", o.ScrapeInterval)
	case o.SamplesPerRecord < 0:
		return fmt.Errorf("samples per record must be 0 or more, got %d", o.SamplesPerRecord)
	case o.SegmentSize < 0 || o.SegmentSize%(32<<10) != 0:
		return fmt.Errorf("segment size must be a multiple of 32KiB, got %d bytes", o.SegmentSize)
	case !slices.Contains(compression.Types(), o.Compression):
		return fmt.Errorf("compression must be one of %v, got %q", compression.Types(), o.Compression)
	}
	return nil
}

// Generate writes the data directory. If it returns an error, or ctx is
// cancelled, nothing of what it wrote is left.
func Generate(ctx context.Context, o Options) (stats Stats, err error) {
	if o.SegmentSize == 0 {
		o.SegmentSize = wlog.DefaultSegmentSize
	}
	if err := o.validate(); err != nil {
		return Stats{}, err
	}
	cluster, err := kubelike.New(kubelike.Config{Series: o.Series, Churn: o.Churn, Seed: o.Seed, Start: o.Start})
	if err != nil {
		return Stats{}, err
	}
	undo, err := makeDir(o.Dir)
	if err != nil {
		return Stats{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, undo())
		}
	}()
	g, err := newGenerator(o, cluster)
	if err != nil {
		return Stats{}, err
	}
	if err := g.scrapeAll(ctx); err != nil {
		return Stats{}, errors.Join(err, g.wal.Close())
	}
	return g.leaveAsKilled()
}

// makeDir makes a directory, or takes an empty one, and returns what removes
// its contents and, if it was made here, itself.
func makeDir(dir string) (undo func() error, err error) {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return nil, err
		}
		return func() error { return os.RemoveAll(dir) }, nil
	case err != nil:
		return nil, err
	case len(entries) > 0:
		return nil, fmt.Errorf("%s: %w", dir, errNotEmpty)
	}
	return func() error {
		return errors.Join(os.RemoveAll(filepath.Join(dir, "wal")), os.RemoveAll(filepath.Join(dir, "chunks_head")))
	}, nil
}

// group is a kubelike.Group with the references of its series' present
// generation.
type group struct {
	*kubelike.Group
	generation int // -1: none yet
	first      chunks.HeadSeriesRef
}

// target is a kubelike.Target, scraped at an offset in each interval.
type target struct {
	offset time.Duration
	groups []group
}

// generator writes one log.
type generator struct {
	o       Options
	wal     *wlog.WL
	enc     record.Encoder
	targets []target
	next    chunks.HeadSeriesRef
	stats   Stats

	// Buffers for one scrape of one target.
	labels  []labels.Labels
	values  []float64
	series  []record.RefSeries
	samples []record.RefSample
	stale   []record.RefSample
	buf     []byte
}

func newGenerator(o Options, cluster *kubelike.Cluster) (*generator, error) {
	if err := os.Mkdir(filepath.Join(o.Dir, "chunks_head"), 0o777); err != nil {
		return nil, err
	}
	wal, err := wlog.NewSize(nil, nil, filepath.Join(o.Dir, "wal"), o.SegmentSize, o.Compression)
	if err != nil {
		return nil, err
	}
	g := &generator{o: o, wal: wal, next: 1}
	for _, kt := range cluster.Targets() {
		t := target{offset: kt.ScrapeOffset(o.ScrapeInterval)}
		for _, kg := range kt.Groups() {
			t.groups = append(t.groups, group{Group: kg, generation: -1})
		}
		g.targets = append(g.targets, t)
	}
	slices.SortStableFunc(g.targets, func(a, b target) int { return int(a.offset - b.offset) })
	return g, nil
}

func (g *generator) scrapeAll(ctx context.Context) error {
	for i := range g.o.Scrapes {
		for j := range g.targets {
			if err := ctx.Err(); err != nil {
				return err
			}
			t := &g.targets[j]
			if err := g.scrape(t, time.Duration(i)*g.o.ScrapeInterval+t.offset); err != nil {
				return err
			}
		}
	}
	return nil
}

// scrape logs what a commit after one scrape of a target logs: the series that
// are new, then the samples, among them stale markers for what has gone.
func (g *generator) scrape(t *target, at time.Duration) error {
	g.series, g.samples, g.stale = g.series[:0], g.samples[:0], g.stale[:0]
	ts := g.o.Start.Add(at).UnixMilli()
	for i := range t.groups {
		gr := &t.groups[i]
		if generation := gr.Generation(at); generation != gr.generation {
			g.replace(gr, generation, ts)
		}
		g.values = gr.AppendValues(g.values[:0], gr.generation, at)
		for k, v := range g.values {
			g.samples = append(g.samples, record.RefSample{Ref: gr.first + chunks.HeadSeriesRef(k), T: ts, V: v})
		}
	}
	g.samples = append(g.samples, g.stale...)
	if err := g.log(); err != nil {
		return err
	}
	g.stats.Series += len(g.series)
	g.stats.Samples += len(g.samples)
	g.stats.StaleMarkers += len(g.stale)
	g.o.Progress.Add(float64(len(g.samples) - len(g.stale)))
	return nil
}

// replace gives a group's next generation its references and marks the one
// before as stale.
func (g *generator) replace(gr *group, generation int, ts int64) {
	if gr.generation >= 0 {
		for k := range gr.Len() {
			g.stale = append(g.stale, record.RefSample{Ref: gr.first + chunks.HeadSeriesRef(k), T: ts, V: math.Float64frombits(value.StaleNaN)})
		}
	}
	gr.generation, gr.first = generation, g.next
	g.next += chunks.HeadSeriesRef(gr.Len())
	g.labels = gr.AppendLabels(g.labels[:0], generation)
	for k, ls := range g.labels {
		g.series = append(g.series, record.RefSeries{Ref: gr.first + chunks.HeadSeriesRef(k), Labels: ls})
	}
}

func (g *generator) log() error {
	if len(g.series) > 0 {
		g.buf = g.enc.Series(g.series, g.buf[:0])
		if err := g.logRecord(); err != nil {
			return err
		}
	}
	size := g.o.SamplesPerRecord
	if size == 0 {
		size = len(g.samples)
	}
	for batch := range slices.Chunk(g.samples, max(1, size)) {
		g.buf = g.enc.Samples(batch, g.buf[:0])
		if err := g.logRecord(); err != nil {
			return err
		}
	}
	return nil
}

func (g *generator) logRecord() error {
	g.stats.Records++
	return g.wal.Log(g.buf)
}

// leaveAsKilled closes the log and cuts off what closing it added: a killed
// process does not fill up its last page.
func (g *generator) leaveAsKilled() (Stats, error) {
	last, offset, err := g.wal.LastSegmentAndOffset()
	if err != nil {
		return Stats{}, errors.Join(err, g.wal.Close())
	}
	if err := g.wal.Close(); err != nil {
		return Stats{}, err
	}
	if err := os.Truncate(wlog.SegmentName(g.wal.Dir(), last), int64(offset)); err != nil {
		return Stats{}, err
	}
	g.stats.Segments = last + 1
	g.stats.Bytes, err = g.wal.Size()
	return g.stats, err
}
