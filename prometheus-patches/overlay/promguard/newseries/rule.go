// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package newseries

import (
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// metricRelabel is the part of a scrape_config that drops series.
type metricRelabel struct {
	Rules []dropRule `yaml:"metric_relabel_configs,flow"`
}

type dropRule struct {
	SourceLabels []string `yaml:"source_labels,flow"`
	Separator    string   `yaml:"separator,omitempty"`
	Regex        string   `yaml:"regex"`
	Action       string   `yaml:"action"`
}

// separators are tried in this order; the first is Prometheus's default.
var separators = []string{";", "|", "\t", "\n", "\x01"}

// relabelRule returns a line of YAML that drops the series that have these values, and the
// blamed label if there is one; or nothing if that would be all of a job or a
// namespace, or if a value is too long to be told from others. No other series is
// dropped, unless a job or a namespace has the separator in its name.
func relabelRule(by *[dimensions]value, blamed string) string {
	if by[metric].hash == 0 && blamed == "" {
		return ""
	}
	r := dropRule{Action: "drop"}
	var values []string
	for d, v := range by {
		if v.cut {
			return ""
		}
		if v.hash != 0 {
			r.SourceLabels = append(r.SourceLabels, dimensionLabels[d])
			values = append(values, v.text)
		}
	}
	separator := ""
	for _, s := range separators {
		if !strings.Contains(strings.Join(values, ""), s) {
			separator = s
			break
		}
	}
	if separator == "" {
		return ""
	}
	if separator != separators[0] {
		r.Separator = separator
	}
	r.Regex = regexp.QuoteMeta(strings.Join(values, separator))
	if blamed != "" {
		r.SourceLabels = append(r.SourceLabels, blamed)
		r.Regex += regexp.QuoteMeta(separator) + ".+"
	}
	return line(metricRelabel{[]dropRule{r}})
}

// Head is what is asked of tsdb.Head.
type Head interface {
	// SeriesWith returns how many series have a label.
	SeriesWith(name, value string) int
}

// SetHead lets the Tracker tell limits.
func (t *Tracker) SetHead(h Head) { t.head.Store(&h) }

// seriesLimits is a file of --guard.series-limits.
type seriesLimits struct {
	Limits []seriesLimit `yaml:"limits,flow"`
}

type seriesLimit struct {
	Label     string `yaml:"label"`
	Value     string `yaml:"value"`
	MaxSeries int    `yaml:"max_series"`
	Mode      string `yaml:"mode"`
}

// limit returns a line of YAML that holds what has the first of these values to the
// series that it has.
func (t *Tracker) limit(by *[dimensions]value) string {
	h := t.head.Load()
	if h == nil {
		return ""
	}
	for d, v := range by {
		if v.hash == 0 {
			continue
		}
		if v.cut {
			return ""
		}
		name := dimensionLabels[d]
		return line(seriesLimits{[]seriesLimit{{name, v.text, max(1, (*h).SeriesWith(name, v.text)), "enforce"}}})
	}
	return ""
}

func line(v any) string {
	out, err := yaml.Marshal(v)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
