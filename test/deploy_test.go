// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/promguard/promguard/internal/rules/source"
)

const deployments = "../deploy/"

// exported returns the names of the series at the /metrics of a root URL, as queries
// name them.
func exported(t *testing.T, root string) map[string]bool {
	t.Helper()
	resp, err := http.Get(root + "/metrics")
	require.NoError(t, err)
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	require.NoError(t, err)
	names := map[string]bool{}
	for name, family := range families {
		names[name] = true
		if family.GetType().String() == "HISTOGRAM" {
			names[name+"_bucket"] = true
		}
		if kind := family.GetType().String(); kind == "HISTOGRAM" || kind == "SUMMARY" {
			names[name+"_sum"], names[name+"_count"] = true, true
		}
	}
	return names
}

func TestWhatDashboardsReadOfTheBinariesIsExported(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(deployments + "mixin/metrics.yaml")
	require.NoError(t, err)
	var listed map[string][]string
	require.NoError(t, yaml.Unmarshal(text, &listed))

	// Some series are there only when there was a scrape, a series that was dropped,
	// a sample that was received and dropped, a group of rules, one that reads what is
	// dropped, a query, or many new series.
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		fmt.Fprintln(w, `kubernetes_feature_enabled{name="any"} 1`)
		for i := range 1000 {
			fmt.Fprintf(w, "new{id=\"%d\"} 1\n", i)
		}
	}))
	t.Cleanup(target.Close)
	rules, err := filepath.Abs(deployments + "grafana/rules/promguard.yaml")
	require.NoError(t, err)
	blind := filepath.Join(t.TempDir(), "blind.yml")
	require.NoError(t, os.WriteFile(blind, []byte("groups: [{name: a, rules: [{alert: A, expr: absent(kube_pod_tolerations)}]}]\n"), 0o644))
	p := prometheus(t, t.TempDir(), "global: {scrape_interval: 100ms}\nrule_files: ['"+rules+"', '"+blind+"']\n"+
		"scrape_configs: [{job_name: a, static_configs: [{targets: ['"+target.Listener.Addr().String()+"']}]}]\n",
		"--web.enable-remote-write-receiver")
	sendWrite(t, p.url, "kubernetes_feature_enabled")
	g := promguard(t, p)

	require.Equal(t, http.StatusOK, get(t, g.url+"/api/v1/query?query=up").code)
	none := listed["prometheus"]
	for deadline := time.Now().Add(patience); len(none) > 0 && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		none = missing(exported(t, p.url), none)
	}
	require.Empty(t, none)
	require.Empty(t, missing(exported(t, g.telemetry), listed["promguard"]))
}

func missing(have map[string]bool, names []string) []string {
	var none []string
	for _, name := range names {
		if !have[name] {
			none = append(none, name)
		}
	}
	return none
}

// The data source puts its parameters into the URL, and its timeout into the form.
func TestEveryQueryOfDashboardsAndAlertsIsEvaluatedThroughPromguard(t *testing.T) {
	t.Parallel()
	g := promguard(t, prometheus(t, cluster.data(t), emptyConfig))
	var provisioned struct {
		Datasources []struct {
			JSONData struct {
				Timeout    string `yaml:"queryTimeout"`
				Parameters string `yaml:"customQueryParameters"`
			} `yaml:"jsonData"`
		}
	}
	load(t, "grafana/provisioning/datasources/promguard.yaml", &provisioned)
	settings := provisioned.Datasources[0].JSONData
	require.NotEmpty(t, settings.Timeout)
	boards, alerts := source.Dashboards(deployments+"grafana/dashboards"), source.RuleFiles(deployments+"grafana/rules")
	for _, e := range append(boards.Expressions, alerts.Expressions...) {
		for _, q := range e.Queries {
			a := post(t, g.url+"/api/v1/query?"+settings.Parameters, url.Values{"query": {q.String()}, "timeout": {settings.Timeout}}.Encode())
			require.Equal(t, http.StatusOK, a.code, "%s: %s: %s", e.Place, e.Text, a.body)
		}
	}
}

