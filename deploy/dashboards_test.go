// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
)

// drawn is a panel, as Grafana draws it.
type drawn struct {
	place       string
	Type        string
	Title       string
	Description string
	GridPos     struct{ W int }
	FieldConfig struct {
		Defaults struct {
			Unit       string
			Min        *float64
			Decimals   *int
			Thresholds struct{ Steps []any }
		}
		Overrides []struct {
			Matcher    struct{ Options string }
			Properties []struct {
				ID    string
				Value any
			}
		}
	}
	Options struct {
		Legend        struct{ Calcs []string }
		ReduceOptions struct{ Calcs []string }
		SortBy        []struct{ DisplayName string }
	}
	Transformations []struct {
		Options struct {
			ExcludeByName map[string]bool
			RenameByName  map[string]string
		}
	}
	Targets []target
}

type target struct {
	Expr         string
	LegendFormat string
	Instant      bool
	parsed       parser.Expr
}

// property returns what an override sets.
func (p drawn) property(id string) any {
	for _, o := range p.FieldConfig.Overrides {
		for _, property := range o.Properties {
			if property.ID == id {
				return property.Value
			}
		}
	}
	return nil
}

// unit returns that of the values, and "" if they are not shown.
func (p drawn) unit() string {
	if p.Type == "table" {
		unit, _ := p.property("unit").(string)
		return unit
	}
	return p.FieldConfig.Defaults.Unit
}

// whole says whether the values are shown without decimals.
func (p drawn) whole() bool {
	if p.Type == "table" {
		return p.property("decimals") == 0.
	}
	return p.FieldConfig.Defaults.Decimals != nil && *p.FieldConfig.Defaults.Decimals == 0
}

// allDrawn returns every panel that asks something.
func allDrawn(t *testing.T) []drawn {
	t.Helper()
	files, err := filepath.Glob(dashboards + "/*.json")
	require.NoError(t, err)
	var all []drawn
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var dashboard struct{ Panels []drawn }
		require.NoError(t, json.Unmarshal(text, &dashboard))
		for _, p := range dashboard.Panels {
			if p.Type == "row" {
				continue
			}
			p.place = filepath.Base(file) + ": " + p.Title
			for i := range p.Targets {
				p.Targets[i].parsed = parse(t, strings.ReplaceAll(p.Targets[i].Expr, "$__rate_interval", "5m"))
			}
			all = append(all, p)
		}
	}
	require.NotEmpty(t, all)
	return all
}

func parse(t *testing.T, expr string) parser.Expr {
	t.Helper()
	e, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	require.NoError(t, err, expr)
	return e
}

var runbook = regexp.MustCompile(`\[Runbook\]\(.*/docs/alerts\.md#([a-z]+)\)`)

func TestEveryPanelSaysWhatItShowsAndARedOneWhatToDo(t *testing.T) {
	known := map[string]bool{}
	for _, a := range alerts(t) {
		known[strings.ToLower(a.Alert)] = true
	}
	for _, p := range allDrawn(t) {
		require.NotEmpty(t, strings.TrimSpace(runbook.ReplaceAllString(p.Description, "")), p.place)
		link := runbook.FindStringSubmatch(p.Description)
		if link != nil {
			require.True(t, known[link[1]], "%s: %s", p.place, link[0])
		}
		if len(p.FieldConfig.Defaults.Thresholds.Steps) > 1 && !strings.Contains(p.Description, "the dashboard ") {
			require.NotNil(t, link, "%s: a color without a runbook", p.place)
		}
	}
}

// Heads are words: neither the names of labels nor "Value".
func TestColumnsOfTablesAreNamed(t *testing.T) {
	for _, p := range allDrawn(t) {
		if p.Type != "table" {
			continue
		}
		require.Len(t, p.Transformations, 1, p.place)
		organize := p.Transformations[0].Options
		want := slices.Collect(maps.Keys(identity(t, p.Targets[0].parsed)))
		if !organize.ExcludeByName["Value"] {
			want = append(want, "Value")
			require.NotEmpty(t, p.unit(), p.place)
			require.Equal(t, organize.RenameByName["Value"], p.FieldConfig.Overrides[0].Matcher.Options, p.place)
		}
		require.ElementsMatch(t, want, slices.Collect(maps.Keys(organize.RenameByName)), p.place)
		for _, head := range organize.RenameByName {
			require.Regexp(t, `^[A-Z][A-Za-z ]+$`, head, p.place)
			require.NotEqual(t, "Value", head, p.place)
		}
		require.Len(t, p.Options.SortBy, 1, p.place)
		require.Contains(t, slices.Collect(maps.Values(organize.RenameByName)), p.Options.SortBy[0].DisplayName, p.place)
	}
}

