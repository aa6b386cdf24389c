// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kingpin/v2"

	"github.com/promguard/promguard/bench/rehearse"
	"github.com/promguard/promguard/internal/cli"
	"github.com/promguard/promguard/internal/proxy/config"
	"github.com/promguard/promguard/internal/rules/source"
)

// rehearseFlags are the flags of rehearse.
type rehearseFlags struct {
	in            rehearse.Input
	profile, file *string
	policy        string
	sources       sourceFlags
	server        serverFlags
	output        *string
}

func rehearseCommand(app *kingpin.Application, stdout, stderr io.Writer) subcommand {
	cmd := app.Command("rehearse", "Say what would change if the patched Prometheus and the proxy took the place of a stock server, on a recording of that server: "+
		"restart, answers, who would be refused, drop rules, a storm under the memory limit. Exit 0: go; 1: no-go; 2: it could not be told.")
	var f rehearseFlags
	cmd.Flag("recording", "Recording of the server, as walreplay record writes it.").PlaceHolder("DIR").ExistingDirVar(&f.in.Recording)
	cmd.Flag("stock", "Prometheus that runs today, with those of its ARGs that matter to queries.").PlaceHolder("PATH [ARG...]").StringVar(&f.in.Stock)
	cmd.Flag("patched", "Patched Prometheus, with its ARGs.").PlaceHolder("PATH [ARG...]").StringVar(&f.in.Patched)
	cmd.Flag("memory-limit", "Memory limit of the server's container, such as 8GiB, under which both are stormed.").PlaceHolder("SIZE").StringVar(&f.in.MemoryLimit)
	cmd.Flag("storm", "How long each is stormed.").Default("1m").DurationVar(&f.in.Storm)
	f.sources.declare(cmd)
	f.profile, f.file = profileFlags(cmd)
	cmd.Flag("config.file", "Policy file of the proxy; without it every limit has its default.").StringVar(&f.policy)
	cmd.Flag("scrape-interval", "Scrape interval of jobs whose own cannot be found out.").Default("30s").DurationVar(&f.in.Interval)
	cmd.Flag("out", "Directory for the steps that are done: the same command goes on after them.").Default("rehearsal").PlaceHolder("DIR").StringVar(&f.in.Dir)
	cmd.Flag("tmp-dir", "Where two copies of the recording go.").Default(os.TempDir()).PlaceHolder("DIR").StringVar(&f.in.TmpDir)
	f.server.declare(cmd, "Look at this server, without a recording.")
	f.output = cli.Output(cmd)
	return subcommand{clause: cmd, run: func() error { return f.run(stdout, stderr) }}
}

func (f *rehearseFlags) run(stdout, stderr io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	progress := cli.NewProgress(stderr)
	r, err := f.rehearse(ctx, progress)
	progress.End()
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("interrupted; the steps that were done are in %s, and the same command goes on after them", f.in.Dir)
	}
	return conclude(r, err, stdout, *f.output)
}

func (f *rehearseFlags) rehearse(ctx context.Context, progress *cli.Progress) (*rehearse.Report, error) {
	in := f.in
	in.Progress, in.QueryLogs = progress, f.sources.queryLogs
	if in.Recording != "" && f.server.given() {
		return nil, errors.New("give one of --recording and --prometheus.url")
	}
	if in.Interval <= 0 {
		return nil, errors.New("--scrape-interval must be above 0")
	}
	var err error
	if in.Profile, err = loadProfile(*f.profile, *f.file); err != nil {
		return nil, err
	}
	in.DropRules = cmp.Or(*f.file, *f.profile)
	policy, err := config.Load(f.policy)
	if err != nil {
		return nil, err
	}
	in.Rules = policy.Rules
	if f.server.given() {
		if in.Live, err = f.server.client(progress); err != nil {
			return nil, err
		}
		defer in.Live.Close()
		if in.LiveTransport, err = newTransport(f.server.httpConfig); err != nil {
			return nil, fmt.Errorf("--prometheus.http-config.file: %w", err)
		}
		in.LiveURL = f.server.url
	}
	for _, found := range []source.Found{source.Dashboards(f.sources.dashboards...), source.RuleFiles(f.sources.ruleFiles...)} {
		in.Found.Add(found)
	}
	return rehearse.Run(ctx, in)
}
