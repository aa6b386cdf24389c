// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package shard decides which rules may be evaluated in each of several servers that
// share the targets among them by address.
//
// A rule may if the rows of all shards together are the rows of one server that has
// all targets, on any data. Rows that are equal in the label instance are taken to be
// of one address, hence of one shard. The decision errs on one side: a rule that may
// not run in a shard may have got there by values that never occur.
package shard

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/promguard/promguard/internal/rules/source"
)

// Result says whether a rule may run in a shard.
type Result struct {
	Expression source.Expression
	// Why says why it may not, or is empty.
	Why string
}

// rows says where the rows of an expression are.
type rows struct {
	// everywhere: every shard has those of the whole.
	everywhere bool
	// instance: each has that of the target it comes from.
	instance bool
	// job: all come from the one target of this job, if it is set.
	job string
	// why the shards together do not have those of the whole, if they do not.
	why string
}

func (r rows) local() bool { return r.instance || r.job != "" }

func spread(format string, args ...any) rows { return rows{why: fmt.Sprintf(format, args...)} }

// checker finds where rows are.
type checker struct {
	// single has the jobs with one target.
	single map[string]bool
	// recorded are the rules by what they give to others, and found what is known
	// of them; a rule that is being looked at has an entry without rows.
	recorded map[string][]*source.Expression
	found    map[*source.Expression]*rows
}

// Check returns a result for each rule among the expressions, and for each query of
// an alert's template. Of the jobs in single, all series come from one address.
func Check(exprs []source.Expression, single []string) []Result {
	c := checker{single: map[string]bool{}, recorded: map[string][]*source.Expression{}, found: map[*source.Expression]*rows{}}
	for _, job := range single {
		c.single[job] = true
	}
	for i := range exprs {
		e := &exprs[i]
		switch {
		case e.Record != "":
			c.recorded[e.Record] = append(c.recorded[e.Record], e)
		case e.Alert != "":
			c.recorded["ALERTS"] = append(c.recorded["ALERTS"], e)
			c.recorded["ALERTS_FOR_STATE"] = append(c.recorded["ALERTS_FOR_STATE"], e)
		}
	}
	var out []Result
	for i := range exprs {
		e := &exprs[i]
		if e.Record != "" || e.Alert != "" || e.Kind == source.KindAnnotation {
			out = append(out, Result{Expression: *e, Why: c.rule(e).why})
		}
	}
	return out
}

// rule returns where the rows are that the rule records.
func (c *checker) rule(e *source.Expression) rows {
	if known, ok := c.found[e]; ok {
		if known == nil {
			return spread("it reads itself, or rules read each other in a circle")
		}
		return *known
	}
	c.found[e] = nil
	out := c.expr(e.Queries[0])
	if _, ok := e.Labels[model.InstanceLabel]; ok {
		out.instance = false
	}
	c.found[e] = &out
	return out
}

func (c *checker) expr(e parser.Expr) rows {
	e = source.Bare(e)
	switch e := e.(type) {
	case *parser.NumberLiteral, *parser.StringLiteral:
		return rows{everywhere: true}
	case *parser.VectorSelector:
		return c.selector(e)
	case *parser.MatrixSelector:
		return c.expr(e.VectorSelector)
	case *parser.SubqueryExpr:
		return c.expr(e.Expr)
	case *parser.UnaryExpr:
		return c.expr(e.Expr)
	case *parser.Call:
		return c.call(e)
	case *parser.AggregateExpr:
		return c.aggregate(e)
	case *parser.BinaryExpr:
		return c.binary(e)
	}
	return spread("%T is not known to this check", e)
}

// selector returns where selected series are. A name that rules record is not scraped.
func (c *checker) selector(vs *parser.VectorSelector) rows {
	scraped := rows{instance: true}
	name := ""
	for _, m := range vs.LabelMatchers {
		if m.Type != labels.MatchEqual {
			continue
		}
		switch {
		case m.Name == model.MetricNameLabel:
			name = m.Value
		case m.Name == model.JobLabel && c.single[m.Value]:
			scraped.job = m.Value
		}
	}
	all := []rows{scraped}
	if len(c.recorded[name]) > 0 {
		all = nil
	}
	names := []string{name}
	if name == "" {
		names = slices.Sorted(maps.Keys(c.recorded))
	}
	for _, recorded := range names {
		for _, e := range c.recorded[recorded] {
			if selects(vs.LabelMatchers, recorded, e) {
				all = append(all, c.rule(e))
			}
		}
	}
	if len(all) == 0 {
		return scraped
	}
	if slices.ContainsFunc(all, func(r rows) bool { return r.why != "" }) {
		return spread("%s is recorded over all shards, so no shard has it", vs)
	}
	out := all[0]
	for _, r := range all {
		if r.everywhere != out.everywhere {
			return spread("%s selects what every shard has beside what one has", vs)
		}
		out = either(out, r)
	}
	return out
}

