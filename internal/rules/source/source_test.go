// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"encoding/base64"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

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

func TestValuesThatAreTooManyToTryAreAProblem(t *testing.T) {
	values := strings.Split(strings.Repeat("a,b,c,d,e,f,g,h,", 4)+"i", ",")
	vars := []variable{{name: "x", values: values}, {name: "y", values: values}, {name: "z", values: values[:8]}, {name: "w", values: values[:8]}}
	_, err := parseTemplate("$x + $y + $z", vars)
	require.ErrorIs(t, err, errTooManyValues)
	exprs, err := parseTemplate("$z + $w + $z", vars)
	require.NoError(t, err)
	require.Len(t, exprs, maxVariants)
}

func TestEveryKnownValueMustParse(t *testing.T) {
	vars := []variable{{name: "m", values: []string{"up", "sum(gone"}}}
	_, err := parseTemplate("sum($m)", vars)
	require.ErrorContains(t, err, "does not parse")
}

func TestVariableMayBeANumberOrAName(t *testing.T) {
	vars := []variable{{name: "n", number: true}, {name: "any"}, {name: "q", values: []string{"5", "99"}}}
	one := strconv.FormatFloat(UnknownNumber, 'g', -1, 64)
	for text, want := range map[string][]string{
		"$any":                             {one, Marker(0)},
		"${any} * 100":                     {one + " * 100", Marker(0) + " * 100"},
		"100 * $other / 3":                 {"100 * " + one + " / 3", "100 * " + Marker(0) + " / 3"},
		"topk($any, $b)":                   {"topk(" + one + ", " + Marker(1) + ")"},
		"up > $n":                          {"up > " + one},
		"$any > 5":                         {Marker(0) + " > 5"},
		"up * $any * $b":                   {"up * " + one + " * " + one, "up * " + Marker(0) + " * " + one, "up * " + one + " * " + Marker(1), "up * " + Marker(0) + " * " + Marker(1)},
		"up offset $any":                   {"up offset 5m"},
		"sum by ($any)(up)":                {"sum by (" + Marker(0) + ") (up)"},
		"histogram_quantile(0.$any, up)":   {"histogram_quantile(" + one + ", up)"},
		"histogram_quantile(0.${any}, up)": {"histogram_quantile(" + one + ", up)"},
		"up > 9$n":                         {"up > " + one},
		"up > .$n":                         {"up > " + one},
		"histogram_quantile(0.$q, up)":     {"histogram_quantile(0.5, up)", "histogram_quantile(0.99, up)"},
		"up9$any":                          {"up9" + Marker(0)},
		"rate(up[1$any])":                  {"rate(up[15m])"},
	} {
		exprs, err := parseTemplate(text, vars)
		require.NoError(t, err, text)
		var got []string
		for _, e := range exprs {
			got = append(got, e.String())
		}
		require.Equal(t, want, got, text)
	}
}

func TestOptionsAndQueryOfACustomVariableAreBothItsValues(t *testing.T) {
	require.Equal(t, []string{"up", "gone"}, optionValues(map[string]any{
		"query": "up,gone", "options": []any{map[string]any{"value": "up"}, map[string]any{"value": "$__all"}},
	}))
}

func TestNameOfADataSourceSaysNothing(t *testing.T) {
	d := &board{sources: map[string]string{"ds": "loki", "prom": "prometheus"}}
	for _, tc := range []struct {
		source any
		want   bool
	}{
		{nil, true},
		{"Prometheus (elastic cluster)", true},
		{map[string]any{"uid": "prom-tempo-prod"}, true},
		{map[string]any{"uid": "x", "type": "loki"}, false},
		{map[string]any{"uid": "-- Grafana --", "type": "datasource"}, false},
		{map[string]any{"type": "__expr__"}, false},
		{"-- Dashboard --", false},
		{"$ds", false},
		{"${prom}", true},
		{map[string]any{"uid": "${ds}"}, false},
	} {
		require.Equal(t, tc.want, d.isPrometheus(tc.source), "%v", tc.source)
	}
}

