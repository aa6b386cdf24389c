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

	"github.com/stretchr/testify/require"
)

func TestVersionSaysWhichBuildItIs(t *testing.T) {
	t.Parallel()
	out, err := exec.Command(binary(t, "prometheus"), "--version").CombinedOutput()
	require.NoError(t, err)
	require.Regexp(t, `^prometheus, version 3\.\d+\.\d+\+promguard\.\d+ `, string(out))

	p := prometheus(t, t.TempDir(), emptyConfig)
	require.Contains(t, get(t, p.url+"/api/v1/status/buildinfo").body, "+promguard.")
	require.Equal(t, 1.0, metric(t, p.url, "prometheus_build_info", nil))
}

func TestAServerWithoutItsUISaysWhatToOpenAndAllOfItOpens(t *testing.T) {
	t.Parallel()
	p := prometheus(t, t.TempDir(), emptyConfig)
	page := get(t, p.url+"/")
	require.Equal(t, 200, page.code)
	if !strings.Contains(page.body, "built without its web UI") {
		t.Skip("this build has the web UI")
	}
	links := regexp.MustCompile(`href="([^"]+)"`).FindAllStringSubmatch(page.body, -1)
	require.Greater(t, len(links), 10)
	for _, link := range links {
		require.Equal(t, 200, get(t, p.url+link[1]).code, link[1])
	}
}

func TestReplayCapIsInForceDuringReplayAndRestoredAfter(t *testing.T) {
	t.Parallel()
	runtimeInfo := func(p *server) string { return get(t, p.url+"/api/v1/status/runtimeinfo").body }
	for flag, during := range map[string]float64{"1": 1, "64": 3} {
		t.Run(flag, func(t *testing.T) {
			p := prometheus(t, cluster.data(t), emptyConfig, "--guard.wal-replay-gomaxprocs="+flag, "GOMAXPROCS=3")
			require.Equal(t, during, metric(t, p.url, "prometheus_guard_wal_replay_gomaxprocs", nil))
			require.Contains(t, runtimeInfo(p), `"GOMAXPROCS":3`)
			require.GreaterOrEqual(t, metric(t, p.url, "prometheus_tsdb_head_series", nil), float64(clusterSeries))
			require.Equal(t, flag == "1", strings.Contains(p.out.String(), "WAL replay uses fewer processors"))
		})
	}
}

func TestReplayThatFailsRestoresTheProcessors(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(data, "wal"), []byte("not a directory"), 0o644))
	config := filepath.Join(t.TempDir(), "prometheus.yml")
	require.NoError(t, os.WriteFile(config, []byte(emptyConfig), 0o644))
	cmd := exec.Command(binary(t, "prometheus"), "--config.file="+config, "--storage.tsdb.path="+data,
		"--web.listen-address="+freeAddress(t), "--guard.wal-replay-gomaxprocs=1")
	cmd.Env = append(os.Environ(), "GOMAXPROCS=3")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "WAL replay has ended, all processors are used again")
	require.Contains(t, string(out), "opening storage failed")
}

func TestReplayCapRefusesWhatIsNoNumber(t *testing.T) {
	t.Parallel()
	out, err := exec.Command(binary(t, "prometheus"), "--guard.wal-replay-gomaxprocs=many").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), `"many" is neither auto, off, nor a number of processors`)
}

func TestDropRulesApplyToEveryScrapeUnlessOff(t *testing.T) {
	t.Parallel()
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		fmt.Fprintln(w, `kubernetes_feature_enabled{name="A",stage="BETA"} 1`)
		fmt.Fprintln(w, `kubernetes_feature_enabled{name="B",stage="BETA"} 0`)
		fmt.Fprintln(w, `kubernetes_build_info{git_version="v1.35.0"} 1`)
	}))
	defer target.Close()
	address, err := url.Parse(target.URL)
	require.NoError(t, err)
	config := fmt.Sprintf(`
global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs:
- job_name: apiserver
  static_configs: [{targets: [%q]}]
`, address.Host)
	for flag, wantFeatures := range map[string]int{"minimal": 0, "off": 2} {
		t.Run(flag, func(t *testing.T) {
			p := prometheus(t, t.TempDir(), config, "--guard.drop-rules="+flag)
			series := func(name string) int {
				return strings.Count(get(t, p.url+"/api/v1/series?match[]="+name).body, `"__name__"`)
			}
			eventually(t, "the target is scraped", func() bool { return series("kubernetes_build_info") == 1 })
			require.Equal(t, wantFeatures, series("kubernetes_feature_enabled"))
			if flag == "off" {
				require.NotContains(t, get(t, p.url+"/metrics").body, "prometheus_guard_drop_rule")
				require.NotContains(t, get(t, p.url+"/api/v1/targets").body, "drop_rules")
				return
			}
			require.Equal(t, 2.0, metric(t, p.url, "prometheus_guard_drop_rules_dropped_series_total",
				map[string]string{"profile": "minimal", "rule": "kubernetes-feature-gates", "scrape_job": "apiserver"}))
		})
	}
}

