// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"errors"
	"fmt"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/promguard/promguard/internal/querylimit"
)

// newParser returns a parser with every feature on. It accepts more than a
// server with features off; what such a server does not know it refuses itself.
// A feature flag never changes what a text means, only whether it is an error.
func newParser() parser.Parser {
	return parser.NewParser(parser.Options{
		EnableExperimentalFunctions:  true,
		ExperimentalDurationExpr:     true,
		EnableExtendedRangeSelectors: true,
		EnableBinopFillModifiers:     true,
	})
}

// examine parses the PromQL of a request once and asks the policy about it. The
// refusals are those of limits in every mode; the error is that of malformed
// PromQL, in Prometheus's words.
func (p *Proxy) examine(q *request, policy *querylimit.Policy) (querylimit.Refusals, error) {
	switch q.endpoint.takes {
	case expression, selectorsOf:
		return p.examineQuery(q, policy)
	case matchList:
		return p.examineSelectors(q, policy, "match[]", q.all("match[]"))
	case matchTarget:
		if text := q.get("match_target"); text != "" {
			return p.examineSelectors(q, policy, "match_target", []string{text})
		}
	}
	return nil, nil
}

func (p *Proxy) examineQuery(q *request, policy *querylimit.Policy) (querylimit.Refusals, error) {
	text := q.get("query")
	rs := policy.CheckText(text)
	if err := rs.Err(); err != nil {
		return rs, nil
	}
	expr, err := p.parser.ParseExpr(text)
	if err != nil {
		return rs, q.malformed("query", err)
	}
	if q.endpoint.takes == selectorsOf {
		return append(rs, policy.CheckSelectors(expr)...), nil
	}
	return append(rs, policy.CheckExpr(expr)...), nil
}

var errEmptySelector = errors.New("match[] must contain at least one non-empty matcher")

func (p *Proxy) examineSelectors(q *request, policy *querylimit.Policy, param string, texts []string) (querylimit.Refusals, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	rs := policy.CheckText(texts...)
	if err := rs.Err(); err != nil {
		return rs, nil
	}
	sets, err := p.parser.ParseMetricSelectors(texts)
	if err != nil {
		return rs, q.malformed(param, err)
	}
	for _, ms := range sets {
		if param == "match[]" && matchesNothingSet(ms) {
			return rs, q.malformed(param, errEmptySelector)
		}
		if refused := policy.Check(ms); refused != nil {
			return append(rs, refused...), nil
		}
	}
	return rs, nil
}

// matchesNothingSet reports whether every matcher is true of an absent label.
func matchesNothingSet(ms []*labels.Matcher) bool {
	for _, m := range ms {
		if !m.Matches("") {
			return false
		}
	}
	return true
}

func (q *request) malformed(param string, err error) error {
	if q.endpoint.wrapsErrors {
		err = fmt.Errorf("invalid parameter %q: %w", param, err)
	}
	return badData(err)
}
