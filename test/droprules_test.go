// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"
)

func sendWrite(t *testing.T, root string, names ...string) {
	t.Helper()
	var series []prompb.TimeSeries
	for _, name := range names {
		series = append(series, prompb.TimeSeries{
			Labels:    []prompb.Label{{Name: "__name__", Value: name}, {Name: "path", Value: "remote-write"}},
			Samples:   []prompb.Sample{{Value: 1, Timestamp: time.Now().UnixMilli()}},
			Exemplars: []prompb.Exemplar{{Value: 1, Timestamp: time.Now().UnixMilli()}},
		})
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, root+"/api/v1/write", strings.NewReader(snappy(t, &prompb.WriteRequest{Timeseries: series})))
	require.NoError(t, err)
	req.Header.Set("Content-Encoding", "snappy")
	req.Header.Set("Content-Type", "application/x-protobuf")
	require.Equal(t, http.StatusNoContent, do(t, req).code)
}

func sendOTLP(t *testing.T, root string, names ...string) {
	t.Helper()
	var metrics []string
	for _, name := range names {
		metrics = append(metrics, fmt.Sprintf(`{"name":%q,"gauge":{"dataPoints":[{"asDouble":1,"timeUnixNano":"%d","attributes":[{"key":"path","value":{"stringValue":"otlp"}}]}]}}`, name, time.Now().UnixNano()))
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, root+"/api/v1/otlp/v1/metrics", strings.NewReader(`{"resourceMetrics":[{"scopeMetrics":[{"metrics":[`+strings.Join(metrics, ",")+`]}]}]}`))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	a := do(t, req)
	require.Equal(t, http.StatusOK, a.code, a.body)
}

// A histogram that loses bounds in one path and not in another gives wrong
// quantiles where both are summed.
func TestDropRulesHoldForAllThatComesInButWhereTheyAreOff(t *testing.T) {
	t.Parallel()
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		fmt.Fprint(w, "kubernetes_feature_enabled{path=\"scrape\"} 1\nkubernetes_build_info{path=\"scrape\"} 1\n")
	}))
	defer target.Close()
	config := fmt.Sprintf("global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs: [{job_name: a, static_configs: [{targets: [%q]}]}]\n", strings.TrimPrefix(target.URL, "http://"))
	for flag, want := range map[string][]string{
		"minimal":                       nil,
		"minimal,remote-write=off":      {"remote-write"},
		"minimal,otlp=off":              {"otlp"},
		"off,otlp=minimal":              {"remote-write", "scrape"},
		"off":                           {"otlp", "remote-write", "scrape"},
		"off,remote-write=off,otlp=off": {"otlp", "remote-write", "scrape"},
	} {
		t.Run(flag, func(t *testing.T) {
			p := prometheus(t, t.TempDir(), config, "--guard.drop-rules="+flag, "--web.enable-remote-write-receiver", "--web.enable-otlp-receiver")
			sendWrite(t, p.url, "kubernetes_feature_enabled", "kubernetes_build_info")
			sendOTLP(t, p.url, "kubernetes_feature_enabled", "kubernetes_build_info")
			paths := func(name string) []string {
				return slices.DeleteFunc([]string{"otlp", "remote-write", "scrape"}, func(path string) bool {
					return !strings.Contains(get(t, p.url+"/api/v1/series?match[]="+url.QueryEscape(fmt.Sprintf("%s{path=%q}", name, path))).body, path)
				})
			}
			eventually(t, "series of every way in", func() bool { return len(paths("kubernetes_build_info")) == 3 })
			require.ElementsMatch(t, want, paths("kubernetes_feature_enabled"))
			for _, path := range []string{"otlp", "remote-write"} {
				if !slices.Contains(want, path) {
					require.Equal(t, 1.0, metric(t, p.url, "prometheus_guard_drop_rules_dropped_samples_total",
						map[string]string{"profile": "minimal", "rule": "kubernetes-feature-gates", "path": path}))
				}
			}
		})
	}
}

