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
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/deploy"
)

// ofTheBinaries are the dashboards that show what these binaries export; the others
// are evaluated on a modelled cluster, in deploy.
var ofTheBinaries = regexp.MustCompile(`^promguard-(proxy|refusals|queries|server|drop-rules)\.json`)

// quiet is what does not happen in some seconds here: a replay, an answer that is cut
// off, a rule that is missed.
var quiet = regexp.MustCompile(`(?s)wal_replay_progress_ratio|responses_aborted_total|iterations_missed_total.* > 0$`)

// panelsOfTheBinaries returns what these dashboards ask, with the shortest windows.
func panelsOfTheBinaries(t *testing.T) map[deploy.Panel]error {
	t.Helper()
	all, err := deploy.Panels(deployments+"grafana/dashboards", strings.NewReplacer("$__rate_interval", "4s", "$cluster", "", "$pod", ".*", "$instance", ".*"))
	require.NoError(t, err)
	waiting := map[deploy.Panel]error{}
	for _, p := range all {
		if ofTheBinaries.MatchString(p.Place) && !quiet.MatchString(p.Expr) {
			waiting[p] = nil
		}
	}
	require.NotEmpty(t, waiting)
	return waiting
}

// askPanel asks what the panel asks; an answer that is refused, warned about, empty or
// without the labels of its legend is an error.
func askPanel(t *testing.T, root string, p deploy.Panel) error {
	t.Helper()
	now := time.Now().Unix()
	form, path := url.Values{"query": {p.Expr}, "timeout": {"60s"}}, "query"
	if !p.Instant {
		form["start"], form["end"], form["step"] = []string{strconv.FormatInt(now-60, 10)}, []string{strconv.FormatInt(now, 10)}, []string{"1"}
		path = "query_range"
	}
	a := post(t, root+"/api/v1/"+path, form.Encode())
	var body struct {
		Warnings, Infos []string
		Data            struct {
			Result []struct{ Metric labels.Labels }
		}
	}
	if err := json.Unmarshal([]byte(a.body), &body); err != nil || a.code != http.StatusOK || len(body.Warnings)+len(body.Infos) > 0 {
		return fmt.Errorf("%d: %s", a.code, a.body)
	}
	if len(body.Data.Result) == 0 {
		return fmt.Errorf("no series of %s", p.Expr)
	}
	var series []labels.Labels
	for _, s := range body.Data.Result {
		series = append(series, s.Metric)
	}
	return p.CheckLegends(series)
}

// What the binaries export has the labels that the dashboards about them read, and the
// proxy with the policy that is deployed lets every panel through.
func TestEveryPanelAboutTheBinariesShowsThem(t *testing.T) {
	t.Parallel()
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		fmt.Fprintln(w, `kubernetes_feature_enabled{name="any"} 1`)
	}))
	t.Cleanup(target.Close)
	p := prometheus(t, t.TempDir(), emptyConfig, "--web.enable-lifecycle", "--web.enable-remote-write-receiver")
	policy, err := os.ReadFile(deployments + "kubernetes/promguard/promguard.yml")
	require.NoError(t, err)
	g, _ := promguardWith(t, p, string(policy)+"limits: {range: {mode: observe, max: 1h}, metadata_range: {mode: enforce, default: 1h}}\n")
	rules, err := filepath.Abs(deployments + "grafana/rules/promguard.yaml")
	require.NoError(t, err)
	config := "global: {scrape_interval: 500ms}\nrule_files: ['" + rules + "']\nscrape_configs:\n"
	for job, address := range map[string]string{"prometheus-k8s": p.url, "promguard": g.telemetry, "other": target.URL} {
		config += fmt.Sprintf("- {job_name: %s, static_configs: [{targets: [%q], labels: {pod: %s-0}}]}\n", job, strings.TrimPrefix(address, "http://"), job)
	}
	require.NoError(t, os.WriteFile(p.configFile(), []byte(config), 0o644))
	require.Equal(t, http.StatusOK, post(t, p.url+"/-/reload", "").code)

	waiting := panelsOfTheBinaries(t)
	for deadline := time.Now().Add(patience); len(waiting) > 0 && time.Now().Before(deadline); time.Sleep(time.Second) {
		sendWrite(t, p.url, "kubernetes_feature_enabled")
		get(t, g.url+`/api/v1/series?match[]={le!=""}`)  // Refused.
		get(t, g.url+`/api/v1/query?query=rate(up[2h])`) // Beyond a limit that is observed.
		get(t, g.url+`/api/v1/labels`)                   // Given a start.
		post(t, p.url+"/api/v1/query", "query=1"+strings.Repeat("%2B1", 10_001))
		for panel := range waiting {
			if waiting[panel] = askPanel(t, g.url, panel); waiting[panel] == nil {
				delete(waiting, panel)
			}
		}
	}
	for panel, err := range waiting {
		t.Errorf("%s: %v", panel.Place, err)
	}
}
