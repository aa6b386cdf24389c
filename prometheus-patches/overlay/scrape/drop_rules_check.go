// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package scrape

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/internal/relabel"
	promrelabel "github.com/prometheus/prometheus/model/relabel"
)

// CheckDropRules returns an error if the scrape config gives its targets drop rules
// that are unknown, as far as that can be told without the targets.
func CheckDropRules(c *config.ScrapeConfig) error {
	for _, r := range c.RelabelConfigs {
		if r.TargetLabel != dropRulesLabel || r.Action != promrelabel.Replace || strings.Contains(r.Replacement, "$") {
			continue
		}
		if err := checkDropRules(r.Replacement); err != nil {
			return fmt.Errorf("relabel_configs of scrape config %q: %w", c.JobName, err)
		}
	}
	for _, r := range c.MetricRelabelConfigs {
		if r.TargetLabel == dropRulesLabel {
			return fmt.Errorf("metric_relabel_configs of scrape config %q: %s is a label of targets: it belongs in relabel_configs", c.JobName, dropRulesLabel)
		}
	}
	return nil
}

// CheckDropRulesOf returns an error if a target has unknown drop rules.
func CheckDropRulesOf(targets []*Target, c *config.ScrapeConfig) error {
	for _, t := range targets {
		if err := checkDropRules(t.GetValue(dropRulesLabel)); err != nil {
			return fmt.Errorf("target %s of scrape config %q: %w", t.URL().Host, c.JobName, err)
		}
	}
	return nil
}

// checkDropRules accepts the names of the built-in profiles. One that comes from a
// file has the targets that name none.
func checkDropRules(profile string) error {
	if profile == "" || slices.Contains(relabel.ProfileNames(), profile) {
		return nil
	}
	return fmt.Errorf("%s: %q is not one of %s", dropRulesLabel, profile, strings.Join(relabel.ProfileNames(), ", "))
}
