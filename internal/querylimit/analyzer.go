// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/promguard/promguard/internal/promqltext"
)

// Analyzer parses PromQL and remembers what came of it, because dashboards send
// the same text again and again. It is safe for concurrent use.
type Analyzer struct {
	parser             parser.Parser
	queries, selectors *textCache[*Query]
}

// NewAnalyzer returns an Analyzer that remembers about cacheBytes of queries; 0
// means none. Its parser has every feature on: it accepts more than a server
// with features off, and what such a server does not know it refuses itself. A
// feature flag never changes what a text means, only whether it is an error.
func NewAnalyzer(cacheBytes int) *Analyzer {
	return &Analyzer{
		parser: parser.NewParser(parser.Options{
			EnableExperimentalFunctions: true,
			EnableUnquotedUTF8Names:     true,
			EnableBinopFillModifiers:    true,
		}),
		queries:   newTextCache[*Query](cacheBytes * 3 / 4),
		selectors: newTextCache[*Query](cacheBytes / 4),
	}
}

// Expr parses an expression within the limits of text of p. If those refuse it,
// the Query is nil and the error too. The error is that of the parser, in
// Prometheus's words.
func (a *Analyzer) Expr(p *Policy, text string) (*Query, Refusals, error) {
	if q, ok := a.queries.get(text); ok {
		return q, p.checkCost(q.cost), nil
	}
	return a.parse(p, text)
}

func (a *Analyzer) parse(p *Policy, text string) (*Query, Refusals, error) {
	c, rs := p.measureText(text)
	if rs.Err() != nil {
		return nil, rs, nil
	}
	text = strings.Clone(text) // What is kept refers to it, not to the request.
	expr, err := a.parser.ParseExpr(text)
	if err != nil {
		return nil, rs, err
	}
	q := Analyze(text, expr)
	q.cost, q.parse = c, a.parser.ParseExpr
	a.queries.put(text, q, q.size())
	return q, rs, nil
}

// Selectors parses bare selectors, as in match[]; what it returns is as for Expr.
func (a *Analyzer) Selectors(p *Policy, texts []string) ([]*Query, Refusals, error) {
	var sum promqltext.Cost
	list := make([]*Query, len(texts))
	for i, text := range texts {
		if q, ok := a.selectors.get(text); ok {
			list[i] = q
			sum = sum.Plus(q.cost)
			continue
		}
		c, rs := p.measureText(text)
		if rs.Err() != nil {
			return nil, rs, nil
		}
		sum = sum.Plus(c)
		list[i] = &Query{cost: c}
		if rs := p.checkCost(sum); rs.Err() != nil {
			return nil, rs, nil // Measuring the others has its cost, too.
		}
	}
	rs := p.checkCost(sum)
	if rs.Err() != nil {
		return nil, rs, nil
	}
	for i, text := range texts {
		if list[i].selectors != nil {
			continue
		}
		text = strings.Clone(text) // As in Expr.
		ms, err := a.parser.ParseMetricSelector(text)
		if err != nil {
			return nil, rs, err
		}
		c := list[i].cost
		list[i] = selectorQuery(text, ms)
		list[i].cost = c
		a.selectors.put(text, list[i], list[i].size())
	}
	return list, rs, nil
}

// size estimates how many bytes a query holds. What a regular expression
// compiles into is most of it, if there is one.
func (q *Query) size() int {
	n := 400 + 150*q.cost.Operators
	for i := range q.selectors {
		n += 150
		for _, m := range q.selectors[i] {
			n += 150 + len(m.Name) + len(m.Value)
			if m.Type == labels.MatchRegexp || m.Type == labels.MatchNotRegexp {
				n += 2000 + 150*promqltext.InstructionsOf(m.Value)
			}
		}
	}
	return n
}

// OnlyEmpty reports whether every matcher of a bare selector is true of a series
// without the label, which Prometheus refuses.
func (q *Query) OnlyEmpty() bool {
	for i := range q.selectors {
		for _, m := range q.selectors[i] {
			if !m.Matches("") {
				return false
			}
		}
	}
	return true
}

// Fingerprints returns those of all queries.
func Fingerprints(queries []*Query) []string {
	list := make([]string, len(queries))
	for i, q := range queries {
		list[i] = q.Fingerprint
	}
	return list
}
