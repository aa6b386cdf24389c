// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package promapi

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// Selector returns a selector of the series with one of the names and of the
// matchers.
func Selector(names []string, matchers ...*labels.Matcher) string {
	name := labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, names[0])
	if len(names) > 1 {
		name = labels.MustNewMatcher(labels.MatchRegexp, model.MetricNameLabel, OneOf(names))
	}
	terms := []string{name.String()}
	for _, m := range matchers {
		terms = append(terms, m.String())
	}
	return "{" + strings.Join(terms, ",") + "}"
}

// OneOf returns a regular expression of the texts.
func OneOf(texts []string) string {
	quoted := make([]string, 0, len(texts))
	for _, t := range texts {
		quoted = append(quoted, regexp.QuoteMeta(t))
	}
	return strings.Join(quoted, "|")
}

// LabelName writes a label's name as PromQL's by has it.
func LabelName(name string) string {
	if model.LegacyValidation.IsValidLabelName(name) {
		return name
	}
	return strconv.Quote(name)
}
