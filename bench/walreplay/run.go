// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/promguard/promguard/bench/internal/binary"
	"github.com/promguard/promguard/bench/walreplay/internal/datadir"
	"github.com/promguard/promguard/bench/walreplay/internal/replay"
	"github.com/promguard/promguard/bench/walreplay/replays"
	"github.com/promguard/promguard/internal/cli"
)

// runConfig are the flags of the command run.
type runConfig struct {
	Dir        string
	Binaries   []binary.Binary
	GOMAXPROCS []int
	Count      int
	TmpDir     string
	Timeout    time.Duration
	output     *string
}

func addRun(app *kingpin.Application) (*kingpin.CmdClause, command) {
	cmd := app.Command("run", "Replay a data directory under one or more binaries and write what it took, in Go's benchmark format, for benchstat. The directory is copied for every replay and never written to.")
	c := &runConfig{}
	cmd.Flag("wal", "Data directory to replay; or a wal directory, which is then replayed without chunks_head.").Required().PlaceHolder("DIR").StringVar(&c.Dir)
	binaries := cmd.Flag("binary", "Prometheus to measure; repeat it to compare. NAME is in the results, and the path's last element if left out. ARGs are given to the binary, as in 'off=bin/prometheus --guard.wal-replay-gomaxprocs=off'; none may contain spaces.").Required().PlaceHolder("[NAME=]PATH [ARG...]").Strings()
	procs := cmd.Flag("gomaxprocs", "Values of the environment variable GOMAXPROCS to measure, separated by commas.").Default(strconv.Itoa(runtime.NumCPU())).PlaceHolder("N,...").String()
	cmd.Flag("count", "Replays per binary and value of GOMAXPROCS. benchstat wants 6 or more to tell a difference from noise.").Default("5").IntVar(&c.Count)
	cmd.Flag("tmp-dir", "Where the copies go, one at a time. Use a disk like that of the server.").Default(os.TempDir()).PlaceHolder("DIR").StringVar(&c.TmpDir)
	cmd.Flag("timeout", "Longest time for one replay; 0 means no limit.").Default("1h").DurationVar(&c.Timeout)
	c.output = cli.Output(cmd)
	cmd.Action(func(*kingpin.ParseContext) error { return c.parse(*binaries, *procs) })
	return cmd, func(ctx context.Context, stdout, stderr io.Writer) error { return runReplays(ctx, *c, stdout, stderr) }
}

func (c *runConfig) parse(binaries []string, procs string) (err error) {
	if c.Count < 1 {
		return fmt.Errorf("--count must be 1 or more, got %d", c.Count)
	}
	if c.Timeout < 0 {
		return fmt.Errorf("--timeout must be 0 or more, got %s", c.Timeout)
	}
	if c.Binaries, err = binary.ParseAll(binaries); err != nil {
		return err
	}
	for field := range strings.SplitSeq(procs, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(field))
		if err != nil || n < 1 {
			return fmt.Errorf("--gomaxprocs: %q is not a number of 1 or more", field)
		}
		c.GOMAXPROCS = append(c.GOMAXPROCS, n)
	}
	return nil
}

// step is one replay to do.
type step struct {
	binary     binary.Binary
	gomaxprocs int
}

// schedule interleaves the binaries, so that what changes on the machine over
// time meets all of them alike: within a round and a value of GOMAXPROCS they
// follow one another, in the opposite order in every other round.
func schedule(c runConfig) []step {
	var steps []step
	for round := range c.Count {
		for _, n := range c.GOMAXPROCS {
			binaries := slices.Clone(c.Binaries)
			if round%2 == 1 {
				slices.Reverse(binaries)
			}
			for _, b := range binaries {
				steps = append(steps, step{b, n})
			}
		}
	}
	return steps
}

// runReplays does all the replays. Whatever happens, no copy is left.
func runReplays(ctx context.Context, c runConfig, stdout, stderr io.Writer) (err error) {
	for i := range c.Binaries {
		if err := c.Binaries[i].Check(ctx); err != nil {
			return err
		}
	}
	return replays.WithCopies(c.Dir, c.TmpDir, 1, func(dir *datadir.Dir, tmp string) error {
		// What is no log is refused before anything is copied.
		contents, err := replays.Count(ctx, dir, stderr)
		if err != nil {
			return err
		}
		r := newResults(stdout, *c.output)
		if err := r.log(c.Binaries, dir, contents); err != nil {
			return err
		}
		return replayAll(ctx, c, dir, tmp, stderr, func(s step, took replay.Result) error { return r.replay(s, contents, took) })
	})
}

// replayAll does the replays and hands each to done.
func replayAll(ctx context.Context, c runConfig, dir *datadir.Dir, tmp string, stderr io.Writer, done func(step, replay.Result) error) error {
	steps := schedule(c)
	heads := map[string]int64{}
	begin := time.Now()
	for i, s := range steps {
		result, err := replayCopy(ctx, dir, filepath.Join(tmp, "data"), s, c.Timeout)
		if err != nil {
			return err
		}
		if err := done(s, result); err != nil {
			return err
		}
		left := time.Since(begin) / time.Duration(i+1) * time.Duration(len(steps)-i-1)
		fmt.Fprintf(stderr, "%d of %d: %s at GOMAXPROCS %d: %.3f s, %.3f CPU-s, %.1f MiB; %s left\n", i+1, len(steps),
			s.binary.Name, s.gomaxprocs, result.Wall.Seconds(), result.CPU.Seconds(), float64(result.PeakAnon)/(1<<20), left.Round(time.Second))
		warn(stderr, s, result, heads)
	}
	return nil
}

func replayCopy(ctx context.Context, dir *datadir.Dir, to string, s step, timeout time.Duration) (result replay.Result, err error) {
	defer func() { err = errors.Join(err, os.RemoveAll(to)) }()
	if err := dir.Copy(ctx, to); err != nil {
		return replay.Result{}, err
	}
	return replay.Run(ctx, s.binary, replay.Options{DataDir: to, GOMAXPROCS: s.gomaxprocs, Timeout: timeout})
}

// warn says what makes a result doubtful. heads collects the size of each
// binary's head.
func warn(stderr io.Writer, s step, r replay.Result, heads map[string]int64) {
	if r.Repaired {
		fmt.Fprintf(stderr, "warning: %s found the log corrupt and replayed only what is before the corruption\n", s.binary.Name)
	}
	for name, n := range heads {
		if n != r.HeadSeries {
			fmt.Fprintf(stderr, "warning: the heads differ: %s has %d series, %s has %d\n", name, n, s.binary.Name, r.HeadSeries)
		}
	}
	heads[s.binary.Name] = r.HeadSeries
}
