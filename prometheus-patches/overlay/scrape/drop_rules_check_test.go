// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package scrape

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/discovery"
	"github.com/prometheus/prometheus/model/labels"
)

func TestDropRulesThatThereAreNotAreFoundInAConfiguration(t *testing.T) {
	for config, want := range map[string]string{
		`relabel_configs: [{target_label: __promguard_drop_rules__, replacement: "off"}]`:                                                                    "",
		`relabel_configs: [{target_label: __promguard_drop_rules__, replacement: aggressive}]`:                                                               "",
		`relabel_configs: [{target_label: __promguard_drop_rules__, replacement: ""}]`:                                                                       "",
		`relabel_configs: [{target_label: __promguard_drop_rules__, source_labels: [a], replacement: "$1"}]`:                                                 "",
		`relabel_configs: [{target_label: __promguard_drop_rules__, source_labels: [a], regex: b, replacement: "no"}]`:                                       `relabel_configs of scrape config "a": __promguard_drop_rules__: "no" is not one of minimal, recommended, aggressive, off`,
		`relabel_configs: [{target_label: other, replacement: "no"}]`:                                                                                        "",
		`metric_relabel_configs: [{target_label: __promguard_drop_rules__, replacement: "off"}]`:                                                             `metric_relabel_configs of scrape config "a": __promguard_drop_rules__ is a label of targets: it belongs in relabel_configs`,
		`static_configs: [{targets: ["x:1"], labels: {__promguard_drop_rules__: minimal}}]`:                                                                  "",
		`static_configs: [{targets: ["x:1"], labels: {__promguard_drop_rules__: None}}]`:                                                                     `target x:1 of scrape config "a": __promguard_drop_rules__: "None" is not one of`,
		`{static_configs: [{targets: ["x:1"], labels: {rules: None}}], relabel_configs: [{source_labels: [rules], target_label: __promguard_drop_rules__}]}`: `"None" is not one of`,
		`{static_configs: [{targets: ["x:1"], labels: {__promguard_drop_rules__: None}}], relabel_configs: [{action: labeldrop, regex: __promguard.*}]}`:     "",
	} {
		if config[0] == '{' {
			config = config[1 : len(config)-1]
		}
		loaded, err := loadConfiguration(t, "scrape_configs: [{job_name: a, "+config+"}]").GetScrapeConfigs()
		require.NoError(t, err)
		c := loaded[0]
		err = CheckDropRules(c)
		for _, d := range c.ServiceDiscoveryConfigs {
			for _, group := range d.(discovery.StaticConfig) {
				targets, failures := TargetsFromGroup(group, c, nil, labels.NewBuilder(labels.EmptyLabels()))
				require.Empty(t, failures)
				if err == nil {
					err = CheckDropRulesOf(targets, c)
				}
			}
		}
		if want == "" {
			require.NoError(t, err, config)
		} else {
			require.ErrorContains(t, err, want, config)
		}
	}
}