func TestDropRulesOfAFileAreReloadedAndATargetCanOptOut(t *testing.T) {
	t.Parallel()
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		fmt.Fprint(w, "unread 1\nkept 1\nlate 1\n")
	}))
	defer target.Close()
	address, err := url.Parse(target.URL)
	require.NoError(t, err)
	rules := filepath.Join(t.TempDir(), "rules.yml")
	write := func(profile, name string) {
		require.NoError(t, os.WriteFile(rules, fmt.Appendf(nil, `name: %s
rules:
- {id: drop-%[2]s, class: unused, source_labels: [__name__], regex: %[2]s, reason: nobody reads it}
`, profile, name), 0o644))
	}
	config := fmt.Sprintf(`
global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs:
- {job_name: judged, static_configs: [{targets: [%[1]q]}]}
- {job_name: left-alone, static_configs: [{targets: [%[1]q], labels: {__promguard_drop_rules__: "off"}}]}
- {job_name: mistaken, static_configs: [{targets: [%[1]q], labels: {__promguard_drop_rules__: none}}]}
- {job_name: minimal, static_configs: [{targets: [%[1]q], labels: {__promguard_drop_rules__: minimal}}]}
`, address.Host)
	write("own", "unread")
	p := prometheus(t, t.TempDir(), config, "--guard.drop-rules="+rules, "--web.enable-lifecycle")
	jobs := func(series string) string {
		return get(t, p.url+"/api/v1/label/job/values?match[]="+url.QueryEscape(series)).body
	}
	all, leftAlone := `["judged","left-alone","minimal","mistaken"]`, `["left-alone","minimal"]`
	eventually(t, "all jobs are scraped", func() bool { return strings.Contains(jobs("kept"), all) })
	require.Contains(t, jobs("unread"), leftAlone)
	require.Contains(t, jobs("late"), all)
	targets := get(t, p.url+"/api/v1/targets").body
	for profile, count := range map[string]int{"own": 1, "off": 1, "none": 1, "minimal": 1} {
		require.Equal(t, count, strings.Count(targets, fmt.Sprintf(`"__promguard_drop_rules__":%q`, profile)), profile)
	}
	require.Equal(t, 1, strings.Count(p.out.String(), "A target names unknown drop rules"))

	reload := func() int {
		resp, err := http.Post(p.url+"/-/reload", "", nil)
		require.NoError(t, err)
		defer resp.Body.Close()
		return resp.StatusCode
	}
	require.NoError(t, os.WriteFile(rules, []byte("name: own\nrules: [{id: x}]\n"), 0o644))
	require.Equal(t, http.StatusInternalServerError, reload())
	require.Contains(t, p.out.String(), rules+": line 2")

	// Series that the scrapes know are judged by the new rules, although nothing
	// else has changed.
	write("own", "late")
	require.Equal(t, http.StatusOK, reload())
	dropped := map[string]string{"profile": "own", "rule": "drop-late", "scrape_job": "judged"}
	eventually(t, "the new rules are in force", func() bool {
		return metric(t, p.url, "prometheus_guard_drop_rules_dropped_series_total", dropped) == 1 &&
			strings.Contains(jobs("unread"), all)
	})
	require.Equal(t, 1.0, metric(t, p.url, "prometheus_guard_drop_rule_info", map[string]string{"profile": "own", "rule": "drop-late", "class": "unused"}))
	require.Zero(t, metric(t, p.url, "prometheus_guard_drop_rule_info", map[string]string{"rule": "drop-unread"}))

	write("renamed", "late")
	require.Equal(t, http.StatusOK, reload())
	eventually(t, "the targets have the new name", func() bool {
		return strings.Contains(get(t, p.url+"/api/v1/targets").body, `"__promguard_drop_rules__":"renamed"`)
	})
	require.Equal(t, 1, strings.Count(p.out.String(), "A target names unknown drop rules"), "nobody named what was renamed")

	out, err := exec.Command(binary(t, "prometheus"), "--config.file="+p.configFile(), "--storage.tsdb.path="+t.TempDir(), "--guard.drop-rules=none.yml").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "--guard.drop-rules=none.yml is not one of minimal, recommended, aggressive, off")
}

// With an hour between the ticks at which the targets are taken, those that are
// found while the server starts would never be scraped in this test if they waited
// for one.
func TestTargetsAreScrapedWithoutWaitingForATick(t *testing.T) {
	t.Parallel()
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "up_to_date 1") }))
	defer target.Close()
	address := strings.TrimPrefix(target.URL, "http://")
	fastScraped := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-fastScraped:
		case <-r.Context().Done():
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `[{"targets":[%q]}]`, address)
	}))
	defer slow.Close()
	config := fmt.Sprintf(`global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs:
- {job_name: fast, static_configs: [{targets: [%q]}]}
- {job_name: slow, http_sd_configs: [{url: %q}]}
`, address, slow.URL)
	p := prometheus(t, t.TempDir(), config, "--scrape.discovery-reload-interval=1h")
	scraped := func(job string) func() bool {
		return func() bool {
			return strings.Contains(get(t, p.url+"/api/v1/query?query="+url.QueryEscape(`up{job="`+job+`"}`)).body, `"1"`)
		}
	}
	eventually(t, "the target found at once is scraped", scraped("fast"))
	close(fastScraped)
	eventually(t, "the target found later is scraped", scraped("slow"))
}
