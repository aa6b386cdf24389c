// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Command memory says what a series costs a Prometheus binary: bytes of live heap by
// owner, for scraped ones that are kept and that relabelling drops, and for those of a
// data directory. It prints Go's benchmark format.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/promguard/promguard/bench/internal/binary"
	"github.com/promguard/promguard/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	os.Exit(cli.Code(os.Stderr, "memory", err))
}

// config is what is measured.
type config struct {
	pods    int
	scrapes int
	count   int
	// data is a data directory whose phases are measured in place of series.
	data string
}

func run(ctx context.Context, args []string, out io.Writer) error {
	app := cli.New("memory", "Say what a scraped series costs a Prometheus binary, in bytes of live heap.", out, out)
	specs := app.Flag("binary", "[NAME=]PATH [ARG...] of a Prometheus; may be given several times.").Required().PlaceHolder("SPEC").Strings()
	var c config
	app.Flag("pods", "Pods of the target, with 60 series of cAdvisor each.").Default("2500").IntVar(&c.pods)
	app.Flag("scrapes", "Scrapes before it is measured, one every ten seconds.").Default("3").IntVar(&c.scrapes)
	app.Flag("count", "Measurements of each binary, in turns.").Default("1").IntVar(&c.count)
	app.Flag("data", "Data directory of a killed server, with a log of more than three hours, as walreplay generate writes it. In place of series, say what the live heap and the resident memory grow to in replay, compaction, checkpoint, restart and shutdown, and what a series of the head costs before and after the compaction.").PlaceHolder("DIR").StringVar(&c.data)
	if _, err := cli.Parse(app, args); err != nil {
		return err
	}
	if c.pods < 1 || c.scrapes < 1 || c.count < 1 {
		return cli.Misuse(errors.New("--pods, --scrapes and --count must be 1 or more"))
	}
	binaries, err := binary.ParseAll(*specs)
	if err != nil {
		return err
	}
	for i := range binaries {
		if err := binaries[i].Check(ctx); err != nil {
			return err
		}
		fmt.Fprintf(out, "version-%s: %s\n", binaries[i].Name, binaries[i].Version)
	}
	target, err := serve(c.pods)
	if err != nil {
		return err
	}
	defer target.Close()
	if c.data != "" {
		return measurePhases(ctx, binaries, target, c, out)
	}
	fmt.Fprintf(out, "series: %d\n", c.pods*metrics)
	for range c.count {
		idle := map[string]figures{}
		for _, kind := range []string{"idle", "kept", "dropped"} {
			for _, b := range binaries {
				f, err := measure(ctx, b, target, kind, c.scrapes)
				if err != nil {
					return fmt.Errorf("%s: %w", b.Name, err)
				}
				if kind == "idle" {
					idle[b.Name] = f
					continue
				}
				if err := f.over(idle[b.Name], float64(c.pods*metrics)).print(out, b.Name, kind); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// measurePhases starts each binary twice: with a collector that runs all the time, to
// know what is live, and with the default, to know what is resident.
func measurePhases(ctx context.Context, binaries []binary.Binary, t *target, c config, out io.Writer) error {
	for range c.count {
		for _, b := range binaries {
			idle, err := measure(ctx, b, t, "idle", 1)
			if err != nil {
				return fmt.Errorf("%s: %w", b.Name, err)
			}
			live, rests, err := throughPhases(ctx, b, c.data, "5")
			if err != nil {
				return fmt.Errorf("%s: %w", b.Name, err)
			}
			rss, _, err := throughPhases(ctx, b, c.data, "")
			if err != nil {
				return fmt.Errorf("%s: %w", b.Name, err)
			}
			if err := printPhases(out, b.Name, live, rss); err != nil {
				return err
			}
			for _, kind := range []string{"rest", "compacted"} {
				if err := rests[kind].over(idle, rests[kind][series]).print(out, b.Name, kind); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
