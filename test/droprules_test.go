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
			require.Eventually(t, func() bool { return len(paths("kubernetes_build_info")) == 3 }, 20*time.Second, 100*time.Millisecond)
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
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(emptyConfig), 0o644))
	for name := range guardOff {
		if name == "guard.drop-rules" {
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
}
