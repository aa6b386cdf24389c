// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package promql

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
)

// withReadShape returns the context of a selection whose account learns, before the
// first series is read, how often the evaluation holds the selector's points: a result
// that does not depend on the step is copied to each, and an operator holds its operand
// besides what it makes of it. The path leads to the selector, and the interval is that
// of the steps in which it is evaluated.
func withReadShape(ctx context.Context, s *parser.EvalStmt, path []parser.Node, interval time.Duration) context.Context {
	if storage.ReadAccountFrom(ctx) == nil {
		return ctx
	}
	shape := storage.ReadShape{Copies: 1}
	reduced := false // By an aggregation: what is left of it has fewer series.
	span := s.End.Sub(s.Start)
	for _, node := range slices.Backward(path) {
		if sub, ok := node.(*parser.SubqueryExpr); ok {
			span = sub.Range
			break
		}
		if reduced {
			continue
		}
		switch n := node.(type) {
		case *parser.StepInvariantExpr:
			if !isRange(n.Expr) {
				shape = storage.ReadShape{Copies: 1, Points: 1}
			}
		case *parser.BinaryExpr:
			shape.Copies = 2
		case *parser.Call:
			if !isRange(n.Args...) && n.Func.Name != "label_replace" && n.Func.Name != "label_join" {
				shape.Copies = 2
			}
		case *parser.AggregateExpr:
			reduced = true
		}
	}
	if shape.Points > 0 && interval > 0 {
		shape.Points += int64(span / interval)
	}
	return storage.WithReadShape(ctx, shape)
}

// isRange says whether one of the expressions has a range of samples.
func isRange(exprs ...parser.Expr) bool {
	return slices.ContainsFunc(exprs, func(e parser.Expr) bool { return e.Type() == parser.ValueTypeMatrix })
}
