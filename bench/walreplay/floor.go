// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/alecthomas/kingpin/v2"

	"github.com/promguard/promguard/bench/walreplay/internal/datadir"
	"github.com/promguard/promguard/bench/walreplay/internal/floor"
	"github.com/promguard/promguard/bench/walreplay/internal/progress"
	"github.com/promguard/promguard/bench/walreplay/internal/results"
)

func addFloor(app *kingpin.Application) (*kingpin.CmdClause, command) {
	cmd := app.Command("floor", "Measure how fast the bytes of a log can merely be read here, taken apart into records, decompressed and decoded, by one thread.")
	place := cmd.Flag("wal", "Data directory, wal directory, or bucket:NAME.").Required().PlaceHolder("PLACE").String()
	count := cmd.Flag("count", "Passes per stage; the table has their medians.").Default("3").Int()
	format := cmd.Flag("format", "table or benchfmt.").Default("table").Enum("table", "benchfmt")
	tmpDir := cmd.Flag("tmp-dir", "Where a recording from a bucket goes.").Default(os.TempDir()).PlaceHolder("DIR").String()
	buckets := addBucketFlags(cmd)
	cmd.Action(func(*kingpin.ParseContext) error {
		if *count < 1 {
			return fmt.Errorf("--count must be 1 or more, got %d", *count)
		}
		return nil
	})
	return cmd, func(ctx context.Context, stdout, stderr io.Writer) error {
		return withWAL(ctx, *place, *tmpDir, buckets, stderr, func(dir *datadir.Dir, _ string) error {
			if _, err := countLog(ctx, dir, stderr); err != nil {
				return err
			}
			passes, err := measureFloor(ctx, dir, *count, stderr)
			if err != nil {
				return err
			}
			if *format == "benchfmt" {
				return results.WriteFloor(stdout, results.ThisMachine(), slices.Concat(passes...))
			}
			return results.WriteFloorTable(stdout, medians(passes))
		})
	}
}

// measureFloor passes over the log count times per stage, and returns what each
// round of all stages took. The log has been read before, so that it is in the
// page cache if it fits.
func measureFloor(ctx context.Context, dir *datadir.Dir, count int, stderr io.Writer) (rounds [][]results.Stage, err error) {
	segments, err := dir.Segments()
	if err != nil {
		return nil, err
	}
	p := progress.New(stderr, "measuring the floor", "bytes", float64(count*len(floor.Stages()))*float64(dir.WALBytes+dir.WBLBytes))
	for range count {
		var round []results.Stage
		for _, stage := range floor.Stages() {
			r, err := floor.Measure(ctx, segments, stage, p)
			if err != nil {
				return nil, fmt.Errorf("measuring the floor: %w", err)
			}
			round = append(round, results.Stage{Name: stage.String(), WallSeconds: r.Wall.Seconds(), CPUSeconds: r.CPU.Seconds(), Bytes: r.Bytes, Samples: r.Samples})
		}
		rounds = append(rounds, round)
	}
	p.Done()
	return rounds, nil
}

// medians are those of each stage over the rounds.
func medians(rounds [][]results.Stage) []results.Stage {
	all := slices.Clone(rounds[0])
	for i := range all {
		var wall, cpu []float64
		for _, round := range rounds {
			wall, cpu = append(wall, round[i].WallSeconds), append(cpu, round[i].CPUSeconds)
		}
		all[i].WallSeconds, all[i].CPUSeconds = median(wall), median(cpu)
	}
	return all
}

func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}
