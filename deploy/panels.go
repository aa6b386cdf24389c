// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package deploy reads the panels of the dashboards, for tests. Its own tests hold
// what is deployed to the packages of this repository; tools/deploy holds it to those
// of Kubernetes, Helm and jsonnet.
package deploy

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
)

// Panel is one query of a panel.
type Panel struct {
	Place        string // File and title.
	Expr, Legend string
	Instant      bool
}

// Panels returns all queries of the dashboards in dir, with their variables filled in.
func Panels(dir string, variables *strings.Replacer) ([]Panel, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var all []Panel
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var dashboard struct {
			Panels []struct {
				Title   string
				Targets []struct {
					Expr, LegendFormat string
					Instant            bool
				}
			}
		}
		if err := json.Unmarshal(text, &dashboard); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, p := range dashboard.Panels {
			for _, t := range p.Targets {
				all = append(all, Panel{filepath.Base(file) + ": " + p.Title, variables.Replace(t.Expr), t.LegendFormat, t.Instant})
			}
		}
	}
	if all == nil {
		return nil, fmt.Errorf("no panels in %s", dir)
	}
	return all, nil
}

// placeholders are labels of a legend, of which one is there if nothing lies between.
var placeholders = regexp.MustCompile(`(?:\{\{[^{}]+\}\})+`)

// CheckLegends returns an error if the legend leaves a label of a series empty, or is
// the same for two.
func (p Panel) CheckLegends(series []labels.Labels) error {
	if p.Legend == "__auto" { // Grafana writes all labels.
		return nil
	}
	seen := map[string]bool{}
	for _, s := range series {
		var blank string
		legend := placeholders.ReplaceAllStringFunc(p.Legend, func(names string) string {
			var value strings.Builder
			for name := range strings.SplitSeq(strings.Trim(names, "{}"), "}}{{") {
				value.WriteString(s.Get(strings.TrimSpace(name)))
			}
			if value.Len() == 0 {
				blank = names
			}
			return value.String()
		})
		switch {
		case blank != "":
			return fmt.Errorf("the legend has %s, which %s leaves empty", blank, s)
		case seen[legend]:
			return fmt.Errorf("two series have the legend %q", legend)
		}
		seen[legend] = true
	}
	return nil
}
