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

// heartbeat is a rule that gives a sample for each evaluation of the group.
const heartbeat = "storm:heartbeat"

// prometheusConfig is the part of Prometheus' configuration file that is used
// here.
type prometheusConfig struct {
	Global struct {
		ScrapeInterval     time.Duration `yaml:"scrape_interval,omitempty"`
		ScrapeTimeout      time.Duration `yaml:"scrape_timeout,omitempty"`
		EvaluationInterval time.Duration `yaml:"evaluation_interval,omitempty"`
	} `yaml:"global"`
	RuleFiles     []string       `yaml:"rule_files,omitempty"`
	ScrapeConfigs []scrapeConfig `yaml:"scrape_configs,omitempty"`
}

type scrapeConfig struct {
	JobName       string         `yaml:"job_name"`
	StaticConfigs []staticConfig `yaml:"static_configs"`
}

type staticConfig struct {
	Targets []string          `yaml:"targets"`
	Labels  map[string]string `yaml:"labels"`
}

type ruleFile struct {
	Groups []ruleGroup `yaml:"groups"`
}

type ruleGroup struct {
	Name  string `yaml:"name"`
	Rules []rule `yaml:"rules"`
}

type rule struct {
	Record string        `yaml:"record,omitempty"`
	Alert  string        `yaml:"alert,omitempty"`
	Expr   string        `yaml:"expr"`
	For    time.Duration `yaml:"for,omitempty"`
}

// rules are simple ones, over what is scraped meanwhile. The heartbeat is the
// last, so that a group that was not evaluated to its end has none.
var rules = []rule{
	{Record: "storm:up:sum", Expr: "sum by (job) (up)"},
	{Record: "storm:scrape_duration_seconds:max", Expr: "max by (job) (scrape_duration_seconds)"},
	{Record: "storm:scrape_samples_scraped:rate1m", Expr: "sum by (instance) (sum_over_time(scrape_samples_scraped[1m])) / 60"},
	{Alert: "StormTargetDown", Expr: "up == 0", For: 10 * time.Second},
	{Alert: "StormTargetSlow", Expr: "scrape_duration_seconds > 1"},
	{Record: heartbeat, Expr: "vector(1)"},
}

// writeConfig writes a configuration file into a directory. set may be nil:
// then nothing is scraped or evaluated.
func writeConfig(dir string, set *targets.Set, scrape, evaluation time.Duration) (string, error) {
	var c prometheusConfig
	if set != nil {
		file := filepath.Join(dir, "rules.yml")
		if err := writeYAML(file, ruleFile{Groups: []ruleGroup{{Name: "storm", Rules: rules}}}); err != nil {
			return "", err
		}
		c.RuleFiles = []string{file}
		c.Global.ScrapeInterval, c.Global.ScrapeTimeout, c.Global.EvaluationInterval = scrape, scrape, evaluation
		job := scrapeConfig{JobName: targets.Job}
		for _, path := range set.Paths {
			job.StaticConfigs = append(job.StaticConfigs, staticConfig{
				Targets: []string{set.Addr},
				Labels:  map[string]string{"__metrics_path__": path, "instance": path},
			})
		}
		c.ScrapeConfigs = []scrapeConfig{job}
	}
	file := filepath.Join(dir, "prometheus.yml")
	return file, writeYAML(file, c)
}

func writeYAML(file string, v any) error {
	b, err := yaml.Marshal(v)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, b, 0o666)
}
