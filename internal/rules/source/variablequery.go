// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// Grafana's grammar of a variable's query.
var (
	labelValuesQuery = regexp.MustCompile(`(?s)^label_values\((?:(.+),\s*)?([a-zA-Z_$\[{][\w.:$\[\]{}]*)\s*\)\s*$`)
	labelNamesQuery  = regexp.MustCompile(`(?s)^label_names\((.*)\)\s*$`)
	metricsQuery     = regexp.MustCompile(`(?s)^metrics\((.+)\)\s*$`)
	queryResultQuery = regexp.MustCompile(`(?s)^query_result\((.+)\)\s*$`)
)

// parseVariableQuery parses the query of a dashboard's variable. Exactly one of
// the results is set, or the error.
func parseVariableQuery(text string, vars []variable) ([]parser.Expr, *Listing, error) {
	text = strings.TrimSpace(text)
	if m := queryResultQuery.FindStringSubmatch(text); m != nil {
		exprs, err := parseTemplate(m[1], vars)
		return exprs, nil, err
	}
	if m := labelValuesQuery.FindStringSubmatch(text); m != nil {
		l, err := parseListing(m[1], vars)
		if err != nil {
			return nil, nil, err
		}
		l.Label = m[2]
		return nil, l, nil
	}
	if m := labelNamesQuery.FindStringSubmatch(text); m != nil {
		l, err := parseListing(m[1], vars)
		return nil, l, err
	}
	if m := metricsQuery.FindStringSubmatch(text); m != nil {
		l, err := parseMetrics(m[1], vars)
		return nil, l, err
	}
	if strings.HasPrefix(text, "label_values(") {
		return nil, nil, errors.New("label_values needs (label) or (selector, label)")
	}
	l, err := parseListing(text, vars)
	return nil, l, err
}

// parseListing parses a selector; no text means every series.
func parseListing(text string, vars []variable) (*Listing, error) {
	if strings.TrimSpace(text) == "" {
		return &Listing{}, nil
	}
	exprs, err := parseTemplate(strings.TrimSpace(text), vars)
	if err != nil {
		// A selector of everything is none that the parser takes.
		if strings.TrimSpace(text) == "{}" {
			return &Listing{}, nil
		}
		return nil, err
	}
	if len(exprs) > 1 {
		// Any of several metrics: all that they have in common is taken.
		return &Listing{Matchers: []*labels.Matcher{anyName()}}, nil
	}
	selector, ok := exprs[0].(*parser.VectorSelector)
	if !ok {
		if _, ok := exprs[0].(*parser.NumberLiteral); ok {
			return &Listing{Matchers: []*labels.Matcher{anyName()}}, nil
		}
		return nil, fmt.Errorf("%q is not a series selector", text)
	}
	return &Listing{Matchers: selector.LabelMatchers}, nil
}

// anyName matches the name of a metric that a variable gives.
func anyName() *labels.Matcher {
	return labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, Marker(0))
}

// parseMetrics parses the regex of metrics(), which finds names anywhere.
func parseMetrics(pattern string, vars []variable) (*Listing, error) {
	pattern = strings.Trim(strings.TrimSpace(pattern), `"'`)
	s := scanner{text: pattern, vars: vars, quote: '"'}
	var text strings.Builder
	for _, part := range s.scan() {
		text.WriteString(part.choices[0])
	}
	if HasMarker(text.String()) {
		return &Listing{Label: labels.MetricName, Matchers: []*labels.Matcher{anyName()}}, nil
	}
	m, err := labels.NewMatcher(labels.MatchRegexp, labels.MetricName, ".*(?:"+text.String()+").*")
	if err != nil {
		return nil, fmt.Errorf("metrics(): the regex does not compile: %w", err)
	}
	return &Listing{Label: labels.MetricName, Matchers: []*labels.Matcher{m}}, nil
}