var inLegend = regexp.MustCompile(`\{\{(\w+)\}\}`)

func TestLegendsTellSeriesApart(t *testing.T) {
	for _, p := range allDrawn(t) {
		seen := map[string]bool{}
		for _, q := range p.Targets {
			ids := identity(t, q.parsed)
			switch p.Type {
			case "stat":
				require.Empty(t, ids, "%s: more than one figure", p.place)
				continue
			case "table":
				continue
			}
			require.False(t, seen[q.LegendFormat], "%s: two queries called %s", p.place, q.LegendFormat)
			seen[q.LegendFormat] = true
			named := map[string]bool{}
			for _, l := range inLegend.FindAllStringSubmatch(q.LegendFormat, -1) {
				named[l[1]] = true
			}
			if ids[exporter] {
				require.True(t, named["instance"] || named["pod"], "%s: %q does not say whose", p.place, q.LegendFormat)
				continue
			}
			require.Equal(t, ids, named, "%s: %q", p.place, q.LegendFormat)
		}
	}
}

// A legend is as wide as its panel, and the table of one cuts names off: at 1,600
// pixels a third of a dashboard is what two labels and two values need.
func TestLegendsHaveRoomAndShowWhatIsAlive(t *testing.T) {
	for _, p := range allDrawn(t) {
		if p.Type != "timeseries" {
			require.True(t, p.Targets[0].Instant, "%s: a figure of the past", p.place)
			continue
		}
		require.NotNil(t, p.FieldConfig.Defaults.Min, p.place)
		require.Zero(t, *p.FieldConfig.Defaults.Min, p.place)
		// lastNotNull would be of a series that ended hours ago.
		require.Equal(t, []string{"last", "max"}, p.Options.Legend.Calcs, p.place)
		for _, q := range p.Targets {
			least := 8
			if len(inLegend.FindAllString(q.LegendFormat, -1)) > 2 {
				least = 12
			}
			require.GreaterOrEqual(t, p.GridPos.W, least, "%s: %s", p.place, q.LegendFormat)
		}
	}
}

// limitOfOne are metrics of what one process may have or do.
var limitOfOne = regexp.MustCompile(`_(concurrent_max|budget_bytes|gomemlimit_bytes|quota_backend_bytes)$`)

func TestNoSumStandsBesideTheLimitOfOne(t *testing.T) {
	for _, p := range allDrawn(t) {
		over := map[string]bool{}
		for _, q := range p.Targets {
			over[aggregated(t, q.parsed)] = true
			parser.Inspect(q.parsed, func(n parser.Node, path []parser.Node) error {
				s, ok := n.(*parser.VectorSelector)
				if !ok || !limitOfOne.MatchString(name(s.LabelMatchers)) {
					return nil
				}
				for _, above := range slices.Backward(path) {
					if b, ok := above.(*parser.BinaryExpr); ok && b.Op == parser.DIV {
						break
					}
					a, ok := above.(*parser.AggregateExpr)
					require.False(t, ok && a.Op != parser.COUNT, "%s: %s", p.place, q.Expr)
				}
				return nil
			})
		}
		require.Len(t, over, 1, "%s: its queries are over different things", p.place)
	}
}

func TestUnitsAreThoseOfTheValues(t *testing.T) {
	for _, p := range allDrawn(t) {
		unit := p.unit()
		if unit == "" {
			require.Equal(t, "table", p.Type, p.place)
			continue
		}
		require.Equal(t, unit == "locale", p.whole(), "%s: numbers of things are whole, others are not", p.place)
		for _, q := range p.Targets {
			require.Regexp(t, "^("+dimension(t, q.parsed)+")$", unit, "%s: %s", p.place, q.Expr)
		}
	}
}

