// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/config"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/promguard/promguard/internal/relabel"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func profile(t testing.TB, name string) relabel.Profile {
	t.Helper()
	p, err := relabel.ProfileByName(name)
	require.NoError(t, err)
	return p
}

// small has two rules, with what YAML has to quote.
func small() relabel.Profile {
	return relabel.Profile{Name: "small", Rules: []relabel.Rule{
		{ID: "one", Class: relabel.ClassUnused, SourceLabels: []string{"__name__"}, Regex: `it's: # \d+`, Reason: "nobody reads it"},
		{ID: "two", Class: relabel.ClassUnused, SourceLabels: []string{"__name__", "on"}, Regex: "b;1", Jobs: []string{"x"}, Reason: "nobody: reads # it"},
	}}
}

func inject(t testing.TB, text string, p relabel.Profile, jobs string) Result {
	t.Helper()
	var re *regexp.Regexp
	if jobs != "" {
		re = regexp.MustCompile("^(?:" + jobs + ")$")
	}
	r, err := Rules([]byte(text), p, re)
	require.NoError(t, err)
	return r
}

// requireLoads loads the text as Prometheus does and returns how many metric
// relabel configs each job has.
func requireLoads(t testing.TB, text []byte) map[string]int {
	t.Helper()
	cfg, err := config.Load(string(text), promslog.NewNopLogger())
	require.NoError(t, err, "%s", text)
	out := map[string]int{}
	for _, s := range cfg.ScrapeConfigs {
		out[s.JobName] = len(s.MetricRelabelConfigs)
	}
	return out
}

