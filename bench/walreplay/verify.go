// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/promguard/promguard/bench/internal/binary"
	"github.com/promguard/promguard/bench/walreplay/internal/datadir"
	"github.com/promguard/promguard/bench/walreplay/internal/replay"
	"github.com/promguard/promguard/bench/walreplay/internal/verify"
	"github.com/promguard/promguard/bench/walreplay/replays"
	"github.com/promguard/promguard/internal/cli"
)

// verifyConfig are the flags of the command verify.
type verifyConfig struct {
	dir        string
	binaries   []binary.Binary
	gomaxprocs int
	tmpDir     string
	timeout    time.Duration
	output     *string
}

func addVerify(app *kingpin.Application) (*kingpin.CmdClause, command) {
	cmd := app.Command("verify", "Replay a log under two binaries and compare everything that a query can see: every sample of every series, exemplars, series by time, labels, and the heads' own figures. Exits with 1 and the first difference if there is one.")
	c := &verifyConfig{}
	cmd.Flag("wal", "Data directory or wal directory.").Required().PlaceHolder("DIR").StringVar(&c.dir)
	binaries := cmd.Flag("binary", "Prometheus to compare, twice. See run.").Required().PlaceHolder("[NAME=]PATH [ARG...]").Strings()
	cmd.Flag("gomaxprocs", "The environment variable GOMAXPROCS of both.").Default(strconv.Itoa(runtime.NumCPU())).PlaceHolder("N").IntVar(&c.gomaxprocs)
	cmd.Flag("tmp-dir", "Where the two copies go.").Default(os.TempDir()).PlaceHolder("DIR").StringVar(&c.tmpDir)
	cmd.Flag("timeout", "Longest time for one replay; 0 means no limit.").Default("1h").DurationVar(&c.timeout)
	c.output = cli.Output(cmd)
	cmd.Action(func(*kingpin.ParseContext) (err error) {
		if c.binaries, err = binary.ParseAll(*binaries); err != nil {
			return err
		}
		switch {
		case len(c.binaries) != 2:
			return fmt.Errorf("--binary: verify compares 2 binaries, got %d", len(c.binaries))
		case c.gomaxprocs < 1:
			return fmt.Errorf("--gomaxprocs must be 1 or more, got %d", c.gomaxprocs)
		case c.timeout < 0:
			return fmt.Errorf("--timeout must be 0 or more, got %s", c.timeout)
		}
		return nil
	})
	return cmd, func(ctx context.Context, stdout, stderr io.Writer) error {
		for i := range c.binaries {
			if err := c.binaries[i].Check(ctx); err != nil {
				return err
			}
		}
		return replays.WithCopies(c.dir, c.tmpDir, len(c.binaries), func(dir *datadir.Dir, tmp string) error {
			return verifyReplays(ctx, *c, dir, tmp, stdout, stderr)
		})
	}
}

func verifyReplays(ctx context.Context, c verifyConfig, dir *datadir.Dir, tmp string, stdout, stderr io.Writer) error {
	contents, err := replays.Count(ctx, dir, stderr)
	if err != nil {
		return err
	}
	var (
		servers []*replay.Server
		heads   []verify.Head
	)
	for i, b := range c.binaries {
		at := filepath.Join(tmp, strconv.Itoa(i))
		fmt.Fprintf(stderr, "replaying under %s\n", b.Name)
		s, err := replays.Start(ctx, b, dir, at, replays.Options{GOMAXPROCS: c.gomaxprocs, Timeout: c.timeout, Exemplars: contents.Exemplars})
		if err != nil {
			return err
		}
		defer s.Kill()
		servers, heads = append(servers, s), append(heads, verify.Head{Name: b.Name, URL: s.URL, Dir: at})
	}
	sum, err := verify.Compare(ctx, heads[0], heads[1])
	if err == nil {
		err = verify.CompareAppends(ctx, heads[0], heads[1], filepath.Join(tmp, "0"), sum)
	}
	if err != nil {
		for _, s := range servers {
			if died := s.Err(); died != nil && ctx.Err() == nil {
				return died
			}
		}
		return err
	}
	if *c.output == cli.JSON {
		return cli.WriteJSON(stdout, sum)
	}
	printSummary(stdout, c.binaries, sum)
	return nil
}

func printSummary(w io.Writer, binaries []binary.Binary, s verify.Summary) {
	fmt.Fprintf(w, "series       %d\nsamples      %d, of them %d native histograms\nexemplars    %d\nlabels       %d names, %d values\nfingerprint  %s\n",
		s.Series, s.Samples, s.Histograms, s.Exemplars, s.LabelNames, s.LabelValues, s.Fingerprint)
	if s.Chunks[0] != s.Chunks[1] {
		fmt.Fprintf(w, "chunks       %d and %d: cut otherwise, which no query sees\n", s.Chunks[0], s.Chunks[1])
	}
	fmt.Fprintf(w, "The heads of %s and %s are the same.\n", binaries[0].Name, binaries[1].Name)
}
