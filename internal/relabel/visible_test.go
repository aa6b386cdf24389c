// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package relabel

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
)

// selector is a series selector and the metric name it asks for.
type selector struct {
	name     string
	matchers []*labels.Matcher
}

func newSelector(t testing.TB, text string, matchers []*labels.Matcher) selector {
	t.Helper()
	s := selector{matchers: matchers}
	for _, m := range matchers {
		if m.Name == labels.MetricName && m.Type == labels.MatchEqual {
			s.name = m.Value
		}
	}
	require.NotEmpty(t, s.name, "%s: the checks here need a metric name", text)
	return s
}

// sees reports whether the selector would return the series, whatever the names
// of jobs and metrics paths are in an installation.
func (s selector) sees(lset labels.Labels) bool {
	for _, m := range s.matchers {
		if m.Name == "job" || m.Name == "metrics_path" {
			continue
		}
		if !m.Matches(lset.Get(m.Name)) {
			return false
		}
	}
	return true
}

// coreSelectors returns what the core set of rules and dashboards reads.
func coreSelectors(t testing.TB) []selector {
	t.Helper()
	p := parser.NewParser(parser.Options{})
	var out []selector
	for _, line := range factLines(t, "testdata/core_selectors.txt") {
		matchers, err := p.ParseMetricSelector(line)
		require.NoError(t, err, line)
		out = append(out, newSelector(t, line, matchers))
	}
	return out
}

// factLines returns the lines of a file of facts that are not comments.
func factLines(t testing.TB, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var out []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	require.NotEmpty(t, out, path)
	return out
}

func TestNoCoreSelectorNamesAMetricThatMinimalDrops(t *testing.T) {
	d := mustCompile(t, mustProfile(t, ProfileMinimal))
	for _, s := range coreSelectors(t) {
		for i, c := range d.rules {
			require.False(t, c.parts[0].MatchString(s.name),
				"rule %s drops series of %s, which the core set reads", d.profile.Rules[i].ID, s.name)
		}
	}
}

func TestNoWiderAlertDashboardOrAllowListNamesAMetricThatMinimalDrops(t *testing.T) {
	d := mustCompile(t, mustProfile(t, ProfileMinimal))
	for _, name := range factLines(t, "testdata/wider_names.txt") {
		for i, c := range d.rules {
			require.False(t, c.parts[0].MatchString(name), "rule %s drops series of %s", d.profile.Rules[i].ID, name)
		}
	}
}

func TestNoExpressionOfKubePrometheusSeesADroppedSeries(t *testing.T) {
	d := mustCompile(t, mustProfile(t, ProfileMinimal))
	expositions := realExpositions(t)
	seenBy := map[string][]selector{}
	for _, s := range kubePrometheusSelectors(t) {
		seenBy[s.name] = append(seenBy[s.name], s)
	}
	for file, series := range expositions {
		visible := 0
		for _, lset := range series {
			sees := slices.ContainsFunc(seenBy[lset.Get(labels.MetricName)], func(s selector) bool { return s.sees(lset) })
			if sees {
				visible++
			}
			if rule, drop := d.Drop(lset); drop && sees {
				t.Errorf("%s: rule %s drops %s, which an expression reads", file, d.profile.Rules[rule].ID, lset)
			}
		}
		require.NotZero(t, visible, "%s: no expression sees any series: the check does not work", file)
	}
}

// kubePrometheusSelectors returns the selectors of the expressions kept beside
// the repository, without the matchers that a dashboard variable fills.
func kubePrometheusSelectors(t testing.TB) []selector {
	t.Helper()
	const variable = "VARX"
	text, err := os.ReadFile(filepath.Join(sharedDir, "kube-prometheus", "expressions.json"))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("no expressions beside the repository")
	}
	require.NoError(t, err)
	var expressions []struct{ Expr, Where string }
	require.NoError(t, json.Unmarshal(text, &expressions))
	p := parser.NewParser(parser.Options{EnableExperimentalFunctions: true})
	var out []selector
	for _, e := range expressions {
		expr, err := p.ParseExpr(e.Expr)
		require.NoError(t, err, e.Where)
		parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
			if vs, ok := n.(*parser.VectorSelector); ok {
				fixed := slices.DeleteFunc(slices.Clone(vs.LabelMatchers), func(m *labels.Matcher) bool {
					return strings.Contains(m.Value, variable)
				})
				out = append(out, newSelector(t, vs.String(), fixed))
			}
			return nil
		})
	}
	require.NotEmpty(t, out)
	return out
}

// TestProfilesOnRealExpositions prints, with -v, the tables of docs/drop-rules.md.
func TestProfilesOnRealExpositions(t *testing.T) {
	expositions := realExpositions(t)
	files := slices.Sorted(maps.Keys(expositions))
	for _, name := range []string{ProfileMinimal, ProfileRecommended, ProfileAggressive} {
		d := mustCompile(t, mustProfile(t, name))
		for _, f := range files {
			dropped := 0
			perRule := make([]int, len(d.Profile().Rules))
			for _, lset := range expositions[f] {
				if rule, drop := d.Drop(lset); drop {
					perRule[rule]++
					dropped++
				}
			}
			t.Logf("%-11s %-34s %6d series, %5d dropped, %4.1f %%", name, f, len(expositions[f]), dropped,
				100*float64(dropped)/float64(len(expositions[f])))
			for i, n := range perRule {
				if n > 0 {
					t.Logf("    %-36s %5d", d.Profile().Rules[i].ID, n)
				}
			}
			if filepath.Base(f) != "etcd.prom" || name != ProfileMinimal {
				require.NotZero(t, dropped, f)
			}
		}
	}
}

// Versions have metrics that others do not. What goes must not hang on a single one.
func TestRecommendedDropsFourTenthsWithAnyOneMetricLess(t *testing.T) {
	d := mustCompile(t, mustProfile(t, ProfileRecommended))
	type counts struct{ all, dropped int }
	clusters, families := map[string]counts{}, map[string]map[string]counts{}
	for file, series := range realExpositions(t) {
		cluster := filepath.Dir(file)
		if cluster == "." {
			continue // A node by itself.
		}
		if families[cluster] == nil {
			families[cluster] = map[string]counts{}
		}
		for _, lset := range series {
			family := lset.Get(labels.MetricName)
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				family = strings.TrimSuffix(family, suffix)
			}
			n, dropped := clusters[cluster], 0
			if _, drop := d.Drop(lset); drop {
				dropped = 1
			}
			clusters[cluster] = counts{n.all + 1, n.dropped + dropped}
			n = families[cluster][family]
			families[cluster][family] = counts{n.all + 1, n.dropped + dropped}
		}
	}
	require.NotEmpty(t, clusters)
	for cluster, all := range clusters {
		for family, n := range families[cluster] {
			share := float64(all.dropped-n.dropped) / float64(all.all-n.all)
			require.GreaterOrEqual(t, share, 0.39, "%s without %s", cluster, family)
		}
	}
}