// increase() reckons what was before the first sample and after the last: of 10
// it makes 10.1, and of 1 in two minutes 1.3.
func TestIncreasesAreRoundedAndOverLongEnough(t *testing.T) {
	found := 0
	for _, p := range allDrawn(t) {
		for _, q := range p.Targets {
			parser.Inspect(q.parsed, func(n parser.Node, path []parser.Node) error {
				c, ok := n.(*parser.Call)
				if !ok || c.Func.Name != "increase" {
					return nil
				}
				found++
				require.True(t, slices.ContainsFunc(path, func(n parser.Node) bool {
					above, ok := n.(*parser.Call)
					return ok && above.Func.Name == "round"
				}), "%s: %s", p.place, q.Expr)
				require.NotContains(t, q.Expr, "$__rate_interval", p.place)
				require.GreaterOrEqual(t, c.Args[0].(*parser.MatrixSelector).Range, 10*time.Minute, p.place)
				return nil
			})
		}
	}
	require.NotZero(t, found)
}

// A rate that is 0 for now divides into NaN, which is what a figure or a table shows.
func TestNoFigureIsDividedByARateOfNothing(t *testing.T) {
	found := 0
	for _, p := range allDrawn(t) {
		for _, q := range p.Targets {
			parser.Inspect(q.parsed, func(n parser.Node, _ []parser.Node) error {
				b, ok := n.(*parser.BinaryExpr)
				if !ok || !q.Instant || b.Op != parser.DIV || !strings.Contains(b.RHS.String(), "rate(") {
					return nil
				}
				found++
				require.Regexp(t, `> 0\)$`, b.RHS.String(), "%s: %s", p.place, q.Expr)
				return nil
			})
		}
	}
	require.NotZero(t, found)
}

// exporter stands for what tells the targets of a job apart: an instance, or a pod.
const exporter = "instance or pod"

// identity returns the labels by which the series of an expression differ, as far as it
// says so: of what is not aggregated, whose they are.
func identity(t *testing.T, e parser.Expr) map[string]bool {
	t.Helper()
	switch e := e.(type) {
	case *parser.ParenExpr:
		return identity(t, e.Expr)
	case *parser.SubqueryExpr:
		return identity(t, e.Expr)
	case *parser.MatrixSelector:
		return identity(t, e.VectorSelector)
	case *parser.AggregateExpr:
		if choosing(e) {
			return identity(t, e.Expr)
		}
		require.False(t, e.Without, e)
		ids := map[string]bool{}
		for _, l := range e.Grouping {
			ids[l] = true
		}
		return ids
	case *parser.BinaryExpr:
		ids := identity(t, value(e))
		if e.Op == parser.LOR {
			maps.Copy(ids, identity(t, e.RHS))
		}
		return ids
	case *parser.Call:
		ids := map[string]bool{}
		for _, a := range e.Args {
			if a.Type() == parser.ValueTypeVector || a.Type() == parser.ValueTypeMatrix {
				maps.Copy(ids, identity(t, a))
			}
		}
		switch e.Func.Name {
		case "histogram_quantile":
			delete(ids, "le")
		case "label_join", "label_replace":
			text := func(i int) string { return e.Args[i].(*parser.StringLiteral).Val }
			sources := []string{text(3)}
			if e.Func.Name == "label_join" {
				sources = sources[:0]
				for i := range e.Args[3:] {
					sources = append(sources, text(3+i))
				}
			}
			// The new label says what its sources say.
			for _, s := range sources {
				delete(ids, s)
			}
			ids[text(1)] = true
		}
		return ids
	case *parser.VectorSelector:
		r, ok := record(t, name(e.LabelMatchers))
		if !ok {
			return map[string]bool{exporter: true}
		}
		ids := identity(t, parse(t, r.Expr))
		for l := range r.Labels {
			ids[l] = true
		}
		for _, m := range e.LabelMatchers {
			if m.Type == labels.MatchEqual {
				delete(ids, m.Name)
			}
		}
		return ids
	}
	return map[string]bool{}
}

