// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/model"

	"github.com/promguard/promguard/internal/cli"
	"github.com/promguard/promguard/internal/rules/evaluate"
	"github.com/promguard/promguard/internal/rules/source"
)

// sourceFlags say where the expressions of an installation stand.
type sourceFlags struct {
	dashboards, ruleFiles, queryLogs []string
}

func (f *sourceFlags) declare(cmd *kingpin.CmdClause) {
	cmd.Flag("dashboards", "Directory or file of Grafana dashboards: JSON, or ConfigMaps and custom resources. Repeatable.").
		PlaceHolder("DIR").StringsVar(&f.dashboards)
	cmd.Flag("rule-files", "Directory or file of Prometheus rule files, PrometheusRules, prometheus-adapter and autoscaler manifests. Repeatable.").
		PlaceHolder("DIR").StringsVar(&f.ruleFiles)
	cmd.Flag("query-log", "Prometheus's query log. Repeatable.").PlaceHolder("FILE").StringsVar(&f.queryLogs)
}

func (f *sourceFlags) none() bool { return len(f.dashboards)+len(f.ruleFiles)+len(f.queryLogs) == 0 }

func (f *sourceFlags) read() source.Found {
	var all source.Found
	for _, found := range []source.Found{source.Dashboards(f.dashboards...), source.RuleFiles(f.ruleFiles...), source.QueryLogs(f.queryLogs...)} {
		all.Add(found)
	}
	return all
}

// readExpositions reads scrapes. It tells of series without a job: rules that hold for
// some jobs only are then of no effect, which looks like a small saving.
func readExpositions(args []string, progress *cli.Progress) ([]evaluate.Series, error) {
	if len(args) > 0 {
		progress.Step("reading scrapes")
	}
	series, err := evaluate.ReadExpositions(args)
	if err != nil {
		return nil, fmt.Errorf("--exposition: %w", err)
	}
	jobless := 0
	for i := range series {
		if series[i].Labels.Get(model.JobLabel) == "" {
			jobless++
		}
	}
	if jobless > 0 {
		fmt.Fprintf(progress, "promguard: %d of %d series have no job, and rules for some jobs do not apply to them: "+
			"give scrapes the labels of their targets, as in --exposition='apiserver.prom{job=\"apiserver\"}'\n", jobless, len(series))
	}
	return series, nil
}
