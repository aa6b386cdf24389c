// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package rulecheck

import (
	"fmt"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promguard/promguard/internal/rulecheck/source"
)

// selectorText writes matchers as a selector, with "..." for variables.
func selectorText(matchers []*labels.Matcher) string {
	name := ""
	var terms []string
	for _, m := range matchers {
		value := strings.Join(source.SplitMarkers(m.Value), "...")
		switch {
		case m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual && name == "" && value != "":
			name = value
		case source.HasMarker(m.Name):
			terms = append(terms, "...")
		default:
			terms = append(terms, fmt.Sprintf("%s%s%q", m.Name, m.Type, value))
		}
	}
	if len(terms) == 0 && name != "" {
		return name
	}
	return name + "{" + strings.Join(terms, ",") + "}"
}

// seriesText writes label values as a series.
func seriesText(names, values []string) string {
	name := ""
	var terms []string
	for i, n := range names {
		if n == model.MetricNameLabel {
			name = values[i]
			continue
		}
		terms = append(terms, fmt.Sprintf("%s=%q", n, values[i]))
	}
	if len(terms) == 0 {
		return name
	}
	return name + "{" + strings.Join(terms, ",") + "}"
}