func TestQueriesOfTemplatesAreCheckedOrTold(t *testing.T) {
	rule := func(field, template string) Found {
		return readRules("x.yaml", []byte("groups:\n- name: g\n  rules:\n  - alert: A\n    expr: up\n    "+field+":\n      x: '"+strings.ReplaceAll(template, "'", "''")+"'\n"), map[string]bool{})
	}
	for template, want := range map[string][2]int{
		`{{ query "gone" | first | value }}`: {2, 0},
		"{{ query `gone` }}":                 {2, 0},
		`{{ with printf "gone{instance='%s'}" .Labels.instance | query }}{{ end }}`:                                    {2, 0},
		"{{ printf `gone{instance=\"%s\",job=%q} > %v` $labels.instance $labels.job $value | query | first | value }}": {2, 0},
		`{{ printf "rate(gone[%dm]) * %.2f" 5 0.5 | query }}`:                                                          {2, 0},
		`{{ printf "max_over_time(gone[%s]) %% 2" $labels.window | query }}`:                                           {2, 0},
		`{{ query (printf "x") }}`:                                     {2, 0},
		`{{ "gone" | query | first | value }}`:                         {2, 0},
		`{{ range query (("gone")) }}{{ end }}`:                        {2, 0},
		`{{ (query "gone" | first).Value }}`:                           {2, 0},
		`{{ if true }}{{ else }}{{ query "gone" }}{{ end }}`:           {2, 0},
		`{{ query (printf $labels.q) }}`:                               {1, 1},
		`{{ query (print "gone" $labels.q) }}`:                         {1, 1},
		`{{ printf "%s(gone)" $labels.f | query }}`:                    {1, 1},
		`{{ $q := "gone" }}{{ query $q }}`:                             {1, 1},
		`{{ query "a\q" }}`:                                            {1, 1},
		`{{ $query }}`:                                                 {1, 1},
		`{{ .query }} {{ "the query" }} {{ $labels.query }} the query`: {1, 0},
	} {
		for _, field := range []string{"annotations", "labels"} {
			f := rule(field, template)
			require.Len(t, f.Expressions, want[0], "%s: %v", template, f.Problems)
			require.Len(t, f.Problems, want[1], "%s: %v", template, f.Problems)
		}
	}
}

func TestValuesOfATemplatesQueryMayBeAny(t *testing.T) {
	for format, want := range map[string]string{
		`up{a="%s",b=%q} > %v`: `up{a="promguardvar0z",b="promguardvar1z"} > promguardvar2z`,
		`x[%dm] %% %[1]d`:      `x[5m] % 1.0000000000000002`,
		`100%`:                 `100%`,
	} {
		require.Equal(t, want, formatted(format))
	}
}

func TestAlertHasItsNameAndLabelsWithAnyValueWhereATemplateGivesIt(t *testing.T) {
	f := readRules("x.yaml", []byte("groups:\n- name: g\n  rules:\n  - {alert: A, expr: up, labels: {severity: page, level: '{{ $value }}'}}\n"), map[string]bool{})
	require.Empty(t, f.Problems)
	require.Equal(t, "A", f.Expressions[0].Alert)
	require.Equal(t, map[string]string{"severity": "page", "level": Marker(0)}, f.Expressions[0].Labels)
}

func TestRuleGroupsInValuesOfChartsAreRead(t *testing.T) {
	const groups = "{groups: [{name: g, rules: [{alert: A, expr: up == 0}]}]}"
	for text, want := range map[string][2]int{
		"serverFiles:\n  alerting_rules.yml: " + groups + "\n  recording_rules.yml: {}\n  prometheus.yml: {scrape_configs: [{job_name: a}]}\n": {1, 0},
		"prometheus:\n  serverFiles: {rules: " + groups + ", more: " + groups + "}\n":                                                          {2, 0},
		"additionalPrometheusRules: [{name: x, groups: [{name: g, rules: [{record: a, expr: up}]}]}]\n":                                        {1, 0},
		"serverFiles: {rules: " + groups + "}\nadapter: {custom: [{seriesQuery: up}]}\n":                                                       {1, 1},
		"serverFiles: {prometheus.yml: {scrape_configs: []}}\n":                                                                                {0, 1},
	} {
		f := readRules("values.yaml", []byte(text), map[string]bool{})
		require.Len(t, f.Expressions, want[0], "%s: %v", text, f.Problems)
		require.Len(t, f.Problems, want[1], "%s: %v", text, f.Problems)
	}
}

