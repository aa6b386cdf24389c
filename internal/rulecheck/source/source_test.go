// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// list writes what was found, a line each and in order.
func listFound(f Found) string {
	var b strings.Builder
	for _, e := range f.Expressions {
		fmt.Fprintf(&b, "%s | %s | %s\n", e.File, e.Place, e.Kind)
		for _, q := range e.Queries {
			fmt.Fprintf(&b, "    %s\n", q)
		}
		if e.Listing != nil {
			vs := parser.VectorSelector{LabelMatchers: e.Listing.Matchers}
			fmt.Fprintf(&b, "    values of %q of %s\n", e.Listing.Label, vs.String())
		}
		if e.Record != "" {
			fmt.Fprintf(&b, "    recorded as %s %v\n", e.Record, e.Labels)
		}
	}
	for _, p := range f.Problems {
		fmt.Fprintf(&b, "PROBLEM %s\n", strings.ReplaceAll(p.Error(), "\n", " "))
	}
	return filepath.ToSlash(b.String())
}

func requireGolden(t *testing.T, name string, f Found) {
	t.Helper()
	got := listFound(f)
	golden := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

func TestEveryExpressionOfDashboardsIsFound(t *testing.T) {
	requireGolden(t, "dashboards.txt", Dashboards("testdata/dashboards"))
}

func TestEveryExpressionOfRuleFilesIsFound(t *testing.T) {
	requireGolden(t, "rules.txt", RuleFiles("testdata/rules"))
}

func TestEveryQueryOfALogIsFoundOnce(t *testing.T) {
	requireGolden(t, "querylog.txt", QueryLogs("testdata/query.log"))
}

func TestWhatIsNotThereIsAProblemAndNoEmptyCheck(t *testing.T) {
	dir := t.TempDir()
	for name, f := range map[string]Found{
		"no such dashboard":    Dashboards(filepath.Join(dir, "none")),
		"no such rule file":    RuleFiles(filepath.Join(dir, "none.yaml")),
		"no such log":          QueryLogs(filepath.Join(dir, "none")),
		"directory of nothing": Dashboards(dir),
	} {
		require.Empty(t, f.Expressions, name)
		require.Len(t, f.Problems, 1, name)
	}
}

func TestBadLinesOfALogAreToldUpToALimit(t *testing.T) {
	f := readQueryLog("log", strings.NewReader(strings.Repeat("x\n", 50)))
	require.Len(t, f.Problems, maxLogProblems+1)
	require.ErrorContains(t, f.Problems[maxLogProblems], "30 further lines")
}

func TestVariableInAMatcherMatchesAnything(t *testing.T) {
	exprs, err := parseTemplate(`up{a="x$b",c=~"[[d]]|e",f!="${g:regex}"}`, nil)
	require.NoError(t, err)
	for _, m := range exprs[0].(*parser.VectorSelector).LabelMatchers {
		require.Equal(t, m.Name != labels.MetricName, HasMarker(m.Value), m)
	}
}

func TestVariantsOfAnExpressionAreBounded(t *testing.T) {
	values := strings.Split(strings.Repeat("a,b,c,d,e,f,g,h,", 4)+"i", ",")
	vars := []variable{{name: "x", values: values}, {name: "y", values: values}, {name: "z", values: values}}
	exprs, err := parseTemplate("$x + $y + $z", vars)
	require.NoError(t, err)
	require.Len(t, exprs, maxVariants)
}

// The fuzzers look for panics, for endless work, and for what is neither an
// expression nor a problem.

func FuzzDashboard(f *testing.F) {
	paths, err := filepath.Glob("testdata/dashboards/*")
	require.NoError(f, err)
	for _, p := range paths {
		text, err := os.ReadFile(p)
		require.NoError(f, err)
		f.Add(filepath.Ext(p) == ".json", text)
	}
	f.Fuzz(func(t *testing.T, isJSON bool, text []byte) {
		b := &boards{library: map[string]string{}}
		file := "x.yaml"
		if isJSON {
			file = "x.json"
		}
		requireSound(t, b.read(file, text))
	})
}

func FuzzRuleFile(f *testing.F) {
	paths, err := filepath.Glob("testdata/rules/*")
	require.NoError(f, err)
	for _, p := range paths {
		text, err := os.ReadFile(p)
		require.NoError(f, err)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) { requireSound(t, readRules("x.yaml", text)) })
}

func FuzzQueryLog(f *testing.F) {
	text, err := os.ReadFile("testdata/query.log")
	require.NoError(f, err)
	f.Add(string(text))
	f.Fuzz(func(t *testing.T, text string) { requireSound(t, readQueryLog("x", strings.NewReader(text))) })
}

func FuzzVariableQuery(f *testing.F) {
	for _, q := range []string{
		"label_values(up{a=\"$b\"}, job)", "label_values(x)", "metrics(.*_$x)", "query_result(sum(up))", "label_names()", "up{a=~\"[[b]]\"}", "$m",
	} {
		f.Add(q)
	}
	vars := []variable{{name: "x", values: []string{"a", "b{"}}, {name: "b"}}
	f.Fuzz(func(t *testing.T, text string) {
		exprs, listing, err := parseVariableQuery(text, vars)
		n := 0
		for _, is := range []bool{len(exprs) > 0, listing != nil, err != nil} {
			if is {
				n++
			}
		}
		require.Equal(t, 1, n)
	})
}

func requireSound(t *testing.T, f Found) {
	t.Helper()
	for _, e := range f.Expressions {
		require.NotEqual(t, e.Listing != nil, len(e.Queries) > 0)
		require.NotEmpty(t, e.Kind)
	}
	for _, p := range f.Problems {
		require.Error(t, p.Err)
		require.NotEmpty(t, p.File)
	}
}
