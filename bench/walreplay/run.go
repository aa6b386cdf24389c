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
	"slices"
	"time"

	"github.com/promguard/promguard/bench/walreplay/internal/datadir"
	"github.com/promguard/promguard/bench/walreplay/internal/progress"
	"github.com/promguard/promguard/bench/walreplay/internal/replay"
)

// step is one replay to do.
type step struct {
	binary     replay.Binary
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
	dir, err := datadir.Open(c.Dir)
	if err != nil {
		return err
	}
	for i := range c.Binaries {
		if err := c.Binaries[i].Check(ctx); err != nil {
			return err
		}
	}
	tmp, err := os.MkdirTemp(c.TmpDir, "walreplay-")
	if err != nil {
		return fmt.Errorf("--tmp-dir: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	if err := dir.CheckSpace(tmp); err != nil {
		return err
	}
	contents, err := count(ctx, dir, stderr)
	if err != nil {
		return err
	}

	rep, err := newReport(stdout, c, dir, contents)
	if err != nil {
		return err
	}
	steps := schedule(c)
	heads := map[string]int64{}
	begin := time.Now()
	for i, s := range steps {
		result, err := replayCopy(ctx, dir, filepath.Join(tmp, "data"), s, c.Timeout)
		if err != nil {
			return err
		}
		if err := rep.add(s, result); err != nil {
			return err
		}
		left := time.Since(begin) / time.Duration(i+1) * time.Duration(len(steps)-i-1)
		fmt.Fprintf(stderr, "%d of %d: %s at GOMAXPROCS %d: %.3f s, %.3f CPU-s, %.1f MiB; %s left\n", i+1, len(steps),
			s.binary.Name, s.gomaxprocs, result.Wall.Seconds(), result.CPU.Seconds(), float64(result.PeakAnon)/(1<<20), left.Round(time.Second))
		warn(stderr, s, result, heads)
	}
	return nil
}

// count reads the log once: to know what there is to replay, and to refuse what
// is no log before anything is copied.
func count(ctx context.Context, dir *datadir.Dir, stderr io.Writer) (datadir.Contents, error) {
	p := progress.New(stderr, "reading "+dir.Path, "bytes", float64(dir.WALBytes))
	contents, err := dir.Count(ctx, p)
	if err != nil {
		return datadir.Contents{}, err
	}
	p.Done()
	fmt.Fprintf(stderr, "%s: %d series, %d samples, %d records, %d segments\n", dir.Path, contents.Series, contents.Samples, contents.Records, contents.Segments)
	if contents.Corruption != nil {
		fmt.Fprintf(stderr, "warning: the log is corrupt: %v; a replay ends there and repairs its copy\n", contents.Corruption)
	}
	if dir.Blocks > 0 {
		fmt.Fprintf(stderr, "warning: %d blocks are left out; a server that has them skips samples that are in them already\n", dir.Blocks)
	}
	return contents, nil
}

func replayCopy(ctx context.Context, dir *datadir.Dir, to string, s step, timeout time.Duration) (result replay.Result, err error) {
	defer func() { err = errors.Join(err, os.RemoveAll(to)) }()
	if err := dir.Copy(ctx, to, nil); err != nil {
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
