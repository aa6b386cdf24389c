// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/prometheus/util/compression"

	"github.com/promguard/promguard/bench/walreplay/internal/walgen"
)

func addGenerate(app *kingpin.Application) (*kingpin.CmdClause, command) {
	cmd := app.Command("generate", "Write a data directory as a killed Prometheus leaves it, with the series of a modelled Kubernetes cluster.")
	o := &walgen.Options{Start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	cmd.Flag("out", "Data directory to make. It must not exist or be empty.").Required().PlaceHolder("DIR").StringVar(&o.Dir)
	cmd.Flag("series", "Series that exist at any time.").Required().PlaceHolder("N").IntVar(&o.Series)
	cmd.Flag("scrapes", "How often every target is scraped.").Required().PlaceHolder("M").IntVar(&o.Scrapes)
	cmd.Flag("scrape-interval", "Time between two scrapes of a target.").Default("15s").DurationVar(&o.ScrapeInterval)
	cmd.Flag("churn", "Share of the replaceable pods to replace per hour; 0 replaces none, 2 each about every half hour.").Default("0.2").Float64Var(&o.Churn)
	cmd.Flag("seed", "The same seed and sizes write the same bytes.").Default("1").Uint64Var(&o.Seed)
	cmd.Flag("compression", "Compression of the records: snappy, zstd or none.").Default(compression.Snappy).EnumVar(&o.Compression, compression.Types()...)
	cmd.Flag("samples-per-record", "Most samples in a record. 0 is one record per scrape of a target, as Prometheus writes them.").Default("0").IntVar(&o.SamplesPerRecord)
	cmd.Flag("series-per-record", "Most new series in a record. 0 is one record per scrape of a target, as Prometheus writes them; the patched one has 1000.").Default("0").IntVar(&o.SeriesPerRecord)
	cmd.Flag("checkpoint-scrapes", "Scrapes before the others. Of them the log keeps a checkpoint of the series, as if their samples were in a block.").Default("0").PlaceHolder("N").IntVar(&o.CheckpointScrapes)
	cmd.Flag("mmapped-chunks", "Fill chunks_head with all chunks but the last ones of the series. Upstream's head does it, so this takes the memory of a Prometheus.").BoolVar(&o.MmappedChunks)
	cmd.Flag("native-histograms", "Share of the histograms, 0 to 1, that have a native histogram in place of the classic one's _count series.").Default("0").PlaceHolder("SHARE").Float64Var(&o.NativeHistograms)
	cmd.Flag("exemplars", "Share of the buckets of classic histograms, 0 to 1, that get an exemplar in each scrape.").Default("0").PlaceHolder("SHARE").Float64Var(&o.Exemplars)
	cmd.Flag("out-of-order", "Share of the floats, 0 to 1, that arrive four scrapes late, and are in the log of out-of-order samples (wbl) too.").Default("0").PlaceHolder("SHARE").Float64Var(&o.OutOfOrder)
	cmd.Flag("explosion", "Series that begin at each scrape, each with a label value of its own, to be scraped twice.").Default("0").PlaceHolder("N").IntVar(&o.Explosion)
	cmd.Flag("oddities", "Share of the series, 0 to 1, that are partly deleted, that get metadata, and that are reset, each; and of the groups of series that are logged again under other references.").Default("0").PlaceHolder("SHARE").Float64Var(&o.Oddities)
	cmd.Flag("ref-step", "Distance between the references of series that are scraped together.").Default("1").PlaceHolder("N").IntVar(&o.RefStep)
	cmd.Flag("start-times", "Write the start times of samples, as the feature st-storage does. Replay the log with that feature.").BoolVar(&o.StartTimes)
	segment := cmd.Flag("segment-size", "Size of a WAL segment, a multiple of 32KiB.").Default("128MiB").Bytes()
	cmd.Action(func(*kingpin.ParseContext) error {
		o.SegmentSize = int(*segment)
		return nil
	})
	return cmd, func(ctx context.Context, _, stderr io.Writer) error { return generate(ctx, *o, stderr) }
}

func generate(ctx context.Context, o walgen.Options, stderr io.Writer) error {
	stats, err := walgen.Generate(ctx, o)
	if err != nil {
		return err
	}
	fmt.Fprintf(stderr, "%s: %d series, %d samples (%d stale markers), %d records, %d segments, %.1f MiB\n",
		o.Dir, stats.Series, stats.Samples, stats.StaleMarkers, stats.Records, stats.Segments, float64(stats.Bytes)/(1<<20))
	if stats.Tombstones+stats.Duplicates+stats.Metadata+stats.Resets > 0 {
		fmt.Fprintf(stderr, "%s: %d deletions, %d references of series that were logged again, %d metadata, %d resets\n",
			o.Dir, stats.Tombstones, stats.Duplicates, stats.Metadata, stats.Resets)
	}
	if stats.Histograms+stats.Exemplars+stats.OutOfOrder+stats.MmappedChunks > 0 {
		fmt.Fprintf(stderr, "%s: %d of the samples are native histograms, %d came out of order; %d exemplars; %d m-mapped chunks\n",
			o.Dir, stats.Histograms, stats.OutOfOrder, stats.Exemplars, stats.MmappedChunks)
	}
	return nil
}
