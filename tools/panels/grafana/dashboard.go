// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package grafana does what Grafana's server does between a panel and Prometheus:
// it fills in variables, chooses the step, asks, and makes data frames of the
// answer. It knows what the dashboards here use, and fails at what it does not know.
package grafana

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// Dashboard is what is read of a dashboard's JSON.
type Dashboard struct {
	UID        string `json:"uid"`
	Title      string `json:"title"`
	Templating struct {
		List []Variable `json:"list"`
	} `json:"templating"`
	Panels []Panel `json:"panels"`
}

// Variable is a variable of a dashboard.
type Variable struct {
	Name       string `json:"name"`
	Type       string `json:"type"`
	Definition string `json:"definition"`
	AllValue   string `json:"allValue"`
	Current    struct {
		Value string `json:"value"`
	} `json:"current"`
	IncludeAll bool `json:"includeAll"`
}

// Panel is a panel, or a row, which has no targets.
type Panel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	GridPos     struct {
		W int `json:"w"`
	} `json:"gridPos"`
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
		Overrides []struct {
			Properties []struct {
				ID string `json:"id"`
			} `json:"properties"`
		} `json:"overrides"`
	} `json:"fieldConfig"`
	Targets []Target `json:"targets"`
}

// HasUnit says whether the panel's values have a unit, all or those of an override.
func (p Panel) HasUnit() bool {
	if p.FieldConfig.Defaults.Unit != "" {
		return true
	}
	for _, o := range p.FieldConfig.Overrides {
		for _, property := range o.Properties {
			if property.ID == "unit" {
				return true
			}
		}
	}
	return false
}

// Target is a query of a panel.
type Target struct {
	RefID        string `json:"refId"`
	Expr         string `json:"expr"`
	LegendFormat string `json:"legendFormat"`
	Instant      bool   `json:"instant"`
	Format       string `json:"format"`
}

// Parse reads a dashboard's JSON.
func Parse(text []byte) (*Dashboard, error) {
	var d Dashboard
	return &d, json.Unmarshal(text, &d)
}

var (
	reference = regexp.MustCompile(`\$\{?(\w+)\}?`)
	template  = regexp.MustCompile(`\{\{\s*(.+?)\s*\}\}`)
	// together are templates without anything between: one of the labels is there.
	together = regexp.MustCompile(`(?:\{\{[^{}]+\}\})+`)
)

// fill replaces the variables of an expression.
func fill(expr string, values map[string]string) (string, error) {
	var unknown []string
	filled := reference.ReplaceAllStringFunc(expr, func(ref string) string {
		name := strings.Trim(ref, "${}")
		v, ok := values[name]
		if !ok {
			unknown = append(unknown, ref)
		}
		return v
	})
	if unknown != nil {
		return "", fmt.Errorf("unknown variables %q in %s", unknown, expr)
	}
	return filled, nil
}

// legend is the name of a series: the template with the values of the series'
// labels, or what Grafana chooses if it is to.
func legend(format, expr string, metric map[string]string) string {
	if format != "__auto" {
		return template.ReplaceAllStringFunc(format, func(ref string) string {
			return metric[template.FindStringSubmatch(ref)[1]]
		})
	}
	if len(metric) == 0 {
		return expr
	}
	return "" // The front end makes one of the labels.
}

// Blank is a part of the target's legend that a series leaves empty, if there is one.
func (t Target) Blank(metric map[string]string) string {
	for _, part := range together.FindAllString(t.LegendFormat, -1) {
		if legend(part, t.Expr, metric) == "" {
			return part
		}
	}
	return ""
}
