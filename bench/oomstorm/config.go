// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/promguard/promguard/bench/oomstorm/internal/targets"
)

const (
	// heartbeat is a rule that gives a sample for each evaluation of the group.
	heartbeat = "storm:heartbeat"
	// itself is the job under which the server scrapes itself, for the queries of
	// expectations.
	itself = "prometheus"
)

// prometheusConfig is the part of Prometheus' configuration file that is used
// here.
type prometheusConfig struct {
	Global struct {
		ScrapeInterval     time.Duration `yaml:"scrape_interval,omitempty"`
		ScrapeTimeout      time.Duration `yaml:"scrape_timeout,omitempty"`
		EvaluationInterval time.Duration `yaml:"evaluation_interval,omitempty"`
	} `yaml:"global"`
	Runtime struct {
		GOGC int `yaml:"gogc,omitempty"`
	} `yaml:"runtime,omitempty"`
	RuleFiles     []string       `yaml:"rule_files,omitempty"`
	ScrapeConfigs []scrapeConfig `yaml:"scrape_configs,omitempty"`
}

type scrapeConfig struct {
	JobName              string         `yaml:"job_name"`
	StaticConfigs        []staticConfig `yaml:"static_configs"`
	MetricRelabelConfigs []relabel      `yaml:"metric_relabel_configs,omitempty"`
}

type relabel struct {
	SourceLabels []string `yaml:"source_labels,flow"`
	TargetLabel  string   `yaml:"target_label"`
}

type staticConfig struct {
	Targets []string          `yaml:"targets"`
	Labels  map[string]string `yaml:"labels,omitempty"`
}

// ruleFile has simple rules, over what is scraped meanwhile. The heartbeat is the
// last, so that a group that was not evaluated to its end has none.
const ruleFile = `groups:
- name: storm
  rules:
  - {record: "storm:up:sum", expr: "sum by (job) (up)"}
  - {record: "storm:scrape_duration_seconds:max", expr: "max by (job) (scrape_duration_seconds)"}
  - {record: "storm:scrape_samples_scraped:rate1m", expr: "sum by (instance) (sum_over_time(scrape_samples_scraped[1m])) / 60"}
  - {alert: StormTargetDown, expr: "up == 0", for: 10s}
  - {record: "` + heartbeat + `", expr: vector(1)}
`

// named has series of different names differ by another label, too: functions over
// ranges take the names away, and refuse series that are then the same.
var named = []relabel{{SourceLabels: []string{"__name__"}, TargetLabel: "metric"}}

// writeConfig writes a configuration file into a directory. set may be nil: then
// nothing is scraped or evaluated, and garbage is collected often, so that memory
// is what is held.
func writeConfig(dir, addr string, set *targets.Set, scrape, evaluation time.Duration) (string, error) {
	var c prometheusConfig
	if set == nil {
		c.Runtime.GOGC = 10
	} else {
		file := filepath.Join(dir, "rules.yml")
		if err := os.WriteFile(file, []byte(ruleFile), 0o666); err != nil {
			return "", err
		}
		c.RuleFiles = []string{file}
		c.Global.ScrapeInterval, c.Global.ScrapeTimeout, c.Global.EvaluationInterval = scrape, scrape, evaluation
		c.ScrapeConfigs = []scrapeConfig{{JobName: itself, StaticConfigs: []staticConfig{{Targets: []string{addr}}}}}
		jobs := map[string]int{}
		for _, t := range set.Targets {
			if _, ok := jobs[t.Job]; !ok {
				jobs[t.Job] = len(c.ScrapeConfigs)
				c.ScrapeConfigs = append(c.ScrapeConfigs, scrapeConfig{JobName: t.Job, MetricRelabelConfigs: named})
			}
			job := &c.ScrapeConfigs[jobs[t.Job]]
			job.StaticConfigs = append(job.StaticConfigs, staticConfig{
				Targets: []string{set.Addr}, Labels: map[string]string{"__metrics_path__": t.Path, "instance": t.Path},
			})
		}
	}
	file := filepath.Join(dir, "prometheus.yml")
	b, err := yaml.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	return file, os.WriteFile(file, b, 0o666)
}
