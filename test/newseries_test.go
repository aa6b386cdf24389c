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
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// explodingTarget exposes the same 50 series and 500 new ones at each scrape, in the
// format given.
func explodingTarget(t *testing.T, format string) string {
	t.Helper()
	var scrapes atomic.Int64
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		scrape := scrapes.Add(1)
		for i := range 50 {
			fmt.Fprintf(w, "innocent_total{path=\"/%d\"} 1\n", i)
		}
		for i := range 500 {
			fmt.Fprintf(w, format, scrape, i)
		}
	}))
	t.Cleanup(target.Close)
	return target.Listener.Addr().String()
}

const (
	newValues = "exploding_total{path=\"/\",request_id=\"%d-%d\"} 1\n"
	newNames  = "exploding_%d_%d_total 1\n"
)

// culprit is who adds most series, as the API tells.
type culprit struct {
	Job, Metric, Relabel, Limit string
	Labels                      []struct{ Name string }
	Share                       float64
}

func culprits(t *testing.T, p *server) []culprit {
	t.Helper()
	var status struct {
		Data struct {
			NewSeries struct{ Culprits []culprit }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(get(t, p.url+"/api/v1/status/guard").body), &status))
	return status.Data.NewSeries.Culprits
}

func TestWhoAddsSeriesIsNamedAndTheRuleThatIsToldDropsThemAndNoOthers(t *testing.T) {
	t.Parallel()
	config := "scrape_configs:\n- job_name: api\n  scrape_interval: 200ms\n  static_configs: [{targets: ['" + explodingTarget(t, newValues) + "']}]\n"
	p := prometheus(t, t.TempDir(), config, "--web.enable-lifecycle")
	var c culprit
	eventually(t, "a culprit", func() bool {
		if all := culprits(t, p); len(all) > 0 {
			c = all[0]
		}
		return c.Share > 0.8
	})
	require.Equal(t, "api exploding_total", c.Job+" "+c.Metric)
	require.Equal(t, "request_id", c.Labels[0].Name)
	eventually(t, "its series are counted", func() bool {
		return metric(t, p.url, "prometheus_guard_new_series", map[string]string{"culprit_job": "api", "culprit_metric": "exploding_total"}) > 900
	})

	require.NoError(t, os.WriteFile(p.configFile(), []byte(config+"  "+c.Relabel+"\n"), 0o644))
	require.Equal(t, http.StatusOK, post(t, p.url+"/-/reload", "").code)
	eventually(t, "a scrape without the culprit's series", func() bool {
		return strings.Contains(get(t, p.url+"/api/v1/query?query=scrape_samples_post_metric_relabeling").body, `,"50"]`)
	})
}

func TestTheLimitThatIsToldKeepsNewSeriesOutAndTheOthersIn(t *testing.T) {
	t.Parallel()
	config := "scrape_configs:\n- job_name: api\n  scrape_interval: 200ms\n  static_configs: [{targets: ['" + explodingTarget(t, newNames) + "']}]\n"
	_, example, _ := strings.Cut(section(t, "series-limits.md", "Fixed limits"), "```yaml\n")
	example, _, closed := strings.Cut(example, "```")
	require.True(t, closed)
	limits := filepath.Join(t.TempDir(), "limits.yml")
	require.NoError(t, os.WriteFile(limits, []byte(example), 0o644))
	p := prometheus(t, t.TempDir(), config, "--web.enable-lifecycle", "--guard.series-limits="+limits)
	var c culprit
	eventually(t, "a culprit", func() bool {
		if all := culprits(t, p); len(all) > 0 {
			c = all[0]
		}
		return c.Share > 0.8
	})
	require.Equal(t, "api", c.Job)
	require.Equal(t, "__name__", c.Labels[0].Name)
	require.Empty(t, c.Relabel, "it would drop the whole job")

	require.NoError(t, os.WriteFile(limits, []byte(c.Limit+"\n"), 0o644))
	require.Equal(t, http.StatusOK, post(t, p.url+"/-/reload", "").code)
	query := func(q string) string { return get(t, p.url+"/api/v1/query?query="+url.QueryEscape(q)).body }
	eventually(t, "a scrape all of whose new series are refused, and no others", func() bool {
		return strings.Contains(query("scrape_series_refused"), `,"500"]`) && strings.Contains(query("count(innocent_total)"), `,"50"]`) &&
			strings.Contains(query("up"), `,"1"]`)
	})
}

func TestASecondStartBlamesNobodyForWhatItHasReplayed(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	config := "scrape_configs:\n- job_name: api\n  scrape_interval: 200ms\n  static_configs: [{targets: ['" + explodingTarget(t, newValues) + "']}]\n"
	p := prometheus(t, data, config)
	eventually(t, "a culprit", func() bool { return len(culprits(t, p)) > 0 })
	p.stop(t)
	p = prometheus(t, data, emptyConfig)
	require.Empty(t, culprits(t, p))
	require.Greater(t, metric(t, p.url, "prometheus_tsdb_head_series", nil), 1000.0)
}
