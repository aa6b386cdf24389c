// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// A unit test of an alert that passes with half a threshold, or with half as much
// again, does not hold it; nor how long an alert waits.
func TestEveryThresholdIsHeldByAUnitTest(t *testing.T) {
	if os.Getenv("PROMGUARD_MUTANTS") == "" {
		t.Skip("takes a minute or two: make test-alert-mutants")
	}
	rules, tests := alertRules(t), alertTests(t)
	fails := func(place string, factor float64, alert map[string]any, field, shifted string) {
		t.Run(fmt.Sprintf("%s times %g", place, factor), func(t *testing.T) {
			t.Parallel()
			mutant := maps.Clone(alert)
			mutant[field] = shifted
			out, err := unitTests(t, rules, tests, mutant)
			require.Error(t, err, "no unit test fails with %s\n%s", shifted, out)
		})
	}
	for _, alert := range alerts(rules) {
		expr, name := alert["expr"].(string), alert["alert"].(string)
		wait, err := model.ParseDuration(alert["for"].(string))
		require.NoError(t, err)
		for _, factor := range []float64{0.5, 1.5} {
			for i, n := range thresholds(t, expr) {
				place := fmt.Sprintf("%s: %d: %s", name, i, expr[n.start:n.end])
				fails(place, factor, alert, "expr", expr[:n.start]+strconv.FormatFloat(n.value*factor, 'f', -1, 64)+expr[n.end:])
			}
			if wait > 0 {
				fails(name+": for", factor, alert, "for", model.Duration(float64(wait)*factor).String())
			}
		}
	}
}

type threshold struct {
	start, end int
	value      float64
}

// thresholds are the numbers in an expression. Ranges and offsets are none, nor is 0,
// half of which is 0.
func thresholds(t *testing.T, expr string) []threshold {
	t.Helper()
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	require.NoError(t, err)
	var found []threshold
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		if l, ok := n.(*parser.NumberLiteral); ok && l.Val != 0 {
			found = append(found, threshold{int(l.PosRange.Start), int(l.PosRange.End), l.Val})
		}
		return nil
	})
	slices.SortFunc(found, func(a, b threshold) int { return a.start - b.start })
	return found
}

// unitTests runs those of an alert with the records that it reads, and without the
// other rules, each of which would be evaluated at each minute of each test.
func unitTests(t *testing.T, rules, tests []map[string]any, alert map[string]any) ([]byte, error) {
	t.Helper()
	var own []map[string]any
	for _, test := range tests {
		entries := slices.DeleteFunc(slices.Clone(test["alert_rule_test"].([]any)), func(e any) bool {
			return e.(map[string]any)["alertname"] != alert["alert"]
		})
		if len(entries) > 0 {
			test = maps.Clone(test)
			test["alert_rule_test"] = entries
			own = append(own, test)
		}
	}
	require.NotEmpty(t, own)
	dir := t.TempDir()
	write := func(name string, content any) string {
		text, err := yaml.Marshal(content)
		require.NoError(t, err)
		name = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(name, text, 0o644))
		return name
	}
	write("rules.yaml", map[string]any{"groups": []any{map[string]any{"name": "own", "rules": append(recordsOf(rules, alert), alert)}}})
	file := write("tests.yaml", map[string]any{"rule_files": []string{"rules.yaml"}, "evaluation_interval": "1m", "tests": own})
	return exec.Command(binary(t, "promtool"), "test", "rules", file).CombinedOutput()
}

// recordsOf returns the recording rules that a rule reads, and those that these read, in
// the order of the file.
func recordsOf(rules []map[string]any, of map[string]any) []map[string]any {
	text, read := of["expr"].(string), map[int]bool{}
	for before := -1; len(read) > before; {
		before = len(read)
		for i, r := range rules {
			if record, ok := r["record"].(string); ok && !read[i] && strings.Contains(text, record) {
				read[i] = true
				text += r["expr"].(string)
			}
		}
	}
	var found []map[string]any
	for _, i := range slices.Sorted(maps.Keys(read)) {
		found = append(found, rules[i])
	}
	return found
}

// alerts are those of rules that are none that record.
func alerts(rules []map[string]any) []map[string]any {
	return slices.DeleteFunc(slices.Clone(rules), func(r map[string]any) bool { return r["alert"] == nil })
}

// alertRules are all rules of all groups.
func alertRules(t *testing.T) []map[string]any {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []map[string]any }
	}
	load(t, "grafana/rules/promguard.yaml", &file)
	var all []map[string]any
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	require.NotEmpty(t, all)
	return all
}

// alertTests are the unit tests of all files.
func alertTests(t *testing.T) []map[string]any {
	t.Helper()
	files, err := filepath.Glob(deployments + "mixin/tests/*.yaml")
	require.NoError(t, err)
	var all []map[string]any
	for _, name := range files {
		var file struct{ Tests []map[string]any }
		load(t, strings.TrimPrefix(name, deployments), &file)
		all = append(all, file.Tests...)
	}
	require.NotEmpty(t, all)
	return all
}
