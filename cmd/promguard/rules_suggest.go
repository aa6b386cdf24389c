// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/promguard/promguard/internal/cli"
	"github.com/promguard/promguard/internal/relabel"
	"github.com/promguard/promguard/internal/rules/evaluate"
	"github.com/promguard/promguard/internal/rules/source"
	"github.com/promguard/promguard/internal/rules/suggest"
)

// rulesSuggest are the flags of rules suggest.
type rulesSuggest struct {
	inventoryFlags

	sources sourceFlags
	extends string
	top     int
	out     string
}

func rulesSuggestCommand(rules *kingpin.CmdClause, stdout, stderr io.Writer) subcommand {
	cmd := rules.Command("suggest", "Write drop rules for what nothing in this installation reads, each proved, the most series first. "+
		"Exit 0: they were written; 2: something that may read series could not be read.")
	var f rulesSuggest
	f.sources.declare(cmd)
	f.declare(cmd)
	cmd.Flag("extends", "Built-in profile that the file extends, one of "+strings.Join(relabel.ProfileNames(), ", ")+"; the rules drop what that leaves, and with off they are all. "+
		"Not given, it is the one that --prometheus.url says it runs, and recommended with --exposition.").PlaceHolder("PROFILE").HintOptions(relabel.ProfileNames()...).StringVar(&f.extends)
	cmd.Flag("top", "Most rules to suggest.").Default("50").IntVar(&f.top)
	cmd.Flag("out", "File to write, - for standard output.").Default("-").StringVar(&f.out)
	return subcommand{clause: cmd, run: func() error { return f.run(stdout, stderr) }}
}

func (f *rulesSuggest) run(stdout, stderr io.Writer) error {
	progress := cli.NewProgress(stderr)
	r, err := f.suggest(context.Background(), progress)
	progress.End()
	var text bytes.Buffer
	if err == nil {
		err = r.Write(&text)
	}
	if err == nil && f.out != "-" {
		err = replaceFile(f.out, text.Bytes())
	} else if err == nil {
		_, err = stdout.Write(text.Bytes())
	}
	if err != nil {
		return cli.Misuse(err)
	}
	if code := r.ExitCode(); code != 0 {
		fmt.Fprintf(stderr, "promguard: %d files or expressions could not be read and may read what the rules drop: see the comments\n", len(r.Evidence.Problems))
		return cli.Exit(code)
	}
	return nil
}

func (f *rulesSuggest) suggest(ctx context.Context, progress *cli.Progress) (*suggest.Report, error) {
	if f.sources.none() {
		return nil, errors.New("nothing to search: give --dashboards, --rule-files and --query-log")
	}
	if f.top < 1 {
		return nil, errors.New("--top must be above 0")
	}
	if err := f.validate(); err != nil {
		return nil, err
	}
	if f.out != "-" {
		if err := checkReplaceable(f.out); err != nil {
			return nil, err
		}
	}
	extends, err := f.profile()
	if err != nil {
		return nil, err
	}
	progress.Step("reading files")
	evidence := suggest.Evidence{
		Found: f.sources.read(), RuleFiles: len(f.sources.ruleFiles) > 0, Dashboards: len(f.sources.dashboards) > 0, QueryLogs: len(f.sources.queryLogs) > 0,
	}
	if len(evidence.Expressions) == 0 {
		return nil, noExpression(evidence.Problems)
	}
	finder, err := suggest.New(evidence)
	if err != nil {
		return nil, err
	}
	if f.server.given() {
		return f.live(ctx, finder, extends, progress)
	}
	series, name, err := f.open(progress)
	if err != nil {
		return nil, err
	}
	progress.Step("proving what nobody reads of %d series", len(series))
	return finder.Scan(name, series, *extends, f.top)
}

// noExpression is the error of sources without any, and why.
func noExpression(why []source.Problem) error {
	err := errors.New("nothing to search: there is no expression in what was given")
	if len(why) == 0 {
		return err
	}
	all := cli.Problems{err}
	for _, p := range why {
		all = append(all, p)
	}
	return all
}

func (f *rulesSuggest) live(ctx context.Context, finder *suggest.Finder, extends *relabel.Profile, progress *cli.Progress) (*suggest.Report, error) {
	api, err := f.server.client(progress)
	if err != nil {
		return nil, err
	}
	defer api.Close()
	return finder.Live(ctx, api, extends, f.top)
}

// profile returns the profile that the file extends, nil for the one that the
// server runs.
func (f *rulesSuggest) profile() (*relabel.Profile, error) {
	name := f.extends
	switch {
	case name == "" && f.server.given():
		return nil, nil
	case name == "":
		name = relabel.ProfileRecommended
	case name == relabel.ProfileOff:
		return &relabel.Profile{}, nil
	}
	p, err := relabel.ProfileByName(name)
	if err != nil {
		return nil, fmt.Errorf("--extends: %w", err)
	}
	return &p, nil
}

// open returns the series of scrapes.
func (f *inventoryFlags) open(progress *cli.Progress) (series []evaluate.Series, name string, err error) {
	series, err = readExpositions(f.exposition, progress)
	return series, fmt.Sprintf("one scrape of %d targets", len(f.exposition)), err
}
