// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/promguard/promguard/internal/promqltext"
)

// Query is what the limits need to know of a parsed expression or selector. It
// does not depend on a policy nor on the time of evaluation, so that it can be
// kept and shared. It is immutable.
type Query struct {
	// Text is what was parsed.
	Text string
	// Fingerprint is the same for queries that differ in label values, numbers,
	// strings and durations only: 16 hexadecimal digits.
	Fingerprint string

	cost      promqltext.Cost
	selectors [][]*labels.Matcher
	// dynamic is set if what the query reads depends on the evaluation in more than a
	// sum: duration expressions and @.
	dynamic bool
	// expr must not be changed. Parse makes it again, for what depends on the evaluation.
	expr  parser.Expr
	parse func(string) (parser.Expr, error)
	// known is what was known last of the series of each selector.
	known atomic.Pointer[knownBounds]
	// unknown is what the walk did not understand.
	unknown error
}

// selectorQuery returns the Query of a bare selector, as in match[].
func selectorQuery(text string, ms []*labels.Matcher) *Query {
	var h fingerprint
	h.matchers(ms)
	return &Query{Text: text, Fingerprint: h.text(), selectors: [][]*labels.Matcher{ms}}
}

// Analyze returns the Query of an expression. It never fails: what it does not
// understand is refused when it is checked.
func Analyze(text string, expr parser.Expr) *Query {
	w := walker{query: &Query{Text: text, expr: expr}}
	w.query.unknown = parser.Walk(&w, expr, nil)
	w.query.Fingerprint = w.hash.text()
	return w.query
}

type walker struct {
	query *Query
	hash  fingerprint
}

// Visit implements parser.Visitor. It names every node type rather than trust a
// default, because parser.Walk panics on children of a type it does not know.
func (w *walker) Visit(node parser.Node, path []parser.Node) (parser.Visitor, error) {
	switch n := node.(type) {
	case nil:
		// Walk calls Visit(nil, nil) after the children of a node.
		if path != nil {
			return nil, fmt.Errorf("it has an empty %T", path[len(path)-1])
		}
		w.hash.word(")")
		return nil, nil
	case *parser.VectorSelector:
		w.selector(n)
		return nil, nil
	case *parser.MatrixSelector:
		w.query.dynamic = w.query.dynamic || n.RangeExpr != nil
		w.hash.word("[")
	case *parser.SubqueryExpr:
		w.subquery(n)
	case *parser.AggregateExpr:
		w.aggregation(n)
	case *parser.BinaryExpr:
		w.binary(n)
	case *parser.Call:
		w.hash.word(n.Func.Name)
	case *parser.NumberLiteral, *parser.StringLiteral:
		w.hash.word("?")
	case *parser.UnaryExpr:
		w.hash.word(n.Op.String())
	case *parser.ParenExpr, *parser.StepInvariantExpr, parser.Expressions, *parser.EvalStmt:
		w.hash.word("(")
	default:
		return nil, fmt.Errorf("it has a node of the unknown type %T", node)
	}
	return w, nil
}

func (w *walker) selector(n *parser.VectorSelector) {
	w.hash.matchers(n.LabelMatchers)
	w.query.dynamic = w.query.dynamic || n.OriginalOffsetExpr != nil || n.Timestamp != nil || n.StartOrEnd != 0
	w.query.selectors = append(w.query.selectors, n.LabelMatchers)
}

func (w *walker) subquery(n *parser.SubqueryExpr) {
	w.hash.word("[:")
	w.query.dynamic = w.query.dynamic || n.RangeExpr != nil || n.StepExpr != nil || n.OriginalOffsetExpr != nil || n.Timestamp != nil || n.StartOrEnd != 0
}

func (w *walker) aggregation(n *parser.AggregateExpr) {
	w.hash.word(n.Op.String())
	w.hash.flag(n.Without)
	w.hash.list(n.Grouping)
}

func (w *walker) binary(n *parser.BinaryExpr) {
	w.hash.word(n.Op.String())
	w.hash.flag(n.ReturnBool)
	m := n.VectorMatching
	if m == nil {
		return
	}
	w.hash.word(strconv.Itoa(int(m.Card)))
	w.hash.flag(m.On)
	w.hash.list(m.MatchingLabels)
	w.hash.list(m.Include)
}
