// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Command memory says what a scraped series costs a Prometheus binary: bytes of live
// heap by owner, for series that are kept and for those that relabelling drops. It
// prints Go's benchmark format.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kingpin/v2"

	"github.com/promguard/promguard/bench/internal/binary"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "memory: error:", err)
		os.Exit(1)
	}
}

// config is what is measured.
type config struct {
	pods    int
	scrapes int
	count   int
}

func run(ctx context.Context, args []string, out io.Writer) error {
	app := kingpin.New("memory", "Say what a scraped series costs a Prometheus binary, in bytes of live heap.")
	specs := app.Flag("binary", "[NAME=]PATH [ARG...] of a Prometheus; may be given several times.").Required().PlaceHolder("SPEC").Strings()
	var c config
	app.Flag("pods", "Pods of the target, with 60 series of cAdvisor each.").Default("2500").IntVar(&c.pods)
	app.Flag("scrapes", "Scrapes before it is measured, one every ten seconds.").Default("3").IntVar(&c.scrapes)
	app.Flag("count", "Measurements of each binary, in turns.").Default("1").IntVar(&c.count)
	if _, err := app.Parse(args); err != nil {
		return fmt.Errorf("%w, try --help", err)
	}
	if c.pods < 1 || c.scrapes < 1 || c.count < 1 {
		return errors.New("--pods, --scrapes and --count must be 1 or more")
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
				if err := f.over(idle[b.Name], c.pods*metrics).print(out, b.Name, kind); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
