// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/promguard/promguard/internal/cli"
	"github.com/promguard/promguard/internal/rules/estimate"
)

// inventoryFlags say whose series are counted: exactly one of them is given.
type inventoryFlags struct {
	exposition []string
	server     serverFlags
}

func (f *inventoryFlags) declare(cmd *kingpin.CmdClause) {
	f.server.declare(cmd, "Count the series of this server, by instant queries one after the other.")
	cmd.Flag("exposition", "Count the series of this scrape, a file in Prometheus's text format followed by the "+
		"labels of its target, as in apiserver.prom{job=\"apiserver\"}. Repeatable.").PlaceHolder("FILE{LABELS}").StringsVar(&f.exposition)
}

func (f *inventoryFlags) validate() error {
	if f.server.given() == (len(f.exposition) > 0) {
		return errors.New("give exactly one of --prometheus.url and --exposition")
	}
	return f.server.validate()
}

// rulesEstimate are the flags of rules estimate.
type rulesEstimate struct {
	inventoryFlags

	profile, file *string
	interval      time.Duration
	output        *string
}

func rulesEstimateCommand(rules *kingpin.CmdClause, stdout, stderr io.Writer) subcommand {
	cmd := rules.Command("estimate", "Say what drop rules save, by rule: series, samples, memory, bytes on disk. "+
		"Exit 0: all rules were counted; 2: some could not be.")
	var f rulesEstimate
	f.profile, f.file = profileFlags(cmd)
	f.declare(cmd)
	cmd.Flag("scrape-interval", "Scrape interval of jobs whose own cannot be found out.").Default("30s").DurationVar(&f.interval)
	f.output = cli.Output(cmd)
	return subcommand{clause: cmd, run: func() error { return f.run(stdout, stderr) }}
}

func (f *rulesEstimate) run(stdout, stderr io.Writer) error {
	progress := cli.NewProgress(stderr)
	e, err := f.estimate(context.Background(), progress)
	progress.End()
	return conclude(e, err, stdout, *f.output)
}

func (f *rulesEstimate) estimate(ctx context.Context, progress *cli.Progress) (*estimate.Estimate, error) {
	if f.interval <= 0 {
		return nil, errors.New("--scrape-interval must be above 0")
	}
	if err := f.validate(); err != nil {
		return nil, err
	}
	p, err := loadProfile(*f.profile, *f.file)
	if err != nil {
		return nil, err
	}
	if f.server.given() {
		api, err := f.server.client(progress)
		if err != nil {
			return nil, err
		}
		defer api.Close()
		return estimate.OfServer(ctx, p, api, f.interval)
	}
	series, name, err := f.open(progress)
	if err != nil {
		return nil, err
	}
	counts, err := estimate.Scan(p, name, series)
	if err != nil {
		return nil, err
	}
	counts.Notes = append(counts.Notes, fmt.Sprintf("The scrape interval is taken to be %s (--scrape-interval).", f.interval))
	return estimate.New(p, counts, estimate.Intervals{Default: f.interval}, estimate.ModelSizes()), nil
}
