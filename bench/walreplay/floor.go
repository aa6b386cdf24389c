// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/promguard/promguard/bench/walreplay/internal/datadir"
	"github.com/promguard/promguard/bench/walreplay/replays"
	"github.com/promguard/promguard/internal/cli"
	"github.com/promguard/promguard/internal/proc"
)

func addFloor(app *kingpin.Application) (*kingpin.CmdClause, command) {
	cmd := app.Command("floor", "Measure how fast the bytes of a log can merely be read here, taken apart into records, decompressed and decoded, by one thread.")
	path := cmd.Flag("wal", "Data directory or wal directory.").Required().PlaceHolder("DIR").String()
	count := cmd.Flag("count", "Passes per stage.").Default("3").Int()
	output := cli.Output(cmd)
	cmd.Action(func(*kingpin.ParseContext) error {
		if *count < 1 {
			return fmt.Errorf("--count must be 1 or more, got %d", *count)
		}
		return nil
	})
	return cmd, func(ctx context.Context, stdout, stderr io.Writer) error {
		dir, err := datadir.Open(*path)
		if err != nil {
			return err
		}
		if _, err := replays.Count(ctx, dir, stderr); err != nil {
			return err
		}
		return measureFloor(ctx, dir, *count, newResults(stdout, *output))
	}
}

// stages are how far the bytes are taken. Each contains the one before.
var stages = []struct {
	name   string
	decode bool
}{{"read", false}, {"decode", true}}

func measureFloor(ctx context.Context, dir *datadir.Dir, count int, r *results) error {
	segments, err := dir.Segments()
	if err != nil {
		return err
	}
	for range count {
		for _, stage := range stages {
			before, err := proc.CPUTime(os.Getpid())
			if err != nil {
				return err
			}
			began := time.Now()
			c, err := datadir.Read(ctx, segments, stage.decode)
			if err != nil {
				return fmt.Errorf("measuring the floor: %w", err)
			}
			wall := time.Since(began)
			after, err := proc.CPUTime(os.Getpid())
			if err != nil {
				return err
			}
			if err := r.floor(stage.name, c, wall, after-before); err != nil {
				return err
			}
		}
	}
	return nil
}
