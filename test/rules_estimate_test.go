// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// exposition has what ownRules drop: 2 and 3 series, and of the histogram 1 in
// each of 2 spellings of its bounds.
const exposition = `# TYPE disk_reads_total counter
disk_reads_total{disk="a"} 1
disk_reads_total{disk="b"} 1
disk_reads_total{disk="c"} 1
# TYPE queue_age gauge
queue_age{queue="test"} 1
queue_age{queue="staging"} 1
queue_age{queue="production"} 1
# TYPE request_seconds histogram
request_seconds_bucket{le="1"} 1
request_seconds_bucket{le="2"} 2
request_seconds_bucket{le="5"} 3
request_seconds_bucket{le="+Inf"} 3
request_seconds_sum 3
request_seconds_count 3
`

const ownRules = `name: ours
summary: Ours.
rules:
  - {id: disks, class: unused, source_labels: [__name__], regex: 'disk_.*', reason: nobody looks}
  - {id: queues, class: unused, source_labels: [__name__, queue], regex: 'queue_age;(test|staging)', jobs: [app], reason: nobody looks}
  - {id: bounds, class: thin, histograms: [request_seconds], drop_le: [2], bounds: [1, 2, 5], reason: too fine}
`

// scraping starts a Prometheus without drop rules that scrapes the exposition.
func scraping(t *testing.T, data string) *server {
	t.Helper()
	return scrapingWith(t, data, 12, "--guard.drop-rules=off")
}

// scrapingWith starts a Prometheus that scrapes the exposition as job app every
// second, and waits until it has kept as many series of it.
func scrapingWith(t *testing.T, data string, kept int, flags ...string) *server {
	t.Helper()
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = w.Write([]byte(exposition))
	}))
	t.Cleanup(target.Close)
	p := prometheus(t, data, `
global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs:
- job_name: app
  static_configs: [{targets: ["`+strings.TrimPrefix(target.URL, "http://")+`"]}]
`, flags...)
	eventually(t, "the target is scraped", func() bool {
		return strings.Contains(get(t, p.url+"/api/v1/query?query=scrape_samples_post_metric_relabeling").body, fmt.Sprintf("%q", strconv.Itoa(kept)))
	})
	return p
}

type estimated struct {
	Rules []struct {
		ID      string         `json:"id"`
		Series  int            `json:"series"`
		Rate    float64        `json:"samples_per_second"`
		Jobs    map[string]int `json:"jobs"`
		Unknown string         `json:"unknown"`
	} `json:"rules"`
	Of struct {
		Series int `json:"series"`
	} `json:"of"`
	Jobs []struct {
		Job      string  `json:"job"`
		Interval float64 `json:"interval_seconds"`
	} `json:"jobs"`
}

func estimate(t *testing.T, args ...string) estimated {
	t.Helper()
	rules := filepath.Join(t.TempDir(), "rules.yml")
	require.NoError(t, os.WriteFile(rules, []byte(ownRules), 0o644))
	cmd := exec.Command(binary(t, "promguard"), append([]string{"rules", "estimate", "--rules=" + rules, "--output=json"}, args...)...)
	out, err := cmd.Output()
	require.NoError(t, err, "%s", out)
	var e estimated
	require.NoError(t, json.Unmarshal(out, &e))
	return e
}

func requireOurs(t *testing.T, e estimated) {
	t.Helper()
	series := map[string]int{}
	for _, r := range e.Rules {
		require.Empty(t, r.Unknown)
		series[r.ID] = r.Series
		require.Equal(t, map[string]int{"app": r.Series}, r.Jobs)
	}
	require.Equal(t, map[string]int{"disks": 3, "queues": 2, "bounds": 1}, series)
}

func TestEstimateOfALiveServerIsWhatItsRulesDrop(t *testing.T) {
	t.Parallel()
	p := scraping(t, filepath.Join(t.TempDir(), "data"))
	g := promguard(t, p)
	for name, url := range map[string]string{"direct": p.url, "proxied": g.url} {
		e := estimate(t, "--prometheus.url="+url)
		requireOurs(t, e)
		require.Equal(t, 12, e.Of.Series, name)
		require.Len(t, e.Jobs, 1)
		require.InDelta(t, 1, e.Jobs[0].Interval, 0, name)
	}
}

