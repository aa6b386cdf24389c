// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"cmp"
	"flag"
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
	"go.yaml.in/yaml/v3"

	"github.com/promguard/promguard/internal/proxy/config"
	"github.com/promguard/promguard/internal/querylimit"
	"github.com/promguard/promguard/internal/relabel"
	"github.com/promguard/promguard/internal/rules/check"
	"github.com/promguard/promguard/internal/rules/source"
)

const (
	dashboards = "grafana/dashboards"
	rules      = "grafana/rules/promguard.yaml"
)

var update = flag.Bool("update", false, "write what is generated from the packages here")

// expressions returns all that dashboards and alerts ask, parsed by Prometheus's
// parser, and fails if one does not parse.
func expressions(t *testing.T) []source.Expression {
	t.Helper()
	boards, alerts := source.Dashboards(dashboards), source.RuleFiles(rules)
	require.Empty(t, boards.Problems)
	require.Empty(t, alerts.Problems)
	require.NotEmpty(t, boards.Expressions)
	require.NotEmpty(t, alerts.Expressions)
	return append(boards.Expressions, alerts.Expressions...)
}

// policies are the files of those that the expressions have to pass: the defaults, and
// what is deployed.
var policies = []string{"", "kubernetes/promguard/promguard.yml"}

func TestEveryQueryPassesPromguardAndExceedsNothingThatIsOnlyObserved(t *testing.T) {
	now := time.Now()
	for _, file := range policies {
		c, err := config.Load(file)
		require.NoError(t, err)
		analyzer := querylimit.NewAnalyzer(1 << 20)
		for _, e := range expressions(t) {
			for _, r := range requests(e, now) {
				v, err := c.Rules.Judge(analyzer, &r, now)
				require.NoError(t, err, "%s: %s: %s", e.File, e.Place, e.Text)
				require.Empty(t, v.Refusals, "%s: %s: %s", e.File, e.Place, e.Text)
			}
		}
	}
}

// requests returns what Grafana makes of an expression with the time range of a
// dashboard, and with that of a week.
func requests(e source.Expression, now time.Time) []querylimit.Request {
	if e.Listing != nil {
		return []querylimit.Request{{
			Endpoint: querylimit.FindEndpoint("label/:name/values"), Texts: []string{selector(e.Listing.Matchers)},
			Start: now.Add(-3 * time.Hour), End: now, Given: true, Limit: 40_000,
		}}
	}
	var all []querylimit.Request
	for _, q := range e.Queries {
		for back, step := range map[time.Duration]time.Duration{3 * time.Hour: 30 * time.Second, 7 * 24 * time.Hour: 10 * time.Minute} {
			all = append(all, querylimit.Request{
				Endpoint: querylimit.FindEndpoint("query_range"), Texts: []string{q.String()},
				Start: now.Add(-back), End: now, Step: step, Given: true, Limit: -1,
			})
		}
	}
	return all
}

func selector(matchers []*labels.Matcher) string {
	texts := make([]string, len(matchers))
	for i, m := range matchers {
		texts[i] = m.String()
	}
	return "{" + strings.Join(texts, ",") + "}"
}

func TestNoQueryLosesAnythingToTheRecommendedDropRules(t *testing.T) {
	p, err := relabel.ProfileByName(relabel.ProfileRecommended)
	require.NoError(t, err)
	checker, err := check.New(p, nil)
	require.NoError(t, err)
	for _, r := range checker.Check(expressions(t)) {
		require.Contains(t, []check.Verdict{check.Invisible, check.Thinned}, r.Verdict,
			"%s: %s: %s", r.Expression.File, r.Expression.Place, r.Expression.Text)
	}
}

// Behind Thanos there are several clusters, whose series differ by one label.
func TestEveryDashboardReadsOneCluster(t *testing.T) {
	ofCluster := func(e source.Expression, matchers []*labels.Matcher) {
		require.True(t, slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return m.Name == "cluster" }),
			"%s: %s: %s", e.File, e.Place, e.Text)
		require.Contains(t, e.Text, `cluster="$cluster"`)
	}
	choices := 0
	for _, e := range source.Dashboards(dashboards).Expressions {
		switch {
		case e.Listing != nil && strings.HasSuffix(e.Text, ", cluster)"):
			choices++
		case e.Listing != nil:
			ofCluster(e, e.Listing.Matchers)
		}
		for _, q := range e.Queries {
			parser.Inspect(q, func(n parser.Node, _ []parser.Node) error {
				if s, ok := n.(*parser.VectorSelector); ok {
					ofCluster(e, s.LabelMatchers)
				}
				return nil
			})
		}
	}
	files, err := filepath.Glob(dashboards + "/*.json")
	require.NoError(t, err)
	require.Len(t, files, choices)
}

