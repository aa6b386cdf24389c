// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"go.yaml.in/yaml/v3"
)

func isAdapter(doc *yaml.Node) bool {
	if field(doc, "resourceRules") != nil || field(doc, "externalRules") != nil {
		return true
	}
	for _, rule := range items(doc, "rules") {
		if field(rule, "seriesQuery") != nil {
			return true
		}
	}
	return false
}

// adapter reads the configuration of prometheus-adapter.
func (r *rules) adapter(doc *yaml.Node, place string) {
	prefix := strings.TrimPrefix(place+", ", ", ")
	for _, section := range []string{"rules", "externalRules"} {
		for i, rule := range items(doc, section) {
			r.adapterRule(rule, fmt.Sprintf("%s%s[%d] (line %d)", prefix, section, i, rule.Line))
		}
	}
	for _, resource := range []string{"cpu", "memory"} {
		for _, query := range []string{"containerQuery", "nodeQuery"} {
			if q := text(doc, "resourceRules", resource, query); q != "" {
				r.adapterQuery(fmt.Sprintf("%sresourceRules.%s.%s", prefix, resource, query), q, "")
			}
		}
	}
}

func (r *rules) adapterRule(rule *yaml.Node, place string) {
	query := text(rule, "seriesQuery")
	listing, err := parseListing(query, nil)
	if err != nil {
		r.problem(r.file, place+", seriesQuery", err)
		return
	}
	for _, filter := range items(rule, "seriesFilters") {
		for key, kind := range map[string]labels.MatchType{"is": labels.MatchRegexp, "isNot": labels.MatchNotRegexp} {
			pattern := text(filter, key)
			if pattern == "" {
				continue
			}
			m, err := labels.NewMatcher(kind, labels.MetricName, ".*(?:"+pattern+").*")
			if err != nil {
				r.problem(r.file, place+", seriesFilters", err)
				return
			}
			listing.Matchers = append(listing.Matchers, m)
		}
	}
	listing.Label = labels.MetricName
	r.Expressions = append(r.Expressions, Expression{
		File: r.file, Place: place + ", seriesQuery", Kind: KindAutoscaler, Text: query, Listing: listing,
	})
	// What the query reads beyond the series it is made from is in its own
	// text only; the series of the template are those of seriesQuery.
	name := ""
	for _, m := range listing.Matchers {
		if m.Name == labels.MetricName && m.Type == labels.MatchEqual {
			name = m.Value
		}
	}
	if q := text(rule, "metricsQuery"); q != "" && (name != "" || !strings.Contains(q, ".Series")) {
		r.adapterQuery(place+", metricsQuery", q, name)
	}
}

var adapterTemplate = regexp.MustCompile(`<<\s*(.*?)\s*>>`)

// adapterQuery parses a template of prometheus-adapter.
func (r *rules) adapterQuery(place, query, series string) {
	var unknown error
	expanded := adapterTemplate.ReplaceAllStringFunc(query, func(ref string) string {
		switch m := adapterTemplate.FindStringSubmatch(ref)[1]; m {
		case ".Series":
			return series
		case ".LabelMatchers":
			return Marker(0) + `=~".*"`
		case ".GroupBy":
			return Marker(1)
		case ".GroupBySlice":
			return Marker(1)
		default:
			if strings.HasPrefix(m, ".LabelValuesByName") || strings.HasPrefix(m, "index .LabelValuesByName") {
				return Marker(0)
			}
			unknown = fmt.Errorf("the template %s is not known", ref)
			return ""
		}
	})
	if unknown != nil {
		r.problem(r.file, place, unknown)
		return
	}
	expr, err := parseExpr(expanded)
	if err != nil {
		r.problem(r.file, place, err)
		return
	}
	e := Expression{File: r.file, Place: place, Kind: KindAutoscaler, Text: query}
	e.Queries = append(e.Queries, expr)
	r.Expressions = append(r.Expressions, e)
}

// horizontalPodAutoscaler reads the metrics of an HPA. They have the names that
// the adapter gives series, by default the series' own without _total or
// _seconds_total.
func (r *rules) horizontalPodAutoscaler(doc *yaml.Node, place string) {
	for i, metric := range items(doc, "spec", "metrics") {
		for _, kind := range []string{"pods", "object", "external"} {
			name := text(metric, kind, "metric", "name")
			if name == "" {
				name = text(metric, kind, "metricName")
			}
			if name == "" {
				continue
			}
			m := labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, regexp.QuoteMeta(name)+"(_total|_seconds_total)?")
			r.Expressions = append(r.Expressions, Expression{
				File: r.file, Place: fmt.Sprintf("%s, metrics[%d]", place, i), Kind: KindAutoscaler, Text: name,
				Listing: &Listing{Label: labels.MetricName, Matchers: []*labels.Matcher{m}},
			})
		}
	}
}

// scaledObject reads the triggers of KEDA that ask Prometheus.
func (r *rules) scaledObject(doc *yaml.Node, place string) {
	for i, trigger := range items(doc, "spec", "triggers") {
		if text(trigger, "type") != "prometheus" {
			continue
		}
		at := fmt.Sprintf("%s, triggers[%d] (line %d)", place, i, trigger.Line)
		query := text(trigger, "metadata", "query")
		if query == "" {
			r.problem(r.file, at, errors.New("has no query"))
			continue
		}
		r.expression(Expression{File: r.file, Place: at, Kind: KindAutoscaler, Text: query})
	}
}
