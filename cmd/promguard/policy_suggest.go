// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/model"

	"github.com/promguard/promguard/internal/cli"
	"github.com/promguard/promguard/internal/policy/suggest"
	"github.com/promguard/promguard/internal/proxy/config"
)

type suggestFlags struct {
	policy, period string
	logs           []string
	opts           suggest.Options
	output         *string
	stdout, stderr io.Writer
}

func suggestCommand(policy *kingpin.CmdClause, stdout, stderr io.Writer) subcommand {
	f := suggestFlags{stdout: stdout, stderr: stderr}
	c := policy.Command("suggest", "Draw limits from a query log of promguard or of Prometheus, and write those to change as YAML for the policy file.")
	c.Flag("query-log", "Query log. May be repeated.").Required().StringsVar(&f.logs)
	c.Flag("config.file", "Policy file that the limits are for; without it every limit has its default.").StringVar(&f.policy)
	c.Flag("margin", "Draw each limit at this multiple of the 99th percentile that was seen; a limit that refuses at once, of the largest value.").Default("1.5").Float64Var(&f.opts.Margin)
	c.Flag("min-requests", "How many requests a limit must rest on.").Default("1000").IntVar(&f.opts.MinRequests)
	c.Flag("min-period", "Least time with requests that the log must cover, counted in hours.").Default("1d").StringVar(&f.period)
	f.output = cli.Output(c)
	return subcommand{c, f.run}
}

func (f *suggestFlags) run() error {
	period, err := model.ParseDuration(f.period)
	if err != nil {
		return cli.Misuse(fmt.Errorf("--min-period: %w", err))
	}
	f.opts.MinPeriod = time.Duration(period)
	if err := f.opts.Validate(); err != nil {
		return cli.Misuse(err)
	}
	text, err := f.read()
	if err != nil {
		return err
	}
	evidence, err := f.gather()
	if err != nil {
		return err
	}
	s, err := suggest.Suggest(text, evidence, f.opts)
	if err != nil {
		return err
	}
	if *f.output == cli.JSON {
		return cli.WriteJSON(f.stdout, suggestion{evidence, s.Lines, string(s.Fragment)})
	}
	evidence.WriteEvidence(f.stderr)
	fmt.Fprintln(f.stderr)
	s.WriteLines(f.stderr)
	if len(s.Fragment) == 0 {
		fmt.Fprintln(f.stderr, "\nThere is nothing to change.")
		return nil
	}
	if _, err := f.stdout.Write(s.Fragment); err != nil {
		return fmt.Errorf("the suggestion is not written: %w", err)
	}
	fmt.Fprintln(f.stderr, "\nPaste it, and let promguard policy test say whom it would refuse.")
	return nil
}

// suggestion is the JSON of what is suggested.
type suggestion struct {
	Evidence *suggest.Evidence `json:"evidence"`
	Limits   []suggest.Line    `json:"limits"`
	Policy   string            `json:"policy"` // YAML of those to change; empty: none
}

// read returns the text of the policy as it is, which is empty without a file.
func (f *suggestFlags) read() ([]byte, error) {
	if f.policy == "" {
		return nil, nil
	}
	if _, err := config.Load(f.policy); err != nil { // It names the file.
		return nil, err
	}
	return os.ReadFile(f.policy)
}

// gather reads all logs as one.
func (f *suggestFlags) gather() (*suggest.Evidence, error) {
	progress := cli.NewProgress(f.stderr)
	defer progress.End()
	progress.Step("reading logs")
	var all []io.Reader
	for _, path := range f.logs {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		all = append(all, readLog(file, progress), strings.NewReader("\n")) // The last line may have no end.
	}
	return suggest.Gather(io.MultiReader(all...))
}