// known returns the names of metrics that may be read, by who exports them.
func known(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("mixin/metrics.yaml")
	require.NoError(t, err)
	var byExporter map[string][]string
	require.NoError(t, yaml.Unmarshal(text, &byExporter))
	return byExporter
}

func TestQueriesNameTheMetricsOfTheListAndNoOthers(t *testing.T) {
	read := map[string]bool{}
	for _, e := range expressions(t) {
		if e.Listing != nil {
			read[name(e.Listing.Matchers)] = true
		}
		for _, q := range e.Queries {
			parser.Inspect(q, func(n parser.Node, _ []parser.Node) error {
				if s, ok := n.(*parser.VectorSelector); ok {
					read[name(s.LabelMatchers)] = true
				}
				return nil
			})
		}
	}
	// What rules record is read, and what is read of that kind is recorded.
	recorded := map[string]bool{}
	for _, r := range allRules(t) {
		if r.Record != "" {
			require.Regexp(t, `^[a-z_]+:[a-zA-Z_]+:[a-z0-9_]+$`, r.Record, "level:metric:operations")
			require.True(t, read[r.Record], "%s is read by nothing", r.Record)
			recorded[r.Record] = true
		}
	}
	for _, n := range askedInRunbooks(t) {
		read[n] = true
	}
	maps.DeleteFunc(read, func(name string, _ bool) bool { return recorded[name] })

	var listed []string
	for exporter, names := range known(t) {
		require.True(t, slices.IsSorted(names), exporter)
		listed = append(listed, names...)
	}
	slices.Sort(listed)
	require.Equal(t, slices.Compact(listed), slices.Sorted(maps.Keys(read)))
}

// A counter of dropped series begins with the first of them, often with all: a rate
// would not see them. Its labels and those of the rules are the ones grouped by.
func TestDroppedSeriesAreReadAsTheyAreCounted(t *testing.T) {
	own := map[string][]string{
		"prometheus_guard_drop_rule_info":                  {"profile", "rule", "class"},
		"prometheus_guard_drop_rules_dropped_series_total": {"profile", "rule", "scrape_job"},
	}
	read := map[string]bool{}
	for _, e := range expressions(t) {
		for _, q := range e.Queries {
			parser.Inspect(q, func(n parser.Node, path []parser.Node) error {
				s, ok := n.(*parser.VectorSelector)
				if !ok || own[name(s.LabelMatchers)] == nil {
					return nil
				}
				read[name(s.LabelMatchers)] = true
				for _, above := range path {
					_, ranged := above.(*parser.MatrixSelector)
					require.False(t, ranged, "%s: %s", e.Place, e.Text)
				}
				require.NotEmpty(t, path, e.Text)
				aggregate, ok := path[len(path)-1].(*parser.AggregateExpr)
				require.True(t, ok, "%s: %s", e.Place, e.Text)
				require.Subset(t, append([]string{"instance"}, own[name(s.LabelMatchers)]...), aggregate.Grouping, "%s: %s", e.Place, e.Text)
				return nil
			})
		}
	}
	require.Len(t, read, len(own))
}

func name(matchers []*labels.Matcher) string {
	for _, m := range matchers {
		if m.Name == labels.MetricName && m.Type == labels.MatchEqual {
			return m.Value
		}
	}
	return ""
}