func TestAlertsPassTheirUnitTests(t *testing.T) {
	t.Parallel()
	rules, tests := alertRules(t), alertTests(t)
	for _, alert := range alerts(rules) {
		t.Run(alert["alert"].(string), func(t *testing.T) {
			t.Parallel()
			out, err := unitTests(t, rules, tests, alert)
			require.NoError(t, err, "%s", out)
		})
	}
	out, err := exec.Command(binary(t, "promtool"), "check", "rules", "--lint=all", "--lint-fatal", deployments+"grafana/rules/promguard.yaml").CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// flags returns the names of a command's flags, as its help lists them.
func flags(t *testing.T, name string, args ...string) map[string]bool {
	t.Helper()
	out, err := exec.Command(binary(t, name), append(args, "--help")...).CombinedOutput()
	require.NoError(t, err)
	found := map[string]bool{}
	for word := range strings.FieldsSeq(string(out)) {
		if flag, ok := strings.CutPrefix(word, "--"); ok {
			flag, _, _ = strings.Cut(strings.TrimPrefix(flag, "[no-]"), "=")
			found[flag] = true
		}
	}
	return found
}

func TestManifestsGiveTheBinariesFlagsThatTheyKnow(t *testing.T) {
	// The component sets no flag; the pages and its comment say which an object may.
	known := flags(t, "prometheus")
	named := 0
	for _, page := range []string{"../docs/kubernetes.md", "../docs/rollout.md", deployments + "kubernetes/components/patched-prometheus/prometheus.yaml"} {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, found := range regexp.MustCompile(`name: (guard\.[a-z-]+)`).FindAllStringSubmatch(string(text), -1) {
			require.True(t, known[found[1]], "%s: %s", page, found[1])
			named++
		}
	}
	require.NotZero(t, named)

	var probe struct {
		Spec struct {
			InitContainers []struct{ Args []string } `yaml:"initContainers"`
		}
	}
	load(t, "kubernetes/components/replay-probe/prometheus.yaml", &probe)
	require.Len(t, probe.Spec.InitContainers, 1)
	requireFlags(t, probe.Spec.InitContainers[0].Args)

	var deployment struct {
		Spec struct {
			Template struct {
				Spec struct {
					Containers []struct{ Args []string }
				}
			}
		}
	}
	load(t, "kubernetes/promguard/deployment.yaml", &deployment)
	requireFlags(t, deployment.Spec.Template.Spec.Containers[0].Args)
}

// requireFlags holds arguments of promguard, a command first, to its help.
func requireFlags(t *testing.T, args []string) {
	t.Helper()
	known := flags(t, "promguard", args[0])
	for _, a := range args[1:] {
		name, _, _ := strings.Cut(strings.TrimPrefix(a, "--"), "=")
		require.True(t, known[name], a)
	}
}

func load(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(deployments + file)
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, into))
}

// startupProbe starts the sidecar that watches the Prometheus at an address.
func startupProbe(t *testing.T, of, stalledAfter string) *server {
	t.Helper()
	address := freeAddress(t)
	return start(t, address, "promguard", "startup-probe",
		"--prometheus.url=http://"+of, "--web.listen-address="+address, "--stalled-after="+stalledAfter)
}

func TestTheStartupProbeWaitsUntilPrometheusIsReady(t *testing.T) {
	t.Parallel()
	data, address := cluster.data(t), freeAddress(t)
	probe := startupProbe(t, address, "10m")
	answers := make(chan int, 1)
	go func() {
		if resp, err := http.Get(probe.url + "/startup"); err == nil {
			resp.Body.Close()
			answers <- resp.StatusCode
		}
		close(answers)
	}()
	config := filepath.Join(t.TempDir(), "prometheus.yml")
	require.NoError(t, os.WriteFile(config, []byte(emptyConfig), 0o644))
	start(t, address, "prometheus", "--config.file="+config, "--storage.tsdb.path="+data, "--web.listen-address="+address)
	require.Equal(t, http.StatusOK, <-answers)
}

func TestTheStartupProbeFailsWhenPrometheusDoesNothing(t *testing.T) {
	t.Parallel()
	a := get(t, startupProbe(t, freeAddress(t), "1s").url+"/startup")
	require.Equal(t, http.StatusServiceUnavailable, a.code)
	require.Contains(t, a.body, "no progress for")
}