// The same rules, applied.
func TestEstimateIsWhatThePatchedBuildDropsWithTheRules(t *testing.T) {
	t.Parallel()
	rules := filepath.Join(t.TempDir(), "rules.yml")
	require.NoError(t, os.WriteFile(rules, []byte(ownRules), 0o644))
	p := scrapingWith(t, filepath.Join(t.TempDir(), "data"), 6, "--guard.drop-rules="+rules)
	for rule, want := range map[string]float64{"disks": 3, "queues": 2, "bounds": 1} {
		require.InDelta(t, want, metric(t, p.url, "prometheus_guard_drop_rules_dropped_series_total", map[string]string{"rule": rule}), 0, rule)
	}
	// It has nothing left to count.
	out, err := exec.Command(binary(t, "promguard"), "rules", "estimate", "--rules="+rules, "--prometheus.url="+p.url).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.True(t, strings.HasPrefix(string(out), "6 SERIES ARE DROPPED ALREADY, "), "%s", out)
	require.Contains(t, string(out), "3 rules that find nothing to drop")
}

// What is suggested for a live server can be loaded, is proved, and is what the
// patched build then drops.
func TestSuggestedRulesAreProvedAndApplied(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rules, suggested := filepath.Join(dir, "rules.yml"), filepath.Join(dir, "suggested.yml")
	require.NoError(t, os.WriteFile(rules, []byte(`
groups:
- name: g
  rules:
  - {alert: Old, expr: 'max(queue_age{queue="production"}) > 1'}
  - {alert: Slow, expr: 'rate(request_seconds_sum[5m]) / rate(request_seconds_count[5m]) > 1'}
`), 0o644))
	run := func(args ...string) {
		t.Helper()
		out, err := exec.Command(binary(t, "promguard"), args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	p := scraping(t, filepath.Join(dir, "data"))
	run("rules", "suggest", "--rule-files="+rules, "--prometheus.url="+promguard(t, p).url, "--out="+suggested)
	run("rules", "check", "--rules="+suggested, "--rule-files="+rules, "--prometheus.url="+p.url)
	text, err := os.ReadFile(suggested)
	require.NoError(t, err)
	require.Contains(t, string(text), "# They drop 9 of 12 series")

	with := scrapingWith(t, filepath.Join(dir, "with"), 3, "--guard.drop-rules="+suggested)
	require.InDelta(t, 9, metric(t, with.url, "prometheus_guard_drop_rules_dropped_series_total", map[string]string{"profile": "suggested"}), 0)
	require.Contains(t, get(t, with.url+"/api/v1/query?query="+url.QueryEscape(`max(queue_age{queue="production"})`)).body, `"1"`)
}

// A server that runs the default profile, and scrapes itself and something that the
// profile drops. Loading what is suggested for it brings nothing of that back.
func TestSuggestedRulesKeepTheProfileInForce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rules, suggested := filepath.Join(dir, "rules.yml"), filepath.Join(dir, "suggested.yml")
	require.NoError(t, os.WriteFile(rules, []byte("groups: [{name: g, rules: [{alert: A, expr: disk_reads_total > 1}]}]"), 0o644))
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = w.Write([]byte(exposition + "container_tasks_state{id=\"/\",state=\"running\"} 1\n"))
	}))
	t.Cleanup(target.Close)
	config := `
global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs:
- job_name: kubelet
  static_configs: [{targets: ["` + strings.TrimPrefix(target.URL, "http://") + `"]}]
`
	drops := func(p *server) bool {
		body := get(t, p.url+"/metrics").body
		return strings.Contains(body, `prometheus_guard_drop_rules_dropped_series_total{`) && strings.Contains(body, `scrape_job="kubelet"`)
	}
	first := prometheus(t, filepath.Join(dir, "data"), config)
	eventually(t, "the profile drops something", func() bool { return drops(first) })
	self := config + "- job_name: self\n  static_configs: [{targets: [\"" + strings.TrimPrefix(first.url, "http://") + "\"]}]\n"
	second := prometheus(t, filepath.Join(dir, "second"), self)
	eventually(t, "the rules in force are scraped", func() bool {
		return drops(second) && strings.Contains(get(t, second.url+"/api/v1/query?query=prometheus_guard_drop_rule_info").body, "recommended") &&
			strings.Contains(get(t, second.url+"/api/v1/query?query=disk_reads_total").body, "value")
	})
	out, err := exec.Command(binary(t, "promguard"), "rules", "suggest", "--rule-files="+rules, "--prometheus.url="+second.url, "--out="+suggested).CombinedOutput()
	require.NoError(t, err, "%s", out)
	text, err := os.ReadFile(suggested)
	require.NoError(t, err)
	require.Contains(t, string(text), "\nextends: recommended\n")
	require.Contains(t, string(text), "queue_age")

	third := prometheus(t, filepath.Join(dir, "third"), config, "--guard.drop-rules="+suggested)
	eventually(t, "the suggested rules drop something", func() bool {
		return drops(third) && strings.Contains(get(t, third.url+"/api/v1/query?query=disk_reads_total").body, "value")
	})
	require.NotContains(t, get(t, third.url+"/api/v1/query?query=container_tasks_state").body, `"value"`)
	require.NotContains(t, get(t, third.url+"/api/v1/query?query=queue_age").body, `"value"`)
}
