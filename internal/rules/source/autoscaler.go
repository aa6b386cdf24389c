// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

func isAdapter(doc *yaml.Node) bool {
	return field(doc, "resourceRules") != nil || field(doc, "externalRules") != nil ||
		slices.ContainsFunc(items(doc, "rules"), func(rule *yaml.Node) bool { return field(rule, "seriesQuery") != nil })
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
				r.adapterQuery(fmt.Sprintf("%sresourceRules.%s.%s", prefix, resource, query), q, nil)
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
	if q := text(rule, "metricsQuery"); q != "" {
		r.adapterQuery(place+", metricsQuery", q, listing.Matchers)
	}
}

var adapterTemplate = regexp.MustCompile(`<<\s*(.*?)\s*>>`)

// adapterSeries stands for the name of the series that a template is made from.
var adapterSeries = Marker(2)

// adapterQuery parses a template of prometheus-adapter. The series that it is
// made from are those that the matchers match.
func (r *rules) adapterQuery(place, query string, series []*labels.Matcher) {
	var unknown error
	expanded := adapterTemplate.ReplaceAllStringFunc(query, func(ref string) string {
		switch m := adapterTemplate.FindStringSubmatch(ref)[1]; m {
		case ".Series":
			return adapterSeries
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
	name := nameOf(series)
	if name != "" {
		expanded = strings.ReplaceAll(expanded, adapterSeries, name)
	}
	expr, err := Parse(expanded)
	if err != nil {
		r.problem(r.file, place, err)
		return
	}
	if name == "" {
		selectSeries(expr, series)
	}
	e := Expression{File: r.file, Place: place, Kind: KindAutoscaler, Text: query}
	e.Queries = append(e.Queries, expr)
	r.Expressions = append(r.Expressions, e)
}

// nameOf returns the one name that the matchers match, or "".
func nameOf(matchers []*labels.Matcher) string {
	for _, m := range matchers {
		if m.Name == labels.MetricName && m.Type == labels.MatchEqual {
			return m.Value
		}
	}
	return ""
}

// selectSeries lets the selectors of adapterSeries select what the matchers match.
// The adapter asks for the series one name after the other; to ask for all at once
// reads the same. Without matchers the name stays one that may be any.
func selectSeries(expr parser.Expr, series []*labels.Matcher) {
	if len(series) == 0 {
		return
	}
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		vs, ok := n.(*parser.VectorSelector)
		if !ok || nameOf(vs.LabelMatchers) != adapterSeries {
			return nil
		}
		others := slices.DeleteFunc(slices.Clone(vs.LabelMatchers), func(m *labels.Matcher) bool { return m.Name == labels.MetricName })
		vs.Name, vs.LabelMatchers = "", slices.Concat(series, others)
		return nil
	})
}

// horizontalPodAutoscaler reads the metrics of an HPA. They have the names that
// the adapter gives series, by default the series' own without _total or
// _seconds_total.
func (r *rules) horizontalPodAutoscaler(doc *yaml.Node, place string) {
	for i, metric := range items(doc, "spec", "metrics") {
		for _, kind := range []string{"pods", "object", "external"} {
			name := cmp.Or(text(metric, kind, "metric", "name"), text(metric, kind, "metricName"))
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