func TestInjectedFileIsTheReviewedText(t *testing.T) {
	text, err := os.ReadFile("testdata/prometheus.yml")
	require.NoError(t, err)
	r := inject(t, string(text), small(), "")
	golden := filepath.Join("testdata", "injected.yml")
	if *update {
		require.NoError(t, os.WriteFile(golden, r.Text, 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), string(r.Text))
}

func TestInjectedFileLoadsAndHasTheRulesInEveryJobOnce(t *testing.T) {
	text, err := os.ReadFile("testdata/prometheus.yml")
	require.NoError(t, err)
	before := requireLoads(t, text)
	for _, name := range []string{relabel.ProfileMinimal, relabel.ProfileRecommended, relabel.ProfileAggressive} {
		p := profile(t, name)
		once := inject(t, string(text), p, "")
		after := requireLoads(t, once.Text)
		require.Len(t, after, len(before))
		for job, n := range before {
			require.Equal(t, n+len(p.Rules), after[job], job)
		}
		twice := inject(t, string(once.Text), p, "")
		require.Equal(t, string(once.Text), string(twice.Text))
		for _, j := range twice.Jobs {
			require.Equal(t, Current, j.State, j.Name)
		}
		// Another profile takes the first one's place, and none leaves the file as
		// it was.
		other := inject(t, string(once.Text), small(), "")
		require.Equal(t, string(inject(t, string(text), small(), "").Text), string(other.Text))
		for i, j := range other.Jobs {
			require.Equal(t, Missing, once.Jobs[i].State, j.Name)
			require.Equal(t, Old, j.State, j.Name)
		}
		off := inject(t, string(once.Text), profile(t, relabel.ProfileOff), "")
		require.Equal(t, strings.Replace(string(text), "metric_relabel_configs: []", "metric_relabel_configs:", 1), string(off.Text))
		require.Equal(t, before, requireLoads(t, off.Text))
	}
}

func TestJobsThatWereNotAskedForStayAsTheyAre(t *testing.T) {
	text := "scrape_configs:\n- job_name: a\n  scheme: http\n- job_name: b\n"
	all := inject(t, text, small(), "")
	r := inject(t, string(all.Text), profile(t, relabel.ProfileMinimal), "a")
	require.Equal(t, []Job{{"a", Old}}, r.Jobs)
	n := requireLoads(t, r.Text)
	require.Equal(t, map[string]int{"a": len(profile(t, relabel.ProfileMinimal).Rules), "b": 2}, n)
}

func TestLineEndsAndMissingLastOnesAreKept(t *testing.T) {
	for _, text := range []string{
		"scrape_configs:\r\n- job_name: a\r\n  metric_relabel_configs:\r\n  - action: labeldrop\r\n    regex: x\r\n",
		"scrape_configs:\n- job_name: a",
		"scrape_configs:\n  - job_name: a\n    metric_relabel_configs:",
		"scrape_configs:\n  -\n    job_name: a\n\n  # end\n",
		"---\nscrape_configs:\n  - job_name: a\n...\n",
		"scrape_configs:\n- job_name: a\n  metric_relabel_configs:   # own\n\n  # more\n\nglobal: {}\n",
		"scrape_configs:\n- job_name: a\n  metric_relabel_configs: ~\n  scheme: http\n",
		"scrape_configs:\n- job_name: a\n  metric_relabel_configs: null # own\n",
	} {
		r := inject(t, text, small(), "")
		require.Equal(t, requireLoads(t, []byte(text))["a"]+2, requireLoads(t, r.Text)["a"], "%s", r.Text)
		if strings.Contains(text, "\r") {
			require.Equal(t, strings.Count(string(r.Text), "\n"), strings.Count(string(r.Text), "\r\n"))
		}
		require.Equal(t, string(r.Text), string(inject(t, string(r.Text), small(), "").Text))
		off := inject(t, string(r.Text), relabel.Profile{Name: "off"}, "")
		text = strings.NewReplacer("configs: ~", "configs:", "configs: null", "configs:").Replace(text)
		require.Equal(t, strings.TrimSuffix(text, "\n"), strings.TrimSuffix(string(off.Text), "\n"))
	}
}

func TestAJobThatIsMergedIntoAnotherGivesItNoRules(t *testing.T) {
	const text = "scrape_configs:\n- &a\n  job_name: a\n- <<: *a\n  job_name: b\n"
	require.Equal(t, map[string]int{"a": 2, "b": 2}, requireLoads(t, inject(t, text, small(), "").Text))
	require.Equal(t, map[string]int{"a": 0, "b": 2}, requireLoads(t, inject(t, text, small(), "b").Text))
	_, err := Rules([]byte(text), small(), regexp.MustCompile("^a$"))
	require.ErrorContains(t, err, `job "b": the file is laid out in a way that cannot be edited`)
	_, err = Rules([]byte(text+"other: *a\n"), small(), nil)
	require.ErrorContains(t, err, "more than the rules would change")
}

// chartValues are values of the chart prometheus, with scrape configs in all forms.
const chartValues = `# own
serverFiles:
  alerting_rules.yml: {}
  prometheus.yml:
    rule_files: [/etc/config/rules.yml]
    scrape_configs:
      - job_name: prometheus
        static_configs:
          - targets: [localhost:9090]
      - job_name: nodes   # more
        metric_relabel_configs: ~
        regex: |
          x

    # between
    remote_write: []
scrapeConfigs:
  kubernetes-api-servers:
    tls_config:
      insecure_skip_verify: false
  kubernetes-pods:
    enabled: false
  kubernetes-slow: null
  pods:
    job_name: named
    metric_relabel_configs:
    - action: labeldrop
      regex: x

# end
server: {}
`

func TestScrapeConfigsInTheValuesOfTheChartPrometheusGetTheRules(t *testing.T) {
	r := inject(t, chartValues, small(), "")
	require.Equal(t, []Job{{"prometheus", Missing}, {"nodes", Missing}, {"kubernetes-api-servers", Missing}, {"named", Missing}}, r.Jobs)
	var values struct {
		ServerFiles struct {
			Config struct {
				ScrapeConfigs []map[string]any `yaml:"scrape_configs"`
				RemoteWrite   []any            `yaml:"remote_write"`
			} `yaml:"prometheus.yml"`
		} `yaml:"serverFiles"`
		ScrapeConfigs map[string]map[string]any `yaml:"scrapeConfigs"`
		Server        map[string]any
	}
	require.NoError(t, yaml.Unmarshal(r.Text, &values), "%s", r.Text)
	for _, c := range values.ServerFiles.Config.ScrapeConfigs {
		require.Len(t, c["metric_relabel_configs"], 2, "%s", r.Text)
	}
	require.Equal(t, "x\n", values.ServerFiles.Config.ScrapeConfigs[1]["regex"])
	require.Len(t, values.ScrapeConfigs["kubernetes-api-servers"]["metric_relabel_configs"], 2)
	require.Len(t, values.ScrapeConfigs["pods"]["metric_relabel_configs"], 3)
	require.Nil(t, values.ScrapeConfigs["kubernetes-slow"])
	require.Equal(t, string(r.Text), string(inject(t, string(r.Text), small(), "").Text))
	off := inject(t, string(r.Text), relabel.Profile{Name: "off"}, "")
	require.Equal(t, strings.Replace(chartValues, "configs: ~", "configs:", 1), string(off.Text))
	one := inject(t, chartValues, small(), "named")
	require.Equal(t, 1, strings.Count(string(one.Text), beginMark))
}

func TestRulesThatWereAddedBesideTheMarksStay(t *testing.T) {
	r := inject(t, "scrape_configs:\n- job_name: a\n", small(), "")
	text := string(r.Text) + "    - action: labeldrop\n      regex: mine\n"
	again := inject(t, text, small(), "")
	require.Equal(t, 3, requireLoads(t, again.Text)["a"])
	own, marked, _ := bytes.Cut(again.Text, []byte(beginMark))
	require.Contains(t, string(own), "mine", "rules come last")
	require.NotContains(t, string(marked), "mine")
	require.Equal(t, 1, requireLoads(t, inject(t, text, relabel.Profile{Name: "off"}, "").Text)["a"])
}

func TestWhatCannotBeEditedIsAnErrorWithItsLine(t *testing.T) {
	begin, end := "  "+beginMark+"\n", "  "+endMark+"\n"
	for text, want := range map[string]string{
		"":                                   "the file is empty",
		"global: {}\n":                       "there are no scrape_configs",
		"scrape_configs: 5\n":                "line 1: scrape_configs must be a list",
		"a: [\n":                             "not YAML: line 1: did not find expected node content",
		"- a\n":                              "cannot unmarshal",
		"global: {}\n---\nb: 1":              "more than one YAML document",
		"scrape_configs:\n- scheme: http\n":  "line 2: the scrape config has no job_name",
		"scrape_configs:\n- {job_name: a}\n": `job "a": line 2: the scrape config is in braces`,
		"scrape_configs:\n- job_name: a\n  metric_relabel_configs: [{action: drop, regex: x}]\n":                                                        "line 3: metric_relabel_configs must be a list with an item per line",
		"scrape_configs:\n- job_name: a\n  metric_relabel_configs: [\n  ]\n":                                                                            "line 3: metric_relabel_configs must be a list with an item per line, or []",
		"x: &x []\nscrape_configs:\n- job_name: a\n  metric_relabel_configs: *x\n":                                                                      "no alias",
		"x: &x {metric_relabel_configs: [{action: drop}]}\nscrape_configs:\n- <<: *x\n  job_name: a\n":                                                  `job "a": the file is laid out in a way that cannot be edited: its own rules would change; write out those of a merge key`,
		"scrape_configs:\n- job_name: a\n" + begin:                                                                                                      "line 3: marked rules begin that do not end",
		"scrape_configs:\n- job_name: a\n" + end:                                                                                                        "line 3: marked rules end that did not begin",
		"scrape_configs:\n- job_name: a\n" + begin + begin:                                                                                              "line 4: marked rules begin, and those that began in line 3",
		begin + end + "scrape_configs:\n- job_name: a\n":                                                                                                "line 1: the marked rules are not in a scrape config",
		"scrape_configs:\n- job_name: a\n  metric_relabel_configs:\n" + begin + "  - {action: keep, regex: x}\n" + end:                                  "the marked lines hold more than drop rules",
		"scrape_configs:\n- job_name: a\n" + begin + "  scheme: https\n" + end:                                                                          "more than the rules would change",
		"scrape_configs:\n- job_name: a\n  metric_relabel_configs: &x\n  - action: labeldrop\n    regex: x\nglobal: {external_labels: {}}\nother: *x\n": "line 3: metric_relabel_configs must be a list with an item per line, or []; no alias, no anchor",
	} {
		_, err := Rules([]byte(text), small(), nil)
		require.ErrorContains(t, err, want, "%s", text)
	}
	_, err := Rules([]byte("scrape_configs:\n- job_name: a\n- job_name: b\n"), small(), regexp.MustCompile("^x$"))
	require.EqualError(t, err, "no job_name matches ^x$: there are a, b")
}

func TestFileThatOnlyNamesFurtherFilesStaysAsItIs(t *testing.T) {
	for _, text := range []string{"scrape_config_files: [more/*.yml]\n", "scrape_config_files: [more/*.yml]\nscrape_configs: []\n"} {
		r := inject(t, text, small(), "")
		require.Equal(t, text, string(r.Text))
		require.Empty(t, r.Jobs)
		require.Equal(t, []string{"more/*.yml"}, r.OtherFiles)
	}
}

func TestFilesWithFurtherScrapeConfigsAreNamed(t *testing.T) {
	r := inject(t, "scrape_config_files: [more/*.yml]\nscrape_configs:\n- job_name: a\n", small(), "")
	require.Equal(t, []string{"more/*.yml"}, r.OtherFiles)
}

// FuzzRules looks for texts that come out otherwise than with the rules added.
func FuzzRules(f *testing.F) {
	text, err := os.ReadFile("testdata/prometheus.yml")
	require.NoError(f, err)
	f.Add(string(text))
	f.Add(chartValues)
	f.Add("scrape_configs:\n- job_name: a\n  metric_relabel_configs: # x\n  - regex: |\n      # y\n")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Rules([]byte(text), small(), nil)
		if err != nil {
			return
		}
		again, err := Rules(r.Text, small(), nil)
		require.NoError(t, err)
		require.Equal(t, string(r.Text), string(again.Text))
		_, err = Rules(r.Text, relabel.Profile{Name: "off"}, nil)
		require.NoError(t, err)
	})
}
