// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"go.yaml.in/yaml/v3"

	"github.com/promguard/promguard/internal/promapi"
)

// Intervals are how often jobs are scraped.
type Intervals struct {
	// ByJob has the jobs of which it is known, Default is for the others.
	ByJob   map[string]time.Duration
	Default time.Duration
}

func (i Intervals) of(job string) time.Duration {
	return cmp.Or(i.ByJob[job], i.Default)
}

// measuredOver is the time over which intervals of scrapes are measured.
const measuredOver = 5 * time.Minute

// LiveIntervals returns how often the jobs are scraped: what the configuration
// says of a job of the name, or of all, and of others how many samples their
// targets got.
func LiveIntervals(ctx context.Context, api *promapi.Client, jobs []string, otherwise time.Duration) (Intervals, []string) {
	in := Intervals{ByJob: map[string]time.Duration{}, Default: otherwise}
	var notes []string
	if text, err := api.Config(ctx); err != nil {
		notes = append(notes, fmt.Sprintf("The server's configuration could not be read: %s.", err))
	} else {
		in.configured(text, jobs)
	}
	unknown := slices.DeleteFunc(slices.Clone(jobs), func(job string) bool { return job == "" || in.ByJob[job] > 0 })
	if len(unknown) > 0 {
		if err := in.measure(ctx, api, unknown); err != nil {
			notes = append(notes, fmt.Sprintf("The intervals of scrapes could not be measured: %s.", err))
		}
	}
	unknown = slices.DeleteFunc(unknown, func(job string) bool { return in.ByJob[job] > 0 })
	if len(unknown) > 0 {
		notes = append(notes, fmt.Sprintf("The scrape interval of %s is taken to be %s.", strings.Join(unknown, ", "), otherwise))
	}
	return in, notes
}

// measure sets the intervals that the middle target of each job has.
func (i *Intervals) measure(ctx context.Context, api *promapi.Client, jobs []string) error {
	up := promapi.Selector([]string{"up"}, labels.MustNewMatcher(labels.MatchRegexp, model.JobLabel, promapi.OneOf(jobs)))
	rows, err := api.Query(ctx, fmt.Sprintf("quantile by (job) (0.5, count_over_time(%s[%s]))", up, model.Duration(measuredOver)))
	if err != nil {
		return err
	}
	for _, r := range rows {
		if r.Value >= 1 {
			i.ByJob[r.Labels.Get(model.JobLabel)] = (measuredOver / time.Duration(r.Value)).Round(time.Second)
		}
	}
	return nil
}

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
