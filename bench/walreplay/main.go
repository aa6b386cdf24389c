// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Command walreplay makes write-ahead logs and measures how fast Prometheus
// binaries replay them. It does not judge what they replayed.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/prometheus/util/compression"

	"github.com/promguard/promguard/bench/walreplay/internal/progress"
	"github.com/promguard/promguard/bench/walreplay/internal/replay"
	"github.com/promguard/promguard/bench/walreplay/internal/walgen"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := execute(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case err == nil:
		return
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "walreplay: interrupted; what it had written was removed")
	default:
		fmt.Fprintln(os.Stderr, "walreplay: error:", err)
	}
	os.Exit(1)
}

// execute runs one command. Results go to stdout, all else to stderr.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	app := kingpin.New("walreplay", "Make write-ahead logs, and measure how fast Prometheus binaries replay them.")
	app.HelpFlag.Short('h')
	app.UsageWriter(stdout)
	generate := app.Command("generate", "Write a data directory as a killed Prometheus leaves it, with the series of a modelled Kubernetes cluster.")
	generateOptions := generateFlags(generate)
	run := app.Command("run", "Replay a data directory under one or more binaries and print what it took in Go's benchmark format, for benchstat. The directory is copied for every replay and never written to.")
	runOptions := runFlags(run)
	command, err := app.Parse(args)
	if err != nil {
		return fmt.Errorf("%w, try --help", err)
	}
	switch command {
	case generate.FullCommand():
		return runGenerate(ctx, *generateOptions, stderr)
	default:
		return runReplays(ctx, *runOptions, stdout, stderr)
	}
}

func generateFlags(cmd *kingpin.CmdClause) *walgen.Options {
	o := &walgen.Options{Start: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	cmd.Flag("out", "Data directory to make. It must not exist or be empty.").Required().PlaceHolder("DIR").StringVar(&o.Dir)
	cmd.Flag("series", "Series that exist at any time.").Required().PlaceHolder("N").IntVar(&o.Series)
	cmd.Flag("scrapes", "How often every target is scraped.").Required().PlaceHolder("M").IntVar(&o.Scrapes)
	cmd.Flag("scrape-interval", "Time between two scrapes of a target.").Default("15s").DurationVar(&o.ScrapeInterval)
	cmd.Flag("churn", "Share of the replaceable pods that is replaced per hour; 0 is none, 2 is each about every half hour.").Default("0.2").Float64Var(&o.Churn)
	cmd.Flag("seed", "The same seed and sizes write the same bytes.").Default("1").Uint64Var(&o.Seed)
	cmd.Flag("compression", "Compression of the records: snappy, zstd or none.").Default(compression.Snappy).EnumVar(&o.Compression, compression.Types()...)
	cmd.Flag("samples-per-record", "Most samples in a record. 0 is one record per scrape of a target, as Prometheus writes them.").Default("0").IntVar(&o.SamplesPerRecord)
	segment := cmd.Flag("segment-size", "Size of a WAL segment, a multiple of 32KiB.").Default("128MiB").Bytes()
	cmd.Action(func(*kingpin.ParseContext) error {
		o.SegmentSize = int(*segment)
		return nil
	})
	return o
}

func runGenerate(ctx context.Context, o walgen.Options, stderr io.Writer) error {
	o.Progress = progress.New(stderr, "writing "+o.Dir, "samples", float64(o.Series)*float64(max(0, o.Scrapes)))
	stats, err := walgen.Generate(ctx, o)
	if err != nil {
		return err
	}
	o.Progress.Done()
	fmt.Fprintf(stderr, "%s: %d series, %d samples (%d stale markers), %d records, %d segments, %.1f MiB\n",
		o.Dir, stats.Series, stats.Samples, stats.StaleMarkers, stats.Records, stats.Segments, float64(stats.Bytes)/(1<<20))
	return nil
}

// runConfig are the flags of the command run.
type runConfig struct {
	Dir        string
	Binaries   []replay.Binary
	GOMAXPROCS []int
	Count      int
	TmpDir     string
	Timeout    time.Duration
}

func runFlags(cmd *kingpin.CmdClause) *runConfig {
	c := &runConfig{}
	cmd.Flag("wal", "Data directory to replay, or a wal directory, which is then replayed without chunks_head.").Required().PlaceHolder("DIR").StringVar(&c.Dir)
	binaries := cmd.Flag("binary", "Prometheus to measure; repeat it to compare. NAME is in the results, and the path's last element if left out. ARGs are given to the binary, as in 'off=bin/prometheus --guard.wal-replay-gomaxprocs=off'; none may contain spaces.").Required().PlaceHolder("[NAME=]PATH [ARG...]").Strings()
	procs := cmd.Flag("gomaxprocs", "Values of the environment variable GOMAXPROCS to measure, separated by commas.").Default(strconv.Itoa(runtime.NumCPU())).PlaceHolder("N,...").String()
	cmd.Flag("count", "Replays per binary and value of GOMAXPROCS. benchstat wants 6 or more to tell a difference from noise.").Default("5").IntVar(&c.Count)
	cmd.Flag("tmp-dir", "Where the copies go, one at a time. Use a disk like that of the server.").Default(os.TempDir()).PlaceHolder("DIR").StringVar(&c.TmpDir)
	cmd.Flag("timeout", "Most time for one replay; 0 is no limit.").Default("1h").DurationVar(&c.Timeout)
	cmd.Action(func(*kingpin.ParseContext) error { return c.parse(*binaries, *procs) })
	return c
}

func (c *runConfig) parse(binaries []string, procs string) error {
	if c.Count < 1 {
		return fmt.Errorf("--count must be 1 or more, got %d", c.Count)
	}
	if c.Timeout < 0 {
		return fmt.Errorf("--timeout must be 0 or more, got %s", c.Timeout)
	}
	names := map[string]bool{}
	for _, spec := range binaries {
		b, err := replay.ParseBinary(spec)
		if err != nil {
			return fmt.Errorf("--binary: %w", err)
		}
		if names[b.Name] {
			return fmt.Errorf("--binary: two binaries are named %q; name them as NAME=PATH", b.Name)
		}
		names[b.Name] = true
		c.Binaries = append(c.Binaries, b)
	}
	for field := range strings.SplitSeq(procs, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(field))
		if err != nil || n < 1 {
			return fmt.Errorf("--gomaxprocs: %q is no number of 1 or more", field)
		}
		c.GOMAXPROCS = append(c.GOMAXPROCS, n)
	}
	return nil
}
