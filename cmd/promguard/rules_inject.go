// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"

	"github.com/alecthomas/kingpin/v2"

	"github.com/promguard/promguard/internal/cli"
	"github.com/promguard/promguard/internal/relabel"
	"github.com/promguard/promguard/internal/rules/inject"
)

// rulesInject are the flags of rules inject.
type rulesInject struct {
	profile *string
	rules   *string
	config  string
	out     string
	job     string
	check   bool
}

func rulesInjectCommand(rules *kingpin.CmdClause, stdout, stderr io.Writer) subcommand {
	cmd := rules.Command("inject", "Put drop rules behind the metric_relabel_configs of each scrape config of a prometheus.yml. "+
		"Rules of an earlier call are replaced, comments and layout stay; --profile=off takes them out.")
	var f rulesInject
	f.profile, f.rules = profileFlags(cmd)
	cmd.Arg("file", "Configuration file of Prometheus, or a file of scrape_config_files.").Required().StringVar(&f.config)
	cmd.Flag("out", "File to write, - for standard output. It may be the file that is read.").Default("-").StringVar(&f.out)
	cmd.Flag("job", "Only scrape configs whose whole job_name matches this regular expression.").PlaceHolder("REGEX").StringVar(&f.job)
	cmd.Flag("check", "Write nothing. Exit 0: the file has these rules; 1: some are missing or old; 2: it could not be checked.").BoolVar(&f.check)
	return subcommand{clause: cmd, run: func() error { return f.run(stdout, stderr) }}
}

func (f *rulesInject) run(stdout, stderr io.Writer) error {
	p, err := loadProfile(*f.profile, *f.rules)
	if err != nil {
		return f.failed(err)
	}
	r, err := f.inject(p)
	if err != nil {
		return f.failed(err)
	}
	for _, pattern := range r.OtherFiles {
		fmt.Fprintf(stderr, "promguard: %s: scrape_config_files names %s: inject into these files too\n", f.config, pattern)
	}
	if f.check {
		return f.tell(stdout, r, p)
	}
	if f.out == "-" {
		_, err := stdout.Write(r.Text)
		return err
	}
	return replaceFile(f.out, r.Text)
}

// failed exits 2 where 1 would be an answer.
func (f *rulesInject) failed(err error) error {
	if !f.check {
		return err
	}
	return cli.Misuse(err)
}

func (f *rulesInject) inject(p relabel.Profile) (inject.Result, error) {
	var jobs *regexp.Regexp
	if f.job != "" {
		var err error
		if _, err = regexp.Compile(f.job); err == nil {
			jobs, err = regexp.Compile("^(?:" + f.job + ")$")
		}
		if err != nil {
			return inject.Result{}, fmt.Errorf("--job: %w", err)
		}
	}
	text, err := os.ReadFile(f.config)
	if err != nil {
		return inject.Result{}, err
	}
	r, err := inject.Rules(text, p, jobs)
	if err != nil {
		return inject.Result{}, fmt.Errorf("%s: %w", f.config, err)
	}
	return r, nil
}

// tell says which jobs do not have the rules, and exits 1 if there are such.
func (f *rulesInject) tell(stdout io.Writer, r inject.Result, p relabel.Profile) error {
	stale := slices.DeleteFunc(slices.Clone(r.Jobs), func(j inject.Job) bool { return j.State == inject.Current })
	for _, j := range stale {
		what := map[inject.State]string{inject.Missing: "lacks the rules", inject.Old: "has other rules than those"}[j.State]
		if _, err := fmt.Fprintf(stdout, "%s: job %q %s of profile %s\n", f.config, j.Name, what, p.Name); err != nil {
			return err
		}
	}
	if len(stale) > 0 {
		return cli.Exit(1)
	}
	return nil
}