func TestTemplateOfSeriesByARegexIsReadWithAllThatStandsBesideThem(t *testing.T) {
	read := func(series, query string) Found {
		return readRules("x.yaml", []byte("rules:\n- seriesQuery: '"+series+"'\n  seriesFilters: [{isNot: _bucket$}]\n  metricsQuery: '"+query+"'\n"), map[string]bool{})
	}
	f := read(`{__name__=~"^http_.*",pod!=""}`, "sum(rate(<<.Series>>{<<.LabelMatchers>>}[5m])) by (<<.GroupBy>>) / sum(pod_capacity{<<.LabelMatchers>>}) by (<<.GroupBy>>)")
	require.Empty(t, f.Problems)
	require.Len(t, f.Expressions, 2)
	var selectors []string
	for _, matchers := range parser.ExtractSelectors(f.Expressions[1].Queries[0]) {
		vs := parser.VectorSelector{LabelMatchers: matchers}
		selectors = append(selectors, vs.String())
	}
	require.Equal(t, []string{
		`{__name__!~".*(?:_bucket$).*",__name__=~"^http_.*",pod!="",promguardvar0z=~".*"}`,
		`{__name__="pod_capacity",promguardvar0z=~".*"}`,
	}, selectors)

	f = read(`{__name__=~"^http_.*"}`, "<<.Series>>_total")
	require.True(t, HasMarker(f.Expressions[1].Queries[0].String()), "the name put together may be any")
	f = read(`{__name__=~"^http_.*"}`, "sum(<<.Series>>")
	require.Len(t, f.Problems, 1)
}

func TestWhatIsNotReadIsToldAndNotPassedOver(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	write("elsewhere/board.json", `{"panels": [{"targets": [{"expr": "up"}]}]}`)
	write("linked/up.json", `{"panels": [{"targets": [{"expr": "up"}]}]}`)
	require.NoError(t, os.Symlink(filepath.Join(dir, "elsewhere"), filepath.Join(dir, "linked/sub")))
	for name, tc := range map[string]struct {
		found             Found
		expressions, said int
	}{
		"link to a directory":       {Dashboards(filepath.Join(dir, "linked")), 1, 1},
		"Helm values":               {Dashboards(write("values.yaml", "dashboards: {default: {x: {json: '{}'}}}")), 0, 1},
		"dashboard by another name": {Dashboards(write("map.yaml", "kind: ConfigMap\ndata:\n  board: '{\"panels\": [{\"targets\": [{\"expr\": \"up\"}]}]}'")), 1, 0},
		"binary":                    {Dashboards(write("binary.yaml", "kind: ConfigMap\nbinaryData: {x.json.gz: aGVsbG8=}")), 0, 1},
		"VMRule":                    {RuleFiles(write("vm.yaml", "kind: VMRule\nspec: {groups: [{name: g, rules: [{alert: A, expr: up}]}]}")), 1, 0},
		"analysis":                  {RuleFiles(write("argo.yaml", "kind: AnalysisTemplate\nspec: {metrics: [{provider: {prometheus: {query: sum(up)}}}]}")), 0, 1},
		"no queries":                {RuleFiles(write("deployment.yaml", "kind: Deployment\nspec: {replicas: 1}")), 0, 1},
	} {
		require.Len(t, tc.found.Expressions, tc.expressions, name)
		require.Len(t, tc.found.Problems, tc.said, "%s: %v", name, tc.found.Problems)
	}
}

func TestRulesInAConfigMapOrASecretAreFoundWhateverTheirFileIsCalled(t *testing.T) {
	rules := "groups: [{name: g, rules: [{alert: A, expr: found > 1}]}]"
	for name, object := range map[string]string{
		"no extension":   "kind: ConfigMap\ndata: {alerts: '" + rules + "'}",
		"JSON":           `{"kind": "ConfigMap", "data": {"a.json": "{\"groups\":[{\"name\":\"g\",\"rules\":[{\"alert\":\"A\",\"expr\":\"found > 1\"}]}]}"}}`,
		"text of Secret": "kind: Secret\nstringData: {additional.yaml: '" + rules + "'}",
		"data of Secret": "kind: Secret\ndata: {rules: " + base64.StdEncoding.EncodeToString([]byte(rules)) + "}",
		"object within":  "kind: ConfigMap\ndata: {x: '{kind: PrometheusRule, spec: {" + rules + "}}'}",
	} {
		f := readRules("x.yaml", []byte(object), map[string]bool{})
		require.Empty(t, f.Problems, name)
		require.Len(t, f.Expressions, 1, name)
		require.Equal(t, "found > 1", f.Expressions[0].Text, name)
	}
	for name, object := range map[string]string{
		"rules that do not parse": "kind: ConfigMap\ndata: {alerts: 'groups: ['}",
		"broken YAML by its name": "kind: ConfigMap\ndata: {a.yml: '['}",
		"binary":                  "kind: ConfigMap\nbinaryData: {a: aGVsbG8=}",
		"compressed":              "kind: Secret\ndata: {a: H4sIAAAAAAAA}",
		"encrypted":               "kind: Secret\ndata: {a: 'ENC[x]'}",
		"a query of its own form": "kind: ConfigMap\ndata: {config: 'metrics: [{totalQuery: sum(up)}]'}",
	} {
		f := readRules("x.yaml", []byte(object), map[string]bool{})
		require.Len(t, f.Problems, 1, name)
		require.Empty(t, f.Expressions, name)
	}
}

