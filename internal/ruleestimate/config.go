// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package ruleestimate

import (
	"time"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"
)

// defaultInterval is Prometheus's own.
const defaultInterval = time.Minute

// configured sets the intervals of jobs that the configuration tells: of a scrape
// config of that name, as the job label may be another, or of all scrape configs
// if they are the same.
func (i *Intervals) configured(text string, jobs []string) {
	type interval string
	var file struct {
		Global struct {
			Interval interval `yaml:"scrape_interval"`
		} `yaml:"global"`
		ScrapeConfigs []struct {
			JobName  string   `yaml:"job_name"`
			Interval interval `yaml:"scrape_interval"`
		} `yaml:"scrape_configs"`
		Files []string `yaml:"scrape_config_files"`
	}
	if yaml.Unmarshal([]byte(text), &file) != nil {
		return
	}
	parsed := func(text interval, otherwise time.Duration) time.Duration {
		if d, err := model.ParseDuration(string(text)); err == nil && d > 0 {
			return time.Duration(d)
		}
		return otherwise
	}
	global := parsed(file.Global.Interval, defaultInterval)
	byName := map[string]time.Duration{}
	all := map[time.Duration]bool{}
	for _, c := range file.ScrapeConfigs {
		d := parsed(c.Interval, global)
		byName[c.JobName] = d
		all[d] = true
	}
	for _, job := range jobs {
		switch d, ok := byName[job]; {
		case ok:
			i.ByJob[job] = d
		case len(all) == 1 && len(file.Files) == 0:
			for only := range all {
				i.ByJob[job] = only
			}
		}
	}
}
