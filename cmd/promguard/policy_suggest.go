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

	"github.com/promguard/promguard/internal/config"
	"github.com/promguard/promguard/internal/linediff"
	"github.com/promguard/promguard/internal/policysuggest"
	"github.com/promguard/promguard/internal/policytest"
	"github.com/promguard/promguard/internal/querylimit"
)

type suggestFlags struct {
	policy, output, period, mode string
	logs                         []string
	opts                         policysuggest.Options
	stdout, stderr               io.Writer
}

func suggestCommand(policy *kingpin.CmdClause, stdout, stderr io.Writer) subcommand {
	f := suggestFlags{stdout: stdout, stderr: stderr}
	c := policy.Command("suggest", "Draw limits from a query log of promguard or of Prometheus, and write them as a diff of the policy file to review.")
	c.Flag("query-log", "Query log. May be repeated.").Required().StringsVar(&f.logs)
	c.Flag("policy", "Policy file that the limits are for; without it, a whole file is written.").StringVar(&f.policy)
	c.Flag("output", "What to write: diff or file.").Default("diff").EnumVar(&f.output, "diff", "file")
	c.Flag("margin", "What is allowed for each limit, as a multiple of the 99th percentile that was seen; of a limit that refuses at once, of the most that was seen.").Default("1.5").Float64Var(&f.opts.Margin)
	c.Flag("min-requests", "How many requests a limit must rest on.").Default("1000").IntVar(&f.opts.MinRequests)
	c.Flag("min-period", "What time the log must span.").Default("1d").StringVar(&f.period)
	c.Flag("mode", "Mode of limits that were off: observe or warn. The others keep theirs.").Default("observe").StringVar(&f.mode)
	c.Flag("looser", "Raise limits, too, where more was seen than the policy allows.").BoolVar(&f.opts.Looser)
	return subcommand{c, f.run}
}

func (f *suggestFlags) run() error {
	period, err := model.ParseDuration(f.period)
	if err != nil {
		return fmt.Errorf("--min-period: %w", err)
	}
	f.opts.MinPeriod = time.Duration(period)
	if f.opts.Mode, err = querylimit.ParseMode(f.mode); err != nil {
		return fmt.Errorf("--mode: %w", err)
	}
	if err := f.opts.Validate(); err != nil {
		return err
	}
	before, text, err := f.read()
	if err != nil {
		return err
	}
	var evidence *policysuggest.Evidence
	if err := f.withLogs(func(log io.Reader) error {
		evidence, err = policysuggest.Gather(log)
		return err
	}); err != nil {
		return err
	}
	s, err := policysuggest.Suggest(text, evidence, f.opts)
	if err != nil {
		return err
	}
	evidence.WriteEvidence(f.stderr)
	fmt.Fprintln(f.stderr)
	s.WriteLines(f.stderr)
	if !s.Changes() {
		fmt.Fprintln(f.stderr, "\nNothing is to be changed.")
		return nil
	}
	f.write(string(text), string(s.Text))
	return f.foretell(before, s)
}

// read returns the policy as it is, which is the default without a file.
func (f *suggestFlags) read() (*config.Config, []byte, error) {
	c, err := config.Load(f.policy)
	if err != nil || f.policy == "" {
		f.output = "file"
		return c, nil, err
	}
	text, err := os.ReadFile(f.policy)
	return c, text, err
}

// withLogs reads all logs as one.
func (f *suggestFlags) withLogs(do func(io.Reader) error) error {
	var all []io.Reader
	for _, path := range f.logs {
		log, err := os.Open(path)
		if err != nil {
			return err
		}
		defer log.Close()
		all = append(all, log, strings.NewReader("\n")) // The last line may have no end.
	}
	return do(io.MultiReader(all...))
}

func (f *suggestFlags) write(before, after string) {
	if f.output == "file" {
		fmt.Fprint(f.stdout, after)
		return
	}
	fmt.Fprint(f.stdout, linediff.Unified(f.policy, f.policy, before, after))
}

// foretell says what would have become of the requests of the log.
func (f *suggestFlags) foretell(before *config.Config, s *policysuggest.Suggestion) error {
	show := func(title string, rules *querylimit.Ruleset) error {
		return f.withLogs(func(log io.Reader) error {
			report, err := policytest.Run(rules, log)
			if err != nil {
				return err
			}
			fmt.Fprintf(f.stderr, "\n%s:\n", title)
			report.Write(f.stderr)
			return nil
		})
	}
	if err := show("The policy as it is", before.Rules); err != nil {
		return err
	}
	for _, next := range []struct {
		title string
		text  []byte
	}{{"As suggested", s.Text}, {"Once every limit that is suggested is in mode enforce", s.Enforced}} {
		c, err := config.Parse(next.text)
		if err != nil {
			return err
		}
		if err := show(next.title, c.Rules); err != nil {
			return err
		}
	}
	return nil
}
