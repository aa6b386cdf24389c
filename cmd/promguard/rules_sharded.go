// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/common/model"

	"github.com/promguard/promguard/internal/cli"
	"github.com/promguard/promguard/internal/rules/shard"
)

// shards says which rules may run in a shard.
func (f *rulesCheck) shards(progress *cli.Progress) (judgement, error) {
	if len(f.sources.ruleFiles) == 0 || len(f.sources.dashboards)+len(f.sources.queryLogs)+len(f.exposition) > 0 {
		return nil, errors.New("give --rule-files, and nothing else to check: with --sharded rules are judged, all other queries ask all shards")
	}
	if err := f.server.validate(); err != nil {
		return nil, err
	}
	single, err := f.singleTargets(progress)
	if err != nil {
		return nil, err
	}
	progress.Step("judging rules")
	return shard.NewReport(f.sources.read(), single), nil
}

// singleTargets are the jobs that have one target now.
func (f *rulesCheck) singleTargets(progress *cli.Progress) ([]string, error) {
	if !f.server.given() {
		return nil, nil
	}
	api, err := f.server.client(progress)
	if err != nil {
		return nil, err
	}
	defer api.Close()
	rows, err := api.Query(context.Background(), "count by (job) (group by (job, instance) (up)) == 1")
	if warned := api.Warnings(); err == nil && len(warned) > 0 {
		err = fmt.Errorf("--prometheus.url must know all targets, and warned: %s", warned[0])
	}
	var jobs []string
	for _, r := range rows {
		jobs = append(jobs, r.Labels.Get(model.JobLabel))
	}
	return jobs, err
}