// rule is what the tests look at of a rule.
type rule struct {
	Alert       string            `yaml:"alert"`
	Record      string            `yaml:"record"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func allRules(t *testing.T) []rule {
	t.Helper()
	text, err := os.ReadFile(rules)
	require.NoError(t, err)
	var file struct {
		Groups []struct {
			Rules []rule `yaml:"rules"`
		} `yaml:"groups"`
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	require.NotEmpty(t, all)
	return all
}

func alerts(t *testing.T) []rule {
	t.Helper()
	all := slices.DeleteFunc(allRules(t), func(r rule) bool { return r.Alert == "" })
	require.NotEmpty(t, all)
	return all
}

func TestEveryAlertSaysWhatItIsAndHowUrgent(t *testing.T) {
	for _, a := range alerts(t) {
		require.Contains(t, []string{"critical", "warning", "info"}, a.Labels["severity"], a.Alert)
		require.NotEmpty(t, a.For, a.Alert)
		for _, annotation := range []string{"summary", "description", "runbook_url"} {
			require.NotEmpty(t, a.Annotations[annotation], "%s: %s", a.Alert, annotation)
		}
	}
}

func TestEveryAlertHasARunbookAndEveryRunbookAnAlert(t *testing.T) {
	text, err := os.ReadFile("../docs/alerts.md")
	require.NoError(t, err)
	var sections, names []string
	for line := range strings.Lines(string(text)) {
		if s, ok := strings.CutPrefix(strings.TrimSpace(line), "### "); ok {
			sections = append(sections, s)
		}
	}
	for _, a := range alerts(t) {
		names = append(names, a.Alert)
		_, anchor, _ := strings.Cut(a.Annotations["runbook_url"], "docs/alerts.md#")
		require.Equal(t, strings.ToLower(a.Alert), anchor)
	}
	require.Equal(t, names, sections, "in the order of the rules")
}

// sections returns what docs/alerts.md says of each alert.
func sections(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../docs/alerts.md")
	require.NoError(t, err)
	found := map[string]string{}
	for _, part := range strings.Split(string(text), "\n### ")[1:] {
		title, body, _ := strings.Cut(part, "\n")
		body, _, _ = strings.Cut(body, "\n## ")
		found[title] = body
	}
	return found
}

func TestEveryRunbookHasACommandToPasteAndADecision(t *testing.T) {
	for title, body := range sections(t) {
		require.Contains(t, body, "\n```sh\n", title)
		require.Contains(t, body, "\n**Decide**", title)
	}
}

// blocks returns the fenced blocks of a language.
func blocks(t *testing.T, file, language string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var found []string
	for _, part := range strings.Split(string(text), "\n```"+language+"\n")[1:] {
		block, _, closed := strings.Cut(part, "\n```")
		require.True(t, closed)
		found = append(found, block)
	}
	return found
}

// What a runbook must not have pasted into a cluster of thousands of nodes that is in
// trouble, and what it costs there.
var hurts = []struct{ command, unless, example, cost string }{
	{`etcdctl.* get .*--prefix`, `--count-only`, "etcdctl get /registry --prefix --keys-only | wc -l", "the member reads all of it into memory"},
	{`etcdctl.* compact`, "", `etcdctl compact "$rev"`, "every watch that is older lists anew, all at once"},
	{`etcdctl.* --cluster`, "", "etcdctl defrag --cluster", "all members at once; and without a quorum nobody knows them"},
	{`etcdctl.* (defrag|move-leader)`, `--endpoints=https://[A-Z]+:2379 `, "etcdctl --command-timeout=5m defrag", "all members of ETCDCTL_ENDPOINTS, one right after the other"},
	{`etcdctl.* check perf`, "", "etcdctl check perf", "writes as much as it can for a minute"},
	{`\bfio\b`, "", "fio --directory=/var/lib/etcd --fdatasync=1", "its fsyncs are ahead of etcd's"},
	{`kubectl.* get .*(-A|--all-namespaces)\b`, "", "kubectl get pods -A -o wide | grep 10.0.0.1", "all objects of the kind are read from etcd"},
	{`kubectl.* get (nodes|no)\b`, "", "kubectl get nodes -o json", "150 MB and more: nodes are read by name, or asked of Prometheus"},
	{`kubectl.* get volumeattachments`, "", "kubectl get volumeattachments", "one for each volume of the cluster"},
	{`kubectl.* describe (node|no)\b`, "", "kubectl describe node NODE", "lists the pods of all nodes"},
	{`kubectl -n kube-system .*-l `, "", "kubectl -n kube-system logs -l component=etcd", "reads the pods of every daemon on every node"},
	{`kubectl.* (-w|--watch)\b`, "", "kubectl get pods -w", "a watch more"},
}

func TestNoRunbookHurtsAClusterInTrouble(t *testing.T) {
	var lines []string
	for _, block := range blocks(t, "../docs/alerts.md", "sh") {
		lines = append(lines, strings.Split(block, "\n")...)
	}
	for _, h := range hurts {
		command, unless := regexp.MustCompile(h.command), regexp.MustCompile(cmp.Or(h.unless, `$^`))
		hurts := func(line string) bool { return command.MatchString(line) && !unless.MatchString(line) }
		require.True(t, hurts(h.example), "%s is not %s", h.example, h.command)
		for _, line := range lines {
			require.False(t, hurts(line), "%s: %s", line, h.cost)
		}
	}
}

// What changes something is pasted by itself, after what merely looks.
func TestARunbookChangesNothingInABlockThatLooks(t *testing.T) {
	changes := regexp.MustCompile(`kubectl.* (drain|delete|patch|scale|rollout restart) |etcdctl.* (defrag|disarm|move-leader|remove)\b|-X DELETE|promguard kill |--gpu-reset`)
	changing := 0
	for _, block := range blocks(t, "../docs/alerts.md", "sh") {
		if changes.MatchString(block) {
			changing++
			first, _, _ := strings.Cut(block, "\n")
			require.Regexp(t, changes, first, "%s", block)
		}
	}
	require.NotZero(t, changing)
}

