// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Command oomstorm measures whether Prometheus binaries survive what a scenario
// does to them under a real limit of memory, and what scrapes, rules and innocent
// queries lose meanwhile.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kingpin/v2"

	"github.com/promguard/promguard/bench/internal/binary"
	"github.com/promguard/promguard/bench/oomstorm/internal/clients"
	"github.com/promguard/promguard/bench/oomstorm/internal/limit"
	"github.com/promguard/promguard/bench/oomstorm/internal/scenario"
	"github.com/promguard/promguard/bench/oomstorm/storm"
	"github.com/promguard/promguard/internal/cli"
	"github.com/promguard/promguard/internal/proc"
)

func main() {
	err := dispatch(os.Args[1:])
	if errors.Is(err, context.Canceled) {
		err = cli.Misuse(errors.New("interrupted; what it had started and written was removed"))
	}
	os.Exit(cli.Code(os.Stderr, "oomstorm", err))
}

// dispatch runs a command, or what the program starts itself as.
func dispatch(args []string) error {
	if len(args) > 0 && args[0] == clients.Word {
		return clients.RunChild(os.Stdin, os.Stdout)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return execute(ctx, args, os.Stdout, os.Stderr)
}

// flags are those of the commands that start servers.
func flags(o *storm.Options, cmd *kingpin.CmdClause) {
	binaries := cmd.Flag("binary", "Prometheus to measure; repeat it to compare. NAME is in the results, and the path's last element if left out. ARGs are given to the binary, as in 'patched=bin/prometheus --guard.api-timeout=10s'; none may contain spaces.").Required().PlaceHolder("[NAME=]PATH [ARG...]").Strings()
	cmd.Flag("tmp-dir", "Where the data directory goes; there is one at a time.").Default(os.TempDir()).PlaceHolder("DIR").StringVar(&o.TmpDir)
	cmd.Flag("ready-timeout", "How long a binary may take to start.").Default("15m").DurationVar(&o.ReadyTimeout)
	cmd.Action(func(*kingpin.ParseContext) (err error) {
		o.Binaries, err = binary.ParseAll(*binaries)
		return err
	})
}

// execute runs one command. Results go to stdout, all else to stderr. No answer to
// whether the expectations were met is another error than that they were not.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	app := cli.New("oomstorm", "Measure whether Prometheus binaries survive what a scenario does to them under a limit of memory.", stdout, stderr)

	var o storm.RunOptions
	run := app.Command("run", "Do what a scenario says, to one binary after the other, and check what it expects.")
	flags(&o.Options, run)
	run.Flag("scenario", "File, or name of a scenario that is shipped; see oomstorm scenario.").Default("contract").HintOptions(scenario.Shipped()...).StringVar(&o.Scenario)
	run.Flag("expressions", "File with what dashboards ask, a list of objects with the key expr, in place of the shipped list.").PlaceHolder("FILE").StringVar(&o.Expressions)

	proxy := run.Flag("proxy", "promguard to put before each server, with ARGs of promguard serve. Clients ask it; probes and scrapes do not.").PlaceHolder("PATH [ARG...]").String()
	run.Action(func(*kingpin.ParseContext) error {
		o.Proxy = strings.Fields(*proxy)
		return nil
	})

	output := cli.Output(run)

	var so storm.SearchOptions
	search := app.Command("search", "Measure the hostile families one request at a time, and search for requests that take more.")
	flags(&so.Options, search)
	search.Flag("series", "Series in the head.").Default("50000").IntVar(&so.Series)
	search.Flag("limit", "Limit of memory: off, or a size. A request that reaches it has its bytes.").Default("3GiB").SetValue(limitValue{&so.Limit})
	search.Flag("families", "Measure only families with such names, as in 'series-*'; repeat it for several.").PlaceHolder("PATTERN").StringsVar(&so.Families)
	search.Flag("tries", "How many requests to make up and measure.").Default("300").IntVar(&so.Tries)
	search.Flag("timeout", "How long a request may take.").Default("10s").DurationVar(&so.Timeout)
	search.Flag("top", "How many of the worst to print.").Default("10").IntVar(&so.Top)
	search.Flag("seed", "What is made up depends on it, and on what is measured.").Default("1").Uint64Var(&so.Seed)
	search.Action(func(*kingpin.ParseContext) error { return so.Check() })

	show := app.Command("scenario", "Print a scenario that is shipped, or all names.")
	name := show.Arg("name", "Name of the scenario.").String()

	command, err := cli.Parse(app, args)
	if err != nil {
		return err
	}
	if command == show.FullCommand() {
		return printScenario(stdout, *name)
	}
	if !proc.Supported {
		return cli.Misuse(errors.New("servers are measured through Linux's /proc; this system has none"))
	}
	if command == run.FullCommand() {
		o.Output = *output
		return storm.Run(ctx, o, stdout, stderr)
	}
	return storm.Search(ctx, so, stdout, stderr)
}

// limitValue makes a flag of a limit.
type limitValue struct{ *limit.Spec }

func (v limitValue) Set(s string) error { return v.UnmarshalText([]byte(s)) }

func (limitValue) String() string { return "" }

func printScenario(w io.Writer, name string) error {
	if name == "" {
		for _, n := range scenario.Shipped() {
			fmt.Fprintln(w, n)
		}
		return nil
	}
	text, err := scenario.Text(name)
	if err == nil {
		_, err = w.Write(text)
	}
	return cli.Misuse(err)
}
