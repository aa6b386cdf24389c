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

	"github.com/promguard/promguard/bench/walreplay/internal/replay"
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
