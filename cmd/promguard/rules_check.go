// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/alecthomas/kingpin/v2"

	"github.com/promguard/promguard/internal/cli"
	"github.com/promguard/promguard/internal/relabel"
	"github.com/promguard/promguard/internal/rules/check"
	"github.com/promguard/promguard/internal/rules/evaluate"
	"github.com/promguard/promguard/internal/rules/report"
	"github.com/promguard/promguard/internal/rules/source"
)

// rulesCheck are the flags of rules check.
type rulesCheck struct {
	profile    *string
	file       *string
	sources    sourceFlags
	exposition []string
	server     serverFlags
	output     *string
	sharded    bool
}

func rulesCheckCommand(rules *kingpin.CmdClause, stdout, stderr io.Writer) subcommand {
	cmd := rules.Command("check", "Prove what drop rules do to dashboards, alerts, recording rules and queries. "+
		"Exit 0: nothing breaks; 1: something would; 2: something could not be checked.")
	var f rulesCheck
	f.profile, f.file = profileFlags(cmd)
	f.sources.declare(cmd)
	cmd.Flag("exposition", "Evaluate everything with and without the rules on this scrape, a file in Prometheus's text format followed by the "+
		"labels of its target, as in apiserver.prom{job=\"apiserver\"}. Repeatable.").PlaceHolder("FILE{LABELS}").StringsVar(&f.exposition)
	f.server.declare(cmd, "Evaluate everything with and without the rules on the series of this server that matter.")
	f.output = cli.Output(cmd)
	cmd.Flag("sharded", "Instead, say which rules may run in each of several servers that share the targets by address. "+
		"With --prometheus.url, jobs with one target count as being in one shard.").BoolVar(&f.sharded)
	return subcommand{clause: cmd, run: func() error { return f.run(stdout, stderr) }}
}

// judgement is a report that a command ends with.
type judgement interface {
	Write(w io.Writer, format string) error
	ExitCode() int
}

// run exits 2 where the check cannot begin.
func (f *rulesCheck) run(stdout, stderr io.Writer) error {
	progress := cli.NewProgress(stderr)
	r, err := f.judge(progress)
	progress.End()
	return conclude(r, err, stdout, *f.output)
}

// conclude writes a judgement unless there was an error, and returns what the command ends
// with.
func conclude(r judgement, err error, stdout io.Writer, output string) error {
	if err == nil {
		err = r.Write(stdout, output)
	}
	if err != nil {
		return cli.Misuse(err)
	}
	if code := r.ExitCode(); code != 0 {
		return cli.Exit(code)
	}
	return nil
}

func (f *rulesCheck) judge(progress *cli.Progress) (judgement, error) {
	if f.sharded {
		return f.shards(progress)
	}
	return f.check(progress)
}

func (f *rulesCheck) check(progress *cli.Progress) (*report.Report, error) {
	if f.sources.none() {
		return nil, errors.New("nothing to check: give --dashboards, --rule-files or --query-log")
	}
	if err := f.server.validate(); err != nil {
		return nil, err
	}
	p, err := loadProfile(*f.profile, *f.file)
	if err != nil {
		return nil, err
	}
	progress.Step("reading files")
	found := f.sources.read()
	in := report.Input{Profile: p, Problems: found.Problems}
	series, err := f.series(p, found.Expressions, progress)
	if err != nil {
		return nil, err
	}
	checker, err := check.New(p, evaluate.Layouts(series))
	if err != nil {
		return nil, err
	}
	progress.Step("checking %d expressions", len(found.Expressions))
	checker.Progress = progress.Count
	in.Results, in.Notes = checker.Check(found.Expressions), checker.Notes()
	if !f.hasData() {
		return report.New(in), nil
	}
	progress.Step("loading %d series", len(series))
	if in.Data, err = evaluate.Load(p, series, found.Expressions); err != nil {
		return nil, err
	}
	defer in.Data.Close()
	progress.Step("evaluating %d expressions", len(in.Results))
	in.Data.Progress = progress.Count
	in.Measured = in.Data.Compare(in.Results)
	return report.New(in), nil
}

func (f *rulesCheck) hasData() bool { return len(f.exposition) > 0 || f.server.given() }

// series reads the data to evaluate expressions on.
func (f *rulesCheck) series(p relabel.Profile, exprs []source.Expression, progress *cli.Progress) ([]evaluate.Series, error) {
	series, err := readExpositions(f.exposition, progress)
	if err != nil || !f.server.given() {
		return series, err
	}
	checker, err := check.New(p, nil)
	if err != nil {
		return nil, err
	}
	api, err := f.server.client(progress)
	if err != nil {
		return nil, err
	}
	defer api.Close()
	live, err := evaluate.ReadLive(context.Background(), api, checker.Concerns(exprs))
	for _, w := range api.Warnings() {
		fmt.Fprintf(progress, "promguard: --prometheus.url warned, and may have left something out: %s\n", cli.OneLine(w))
	}
	return append(series, live...), err
}
