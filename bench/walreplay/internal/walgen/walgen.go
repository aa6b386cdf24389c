// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package walgen writes data directories as a Prometheus that was killed leaves
// them, with the series of a modelled Kubernetes cluster. It writes the
// records of the write-ahead log and of the log of out-of-order samples itself,
// with upstream's encoders, so that their size, order and compression can be
// chosen. Checkpoints and m-mapped chunks are upstream's own work.
package walgen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/prometheus/tsdb/wlog"
	"github.com/prometheus/prometheus/util/compression"

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
	// SeriesPerRecord is the same for series; the patched Prometheus has 1000.
	SeriesPerRecord int
	// CheckpointScrapes is how many scrapes come before the others, ever since
	// then in a block and, in the log, replaced by a checkpoint of their series.
	// The block is not made. 0 makes no checkpoint.
	CheckpointScrapes int
	// MmappedChunks fills chunks_head with all chunks but the last ones of the
	// series. It takes the memory that Prometheus takes for the log.
	MmappedChunks bool
	// NativeHistograms is the share of the histograms, 0 to 1, of which a native
	// one takes the place of the classic one's _count series.
	NativeHistograms float64
	// Exemplars is the share of the buckets of classic histograms, 0 to 1, that
	// get an exemplar in each scrape.
	Exemplars float64
	// OutOfOrder is the share of the floats, 0 to 1, that arrive late by
	// lateScrapes scrapes. They are in the log of out-of-order samples too.
	OutOfOrder float64
	// Explosion is how many series begin at each scrape, each with a label value
	// of its own, to be scraped twice: a label that should not be one.
	Explosion int
	// Oddities is the share of the series, 0 to 1, to which each of these happens
	// once: a part of its time is deleted, twice; it gets metadata, which change; it
	// falls as a counter that was reset. And the share of the groups of series that
	// are logged again under other references, as after a compaction with a late
	// scrape.
	Oddities float64
	// RefStep is how far apart the references of series are that are scraped
	// together; 0 is 1. Those between belong to series that are gone.
	RefStep int
	// StartTimes writes records with the start times of the samples, as Prometheus
	// does with the feature st-storage.
	StartTimes bool
}

// lateScrapes is by how many scrapes a sample that is out of order is late.
const lateScrapes = 4

// Stats say what was written.
type Stats struct {
	Series       int // distinct series, replaced pods' included
	Samples      int // stale markers included
	StaleMarkers int
	Histograms   int // of Samples, native ones
	OutOfOrder   int // of Samples, late ones; they are in the WBL as well
	Exemplars    int
	Tombstones   int // intervals
	Duplicates   int // references of series that were logged again
	Metadata     int
	Resets       int // series that fell
	Records      int // in the WAL, without those that a checkpoint replaced
	Segments     int
	Bytes        int64 // of the WAL, its checkpoint included

	MmappedChunks int
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
	case o.SeriesPerRecord < 0:
		return fmt.Errorf("series per record must be 0 or more, got %d", o.SeriesPerRecord)
	case o.SegmentSize < 0 || o.SegmentSize%(32<<10) != 0:
		return fmt.Errorf("segment size must be a multiple of 32KiB, got %d bytes", o.SegmentSize)
	case o.Explosion < 0:
		return fmt.Errorf("series of an explosion must be 0 or more, got %d", o.Explosion)
	case o.RefStep < 0 || o.RefStep > 1<<20:
		return fmt.Errorf("references must be from 1 to %d apart, got %d", 1<<20, o.RefStep)
	case o.CheckpointScrapes < 0:
		return fmt.Errorf("scrapes of the checkpoint must be 0 or more, got %d", o.CheckpointScrapes)
	case !slices.Contains(compression.Types(), o.Compression):
		return fmt.Errorf("compression must be one of %v, got %q", compression.Types(), o.Compression)
	}
	for _, share := range []struct {
		of    string
		value float64
	}{{"native histograms", o.NativeHistograms}, {"exemplars", o.Exemplars}, {"out-of-order samples", o.OutOfOrder}, {"oddities", o.Oddities}} {
		if !(share.value >= 0 && share.value <= 1) {
			return fmt.Errorf("the share of %s must be from 0 to 1, got %v", share.of, share.value)
		}
	}
	return nil
}

// Generate writes the data directory. If it returns an error, or ctx is
// cancelled, nothing of what it wrote is left.
func Generate(ctx context.Context, o Options) (stats Stats, err error) {
	o.SegmentSize = cmp.Or(o.SegmentSize, wlog.DefaultSegmentSize)
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
	if err := g.write(ctx); err != nil {
		return Stats{}, errors.Join(err, g.close())
	}
	if err := g.leaveAsKilled(); err != nil || !o.MmappedChunks {
		return g.stats, err
	}
	g.stats.MmappedChunks, err = mmapChunks(ctx, o, g.firsts)
	return g.stats, err
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
	return func() (err error) {
		for _, name := range []string{"wal", wlog.WblDirName, "chunks_head"} {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, name)))
		}
		return err
	}, nil
}