func TestRunbooksAskPrometheusWhatItHas(t *testing.T) {
	have := map[string]bool{}
	for _, names := range known(t) {
		for _, n := range names {
			have[n] = true
		}
	}
	for _, r := range allRules(t) {
		have[r.Record] = true
	}
	for _, n := range askedInRunbooks(t) {
		require.True(t, have[n], n)
	}
}

// askedInRunbooks are the metrics that commands of runbooks query.
func askedInRunbooks(t *testing.T) (metrics []string) {
	t.Helper()
	text, err := os.ReadFile("../docs/alerts.md")
	require.NoError(t, err)
	asked := regexp.MustCompile(`\bask '([^']*)'`).FindAllStringSubmatch(string(text), -1)
	require.NotEmpty(t, asked)
	for _, a := range asked {
		q, err := parser.NewParser(parser.Options{}).ParseExpr(a[1])
		require.NoError(t, err, a[1])
		parser.Inspect(q, func(n parser.Node, _ []parser.Node) error {
			if s, ok := n.(*parser.VectorSelector); ok {
				metrics = append(metrics, name(s.LabelMatchers))
			}
			return nil
		})
	}
	return metrics
}

// Those of kube-prometheus are not looked up.
func TestInhibitionNamesAlertsThatThereAre(t *testing.T) {
	have := map[string]bool{
		"KubeAPIErrorBudgetBurn": true, "KubeNodeNotReady": true, "KubeNodeUnreachable": true,
		"KubePersistentVolumeFillingUp": true, "PrometheusTSDBCompactionsFailing": true,
	}
	for _, a := range alerts(t) {
		have[a.Alert] = true
	}
	var config struct {
		Rules []struct {
			Source []string `yaml:"source_matchers"`
			Target []string `yaml:"target_matchers"`
			Equal  []string `yaml:"equal"`
		} `yaml:"inhibit_rules"`
	}
	decoder := yaml.NewDecoder(strings.NewReader(blocks(t, "../docs/alerts.md", "yaml")[0]))
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(&config))
	require.NotEmpty(t, config.Rules)
	matcher := regexp.MustCompile(`^alertname=~?"([A-Za-z|]+)"$`)
	for _, r := range config.Rules {
		require.NotEmpty(t, r.Source)
		require.NotEmpty(t, r.Target)
		for _, m := range append(r.Source, r.Target...) {
			require.Regexp(t, matcher, m)
			for name := range strings.SplitSeq(matcher.FindStringSubmatch(m)[1], "|") {
				require.True(t, have[name], name)
			}
		}
	}
}

func TestEveryAlertIsTestedToFireAndNotToFire(t *testing.T) {
	files, err := filepath.Glob("mixin/tests/*.yaml")
	require.NoError(t, err)
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var tests struct {
			Tests []struct {
				Alerts []struct {
					Name string `yaml:"alertname"`
					Want []any  `yaml:"exp_alerts"`
				} `yaml:"alert_rule_test"`
			} `yaml:"tests"`
		}
		require.NoError(t, yaml.Unmarshal(text, &tests))
		for _, test := range tests.Tests {
			for _, a := range test.Alerts {
				if len(a.Want) > 0 {
					fires[a.Name] = true
				} else {
					silent[a.Name] = true
				}
			}
		}
	}
	for _, a := range alerts(t) {
		require.True(t, fires[a.Alert], "no test in which %s fires", a.Alert)
		require.True(t, silent[a.Alert], "no test in which %s does not fire", a.Alert)
		delete(fires, a.Alert)
		delete(silent, a.Alert)
	}
	require.Empty(t, fires, "tests of alerts that there are not")
	require.Empty(t, silent, "tests of alerts that there are not")
}

func TestTheScrapeClassIsThatOfTheRecommendedProfile(t *testing.T) {
	p, err := relabel.ProfileByName(relabel.ProfileRecommended)
	require.NoError(t, err)
	want := bytes.NewBufferString("apiVersion: monitoring.coreos.com/v1\nkind: Prometheus\nmetadata:\n  name: any\n")
	require.NoError(t, relabel.Render(want, p, relabel.FormatScrapeClass))
	const file = "kubernetes/components/scrape-class/scrapeclass.yaml"
	if *update {
		require.NoError(t, os.WriteFile(file, want.Bytes(), 0o644))
	}
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, want.String(), string(got), "make deploy-render")
}
