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
	"github.com/promguard/promguard/internal/querylimit"
)

type suggestFlags struct {
	policy, period, mode string
	logs                 []string
	opts                 suggest.Options
	stdout, stderr       io.Writer
}

func suggestCommand(policy *kingpin.CmdClause, stdout, stderr io.Writer) subcommand {
	f := suggestFlags{stdout: stdout, stderr: stderr}
	c := policy.Command("suggest", "Draw limits from a query log of promguard or of Prometheus, and write those to change as YAML for the policy file.")
	c.Flag("query-log", "Query log. May be repeated.").Required().StringsVar(&f.logs)
	c.Flag("config.file", "Policy file that the limits are for; without it every limit has its default.").StringVar(&f.policy)
	c.Flag("margin", "Draw each limit at this multiple of the 99th percentile that was seen; a limit that refuses at once, of the largest value.").Default("1.5").Float64Var(&f.opts.Margin)
	c.Flag("min-requests", "How many requests a limit must rest on.").Default("1000").IntVar(&f.opts.MinRequests)
	c.Flag("min-period", "Least time with requests that the log must cover, counted in hours.").Default("1d").StringVar(&f.period)
	c.Flag("mode", "Mode of limits that were off: observe or warn. The others keep theirs.").Default("observe").StringVar(&f.mode)
	c.Flag("looser", "Raise limits, too, where more was seen than the policy allows.").BoolVar(&f.opts.Looser)
	return subcommand{c, f.run}
}

func (f *suggestFlags) run() error {
	period, err := model.ParseDuration(f.period)
	if err != nil {
		return cli.Misuse(fmt.Errorf("--min-period: %w", err))
	}
	f.opts.MinPeriod = time.Duration(period)
	if f.opts.Mode, err = querylimit.ParseMode(f.mode); err != nil {
		return cli.Misuse(fmt.Errorf("--mode: %w", err))
	}
	if err := f.opts.Validate(); err != nil {
		return cli.Misuse(err)
	}
	text, err := f.read()
	if err != nil {
		return err
	}
	logs, err := openLogs(f.logs)
	if err != nil {
		return err
	}
	defer logs.close()
	evidence, err := suggest.Gather(logs.read())
	if err != nil {
		return err
	}
	s, err := suggest.Suggest(text, evidence, f.opts, logs.read)
	if err != nil {
		return err
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
	s.WriteForecast(f.stderr)
	return nil
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

// logFiles are query logs that are read several times, each time as they were when
// they were opened: a log that is in use grows.
type logFiles struct {
	files []*os.File
	sizes []int64
}

func openLogs(paths []string) (*logFiles, error) {
	l := &logFiles{}
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			l.close()
			return nil, err
		}
		l.files = append(l.files, file)
		info, err := file.Stat()
		if err == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("%s is not a regular file, and the log is read several times: write it to a file first", path)
		}
		if err != nil {
			l.close()
			return nil, err
		}
		l.sizes = append(l.sizes, info.Size())
	}
	return l, nil
}

// read returns all logs as one, from the beginning.
func (l *logFiles) read() io.Reader {
	var all []io.Reader
	for i, file := range l.files {
		all = append(all, io.NewSectionReader(file, 0, l.sizes[i]), strings.NewReader("\n")) // The last line may have no end.
	}
	return io.MultiReader(all...)
}

func (l *logFiles) close() {
	for _, file := range l.files {
		_ = file.Close() // It was only read.
	}
}