func TestObjectsThatMayReadSeriesAreToldAndOrdinaryOnesAreNot(t *testing.T) {
	for name, object := range map[string]string{
		"Sloth":          "apiVersion: sloth.slok.dev/v1\nkind: PrometheusServiceLevel\nspec: {slos: [{sli: {events: {errorQuery: a, totalQuery: b}}}]}",
		"Pyrra":          "apiVersion: pyrra.dev/v1alpha1\nkind: ServiceLevelObjective\nspec: {indicator: {ratio: {total: {metric: a}}}}",
		"encrypted":      "apiVersion: bitnami.com/v1alpha1\nkind: SealedSecret\nspec: {encryptedData: {a: x}}",
		"installs":       "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nspec: {chart: {}}",
		"not Kubernetes": "kind: Deployment",
	} {
		f := readRules("x.yaml", []byte(object+"\n---\n"+object), map[string]bool{})
		require.NotEmpty(t, f.Problems, name)
	}
	told := map[string]bool{}
	pyrra := []byte("apiVersion: pyrra.dev/v1alpha1\nkind: ServiceLevelObjective")
	require.Len(t, readRules("a.yaml", pyrra, told).Problems, 1)
	require.Empty(t, readRules("b.yaml", pyrra, told).Problems, "told once")
	for _, object := range []string{
		"apiVersion: apps/v1\nkind: Deployment",
		"apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nspec: {validations: [{expression: object.x}]}",
		"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole",
		"apiVersion: monitoring.coreos.com/v1\nkind: ServiceMonitor",
		"apiVersion: monitoring.coreos.com/v1\nkind: Prometheus\nspec: {query: {maxSamples: 5}}",
		"apiVersion: cert-manager.io/v1\nkind: Certificate",
		"apiVersion: v1\nkind: ConfigMap\ndata: {nginx.conf: 'http { server {} }', script.sh: 'echo \"x: y: z\"', q.yaml: 'pg: {query: SELECT 1}', b: '{\"panels\": [{\"expr\": \"up\"}]}'}",
		"apiVersion: v1\nkind: Secret\ndata: {tls.crt: //79AA==}\nstringData: {alertmanager.yaml: 'route: {receiver: x}'}",
	} {
		require.Empty(t, readRules("x.yaml", []byte(object), map[string]bool{}).Problems, object)
	}
}

// What grew with the square of the length took minutes for these.
func TestForeignTextOfAnyShapeIsReadInTime(t *testing.T) {
	for name, text := range map[string]string{
		"open references": strings.Repeat("${a.", 16_000),
		"variables":       strings.Repeat("$a+", 21_000) + "1",
		"signs":           strings.Repeat("-", 60_000) + "1",
		"parentheses":     strings.Repeat("(", 60_000),
		"calls":           strings.Repeat("sum(", 15_000) + "up" + strings.Repeat(")", 15_000),
	} {
		start := time.Now()
		_, err := parseTemplate(text, nil)
		require.Error(t, err, name)
		require.Less(t, time.Since(start), time.Minute, name)
	}
	var many strings.Builder
	for i := range 9_000 {
		fmt.Fprintf(&many, "$v%d+", i)
	}
	_, err := parseTemplate(many.String(), nil)
	require.Error(t, err)
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
	f.Fuzz(func(t *testing.T, text []byte) { requireSound(t, readRules("x.yaml", text, map[string]bool{})) })
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

func TestVariablesSelectAllInWhatIsEvaluated(t *testing.T) {
	for text, want := range map[string]string{
		`a{job="` + Marker(0) + `",b="c"}`: `a{b="c"}`,
		`{__name__=~"a.*",` + Marker(0) + `="b"} + on (` + Marker(1) + `) rate(a{job=~".*` + Marker(0) + `"}[5m])`: `{__name__=~"a.*"} + on (` + Marker(1) + `) rate(a[5m])`,
		`{job="` + Marker(0) + `"}`:                 "",
		Marker(0) + `{job="b"}`:                     "",
		`{__name__=~"a_` + Marker(0) + `",job="b"}`: "",
	} {
		e, err := Parse(text)
		require.NoError(t, err, text)
		before := e.String()
		got, ok := Evaluable(e)
		require.Equal(t, want != "", ok, text)
		if ok {
			require.Equal(t, want, got)
		}
		require.Equal(t, before, e.String())
	}
}