func TestAnAgentDropsAndRefusesTheFlagsOfServers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(emptyConfig), 0o644))
	for name := range guardOff {
		if name == "guard.drop-rules" {
			require.Contains(t, section(t, "memory.md", "Agents"), "`--"+name+"`")
			continue
		}
		refused := command(t, "prometheus", dir, "", "--agent", "--config.file=prometheus.yml", "--"+name+"=off")
		require.Equal(t, 3, refused.code, name)
		require.Contains(t, refused.out, fmt.Sprintf(`can not be used in agent mode: ["--%s"]`, name))
	}
	address := freeAddress(t)
	agent := start(t, address, "prometheus", "--agent", "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.agent.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--web.enable-remote-write-receiver", "--guard.drop-rules=minimal")
	sendWrite(t, agent.url, "kubernetes_feature_enabled", "kubernetes_build_info")
	require.Equal(t, 1.0, metric(t, agent.url, "prometheus_guard_drop_rules_dropped_samples_total", map[string]string{"path": "remote-write"}))
	require.Equal(t, 1.0, metric(t, agent.url, "prometheus_agent_active_series", nil))
	require.NotContains(t, get(t, agent.url+"/metrics").body, "prometheus_guard_label_", "it packs labels")
}

func TestRulesThatReadWhatIsDroppedAreToldAtStartAndAtReload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "rules.yml")
	write := func(rules ...string) {
		require.NoError(t, os.WriteFile(file, []byte("groups:\n- name: mine\n  rules:\n  - "+strings.Join(rules, "\n  - ")+"\n"), 0o644))
	}
	const absent = `{alert: NoTolerations, expr: absent(kube_pod_tolerations)}`
	write(absent, `{alert: NoPods, expr: absent(kube_pod_info)}`)
	config := fmt.Sprintf("rule_files: [%q]\n", file)
	p := prometheus(t, t.TempDir(), config, "--web.enable-lifecycle")
	told := func(rule string) int {
		return strings.Count(p.out.String(), "file="+file+" group=mine rule="+rule+" ")
	}
	blind := func() float64 { return metric(t, p.url, "prometheus_guard_blind_rules", nil) }
	require.Equal(t, 1, told("NoTolerations"))
	require.Contains(t, p.out.String(), "drop_rule=ksm-pod-tolerations")
	require.Zero(t, told("NoPods"))
	require.Equal(t, 1.0, metric(t, p.url, "prometheus_guard_blind_rules", map[string]string{"drop_rule": "ksm-pod-tolerations", "effect": "absent"}))
	require.Contains(t, p.out.String(), "Default drop rules discard series")
	require.Contains(t, p.out.String(), "off=\"--guard.drop-rules=off\"")

	write(absent, `{record: body, expr: 'sum(rate(apiserver_request_body_size_bytes_bucket[5m]))'}`)
	require.Equal(t, http.StatusOK, post(t, p.url+"/-/reload", "").code)
	require.Equal(t, 1, told("NoTolerations"), "it was told before")
	require.Equal(t, 1, told("body"))
	require.Equal(t, 2.0, blind())
	write(`{alert: NoPods, expr: absent(kube_pod_info)}`)
	require.Equal(t, http.StatusOK, post(t, p.url+"/-/reload", "").code)
	require.NotContains(t, get(t, p.url+"/metrics").body, "prometheus_guard_blind_rules{")

	write(absent)
	off := prometheus(t, t.TempDir(), config, "--guard.drop-rules=off")
	require.NotContains(t, off.out.String(), "NoTolerations")
	require.NotContains(t, off.out.String(), "discard")
}

func TestPromtoolKnowsTheLabelThatNamesDropRules(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	check := func(replacement string) outcome {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), fmt.Appendf(nil,
			"scrape_configs: [{job_name: a, relabel_configs: [{target_label: __promguard_drop_rules__, replacement: %q}]}]\n", replacement), 0o644))
		return command(t, "promtool", dir, "", "check", "config", "prometheus.yml")
	}
	require.Zero(t, check("off").code)
	wrong := check("none")
	require.Equal(t, 1, wrong.code)
	require.Contains(t, wrong.out, `relabel_configs of scrape config "a": __promguard_drop_rules__: "none" is not one of minimal, recommended, aggressive, off`)
}