// selects reports whether the matchers may select what the rule records.
func selects(matchers []*labels.Matcher, name string, e *source.Expression) bool {
	return !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool {
		value, ok := e.Labels[m.Name]
		switch {
		case m.Name == model.MetricNameLabel:
			value, ok = name, true
		case m.Name == model.AlertNameLabel && e.Alert != "":
			value, ok = e.Alert, true
		}
		return ok && !source.HasMarker(value) && !m.Matches(value)
	})
}

// either returns where rows are that are l's or r's.
func either(l, r rows) rows {
	out := rows{everywhere: l.everywhere && r.everywhere, instance: l.instance && r.instance}
	if l.job == r.job {
		out.job = l.job
	}
	return out
}

func (c *checker) call(e *parser.Call) rows {
	if e.Func.Name == "info" {
		return c.info(e)
	}
	in := rows{everywhere: true}
	for _, arg := range e.Args {
		r := c.expr(arg)
		if r.why != "" {
			return r
		}
		if !r.everywhere {
			in = r // At most one is: a scalar of some rows has been refused.
		}
	}
	switch e.Func.Name {
	case "absent", "absent_over_time", "scalar":
		if !in.everywhere {
			return spread("%s() finds nothing in shards that have nothing of %s", e.Func.Name, e.Args[0])
		}
	case "histogram_quantile", "histogram_quantiles", "histogram_fraction":
		if !in.everywhere && !in.local() {
			return spread("%s() takes buckets of several shards together, as it does not tell them apart by instance", e.Func.Name)
		}
	}
	if slices.Contains([]string{"label_replace", "label_join", "histogram_quantiles"}, e.Func.Name) && text(e.Args[1]) == model.InstanceLabel {
		in.instance = false
	}
	return in
}

// info adds labels of other series, of target_info if the second argument has no name.
func (c *checker) info(e *parser.Call) rows {
	in := c.expr(e.Args[0])
	added := rows{instance: true}
	if len(e.Args) > 1 {
		vs, ok := e.Args[1].(*parser.VectorSelector)
		if ok && slices.ContainsFunc(vs.LabelMatchers, func(m *labels.Matcher) bool { return m.Name == model.MetricNameLabel }) {
			added = c.selector(vs)
		}
	}
	switch {
	case in.why != "":
		return in
	case added.why != "":
		return added
	case !in.instance || !added.instance:
		return spread("info() looks for series of other shards, as rows of %s lack the instance", e.Args[0])
	}
	return in
}

// text returns the literal, which may be in parentheses.
func text(e parser.Expr) string {
	if s, ok := source.Bare(e).(*parser.StringLiteral); ok {
		return s.Val
	}
	return ""
}

func (c *checker) aggregate(e *parser.AggregateExpr) rows {
	in := c.expr(e.Expr)
	if in.why != "" {
		return in
	}
	if e.Param != nil {
		if p := c.expr(e.Param); p.why != "" {
			return p
		}
	}
	if in.everywhere {
		return in
	}
	if e.Op == parser.COUNT_VALUES && text(e.Param) == model.InstanceLabel {
		in.instance = false // Overwritten before rows are counted.
	}
	kept := in.instance && slices.Contains(e.Grouping, model.InstanceLabel) != e.Without
	if !kept && in.job == "" {
		return spread("%s takes rows of several shards together, as it does not tell them apart by instance", strings.TrimSpace(e.ShortString()))
	}
	if slices.Contains([]parser.ItemType{parser.TOPK, parser.BOTTOMK, parser.LIMITK, parser.LIMIT_RATIO}, e.Op) {
		kept = in.instance
	}
	return rows{instance: kept, job: in.job}
}

func (c *checker) binary(e *parser.BinaryExpr) rows {
	l, r := c.expr(e.LHS), c.expr(e.RHS)
	switch {
	case l.why != "":
		return l
	case r.why != "":
		return r
	case l.everywhere && r.everywhere:
		return l
	case e.LHS.Type() == parser.ValueTypeScalar:
		return r
	case e.RHS.Type() == parser.ValueTypeScalar:
		return l
	}
	m := e.VectorMatching
	byInstance := slices.Contains(m.MatchingLabels, model.InstanceLabel) == m.On
	filled := m.FillValues.LHS != nil || m.FillValues.RHS != nil
	switch {
	case l.everywhere && (e.Op.IsSetOperator() || filled), r.everywhere && (e.Op == parser.LOR || filled):
		return spread("%s keeps rows that every shard has where the other side has none", e.ShortString())
	case !l.everywhere && !r.everywhere && (!byInstance || !l.instance || !r.instance) && (l.job == "" || l.job != r.job):
		return spread("%s looks for partners in other shards, as it does not match by instance", e.ShortString())
	}
	switch {
	case e.Op == parser.LOR || filled:
		return either(l, r)
	case e.Op == parser.LUNLESS:
		return l
	}
	out := rows{job: cmp.Or(l.job, r.job), instance: byInstance && (l.instance || r.instance)}
	overwritten := slices.Contains(m.Include, model.InstanceLabel)
	switch m.Card {
	case parser.CardManyToOne:
		out.instance = out.instance || l.instance && !overwritten
	case parser.CardOneToMany:
		out.instance = out.instance || r.instance && !overwritten
	case parser.CardManyToMany: // and
		out.instance = l.instance
	}
	return out
}