// choosing says whether an aggregation leaves the series that it chooses as they are.
func choosing(a *parser.AggregateExpr) bool {
	return a.Op == parser.TOPK || a.Op == parser.BOTTOMK || a.Op == parser.LIMITK
}

// value returns the side of a binary expression that its values are of.
func value(b *parser.BinaryExpr) parser.Expr {
	if b.LHS.Type() == parser.ValueTypeScalar {
		return b.RHS
	}
	return b.LHS
}

// record returns a recording rule by its name.
func record(t *testing.T, name string) (rule, bool) {
	t.Helper()
	rules := allRules(t)
	i := slices.IndexFunc(rules, func(r rule) bool { return r.Record == name })
	if i < 0 {
		return rule{}, false
	}
	return rules[i], true
}

// outermost returns the first node that is not about which series there are, in which
// order or how they are called, but about their values.
func outermost(t *testing.T, e parser.Expr) parser.Expr {
	t.Helper()
	switch n := e.(type) {
	case *parser.ParenExpr:
		return outermost(t, n.Expr)
	case *parser.AggregateExpr:
		if choosing(n) {
			return outermost(t, n.Expr)
		}
	case *parser.BinaryExpr:
		if n.Op.IsSetOperator() || n.Op.IsComparisonOperator() {
			return outermost(t, value(n))
		}
	case *parser.Call:
		switch n.Func.Name {
		case "round", "ceil", "clamp_min", "label_replace", "label_join":
			return outermost(t, n.Args[0])
		}
	case *parser.VectorSelector:
		if r, ok := record(t, name(n.LabelMatchers)); ok {
			return outermost(t, parse(t, r.Expr))
		}
	}
	return e
}

// aggregated returns what the values of an expression are over: the targets one by one,
// or an operation over all.
func aggregated(t *testing.T, e parser.Expr) string {
	t.Helper()
	switch e := outermost(t, e).(type) {
	case *parser.AggregateExpr:
		if slices.Contains(e.Grouping, "instance") || slices.Contains(e.Grouping, "pod") {
			return exporter
		}
		return e.Op.String()
	case *parser.BinaryExpr:
		return aggregated(t, value(e))
	case *parser.Call:
		return aggregated(t, e.Args[len(e.Args)-1])
	}
	return exporter
}

const perSecond = "reqps|ops|cps|eps|pps"

// dimension returns the units that fit the values of an expression.
func dimension(t *testing.T, e parser.Expr) string {
	t.Helper()
	switch e := outermost(t, e).(type) {
	case *parser.AggregateExpr:
		if e.Op == parser.COUNT {
			return "locale"
		}
		return dimension(t, e.Expr)
	case *parser.BinaryExpr:
		switch {
		case e.Op == parser.DIV:
			return "percentunit|s"
		case e.Op == parser.MUL && e.RHS.Type() == parser.ValueTypeScalar && dimension(t, e.LHS) == "Bps":
			return "bytes" // Rates, once for each of their seconds.
		case value(e) == e.RHS: // 1 - a share
			return dimension(t, e.RHS)
		}
		return dimension(t, e.LHS)
	case *parser.Call:
		switch e.Func.Name {
		case "increase", "changes":
			return "locale"
		case "rate":
			switch metric := name(e.Args[0].(*parser.MatrixSelector).VectorSelector.(*parser.VectorSelector).LabelMatchers); {
			case strings.HasSuffix(metric, "_seconds_total"), strings.HasSuffix(metric, "_seconds_sum"):
				return "short"
			case strings.Contains(metric, "bytes"), strings.HasSuffix(metric, "_sizes_sum"):
				return "Bps"
			}
			return perSecond
		case "histogram_quantile":
			return "s"
		}
		return dimension(t, e.Args[len(e.Args)-1])
	case *parser.MatrixSelector:
		return dimension(t, e.VectorSelector)
	case *parser.VectorSelector:
		switch metric := name(e.LabelMatchers); {
		case strings.HasSuffix(metric, "_ratio"):
			return "percentunit"
		case strings.Contains(metric, "_bytes"):
			return "bytes"
		case strings.HasSuffix(metric, "_seconds"):
			return "s"
		}
	}
	return "short|locale|percent|percentunit|celsius|watt|bool_yes_no"
}
