// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// These tests drive other projects' servers, which make test-peers builds.

// peer skips a test unless a peer's binary is there, and returns its name for
// start.
func peer(t *testing.T, name string) string {
	t.Helper()
	name = filepath.Join("peers", name)
	if _, err := os.Stat(filepath.Join(os.Getenv("PROMGUARD_BIN"), name)); err != nil {
		t.Skipf("%v: make test-peers builds it", err)
	}
	return name
}

// The range that the block of oldBlock covers, before now.
const (
	oldFrom = 30 * time.Hour
	oldTo   = 28 * time.Hour
)

// oldBlock writes blocks of one series into a data directory.
func oldBlock(t *testing.T, data, series string, now time.Time) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintln(&b, "# TYPE up gauge")
	for at := now.Add(-oldFrom); at.Before(now.Add(-oldTo)); at = at.Add(time.Minute) {
		fmt.Fprintf(&b, "%s 1 %d\n", series, at.Unix())
	}
	fmt.Fprintln(&b, "# EOF")
	file := filepath.Join(t.TempDir(), "old.om")
	require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o644))
	out, err := exec.Command(binary(t, "promtool"), "tsdb", "create-blocks-from", "openmetrics", file, data).CombinedOutput()
	require.NoError(t, err, string(out))
}

// matrix is the answer to a range query, by the labels that are compared.
func matrix(t *testing.T, server, query string, start, end time.Time, labels ...string) map[string][][2]any {
	t.Helper()
	form := url.Values{
		"query": {query}, "step": {"60"},
		"start": {strconv.FormatInt(start.Unix(), 10)}, "end": {strconv.FormatInt(end.Unix(), 10)},
	}
	resp, err := http.PostForm(server+"/api/v1/query_range", form)
	require.NoError(t, err)
	defer resp.Body.Close()
	var body struct {
		Status, Error string
		Data          struct {
			Result []struct {
				Metric map[string]string
				Values [][2]any
			}
		}
	}
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&body))
	require.Equal(t, "success", body.Status, body.Error)
	series := map[string][][2]any{}
	for _, s := range body.Data.Result {
		key := ""
		for _, l := range labels {
			key += l + "=" + s.Metric[l] + ";"
		}
		require.NotContains(t, series, key)
		series[key] = s.Values
	}
	return series
}

func TestAQueryThroughPromguardIsAnsweredByAllOfThanos(t *testing.T) {
	thanos := peer(t, "thanos")
	now := time.Now().Truncate(time.Minute)
	data, bucket, objstore := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "bucket.yml")
	require.NoError(t, os.WriteFile(objstore, fmt.Appendf(nil, "type: FILESYSTEM\nconfig: {directory: %q}\n", bucket), 0o644))
	oldBlock(t, data, `up{instance="old",job="self"}`, now)

	target := freeAddress(t) // Nothing listens there: up is 0, so both values tell where a sample comes from.
	p := prometheus(t, data, fmt.Sprintf(`
global: {scrape_interval: 1s, scrape_timeout: 1s, external_labels: {cluster: one, replica: a}}
scrape_configs: [{job_name: self, static_configs: [{targets: [%q], labels: {instance: old}}]}]
`, target), "--storage.tsdb.min-block-duration=2h", "--storage.tsdb.max-block-duration=2h", "--guard.drop-rules=recommended")

	component := func(name string, args ...string) (s *server, grpc string) {
		address, grpc := freeAddress(t), freeAddress(t)
		return start(t, address, thanos, append([]string{name, "--http-address=" + address, "--grpc-address=" + grpc}, args...)...), grpc
	}
	// The sidecar answers for the last hour only, the store gateway for the rest.
	sidecarServer, sidecar := component("sidecar", "--prometheus.url="+p.url, "--tsdb.path="+data, "--objstore.config-file="+objstore, "--min-time=-1h", "--shipper.upload-compacted")
	require.Eventually(t, func() bool {
		blocks, err := filepath.Glob(filepath.Join(bucket, "*", "meta.json"))
		local, _ := filepath.Glob(filepath.Join(data, "*", "meta.json"))
		return err == nil && len(local) > 0 && len(blocks) == len(local)
	}, time.Minute, 200*time.Millisecond, "the sidecar uploads nothing")
	_, store := component("store", "--data-dir="+t.TempDir(), "--objstore.config-file="+objstore)
	query, _ := component("query", "--endpoint-strict="+sidecar, "--endpoint-strict="+store, "--query.replica-label=replica")
	frontendAddress := freeAddress(t)
	frontend := start(t, frontendAddress, thanos, "query-frontend", "--http-address="+frontendAddress, "--query-frontend.downstream-url="+query.url)
	g := promguardBefore(t, "", "--upstream.url="+frontend.url, "--upstream.kind=thanos")

	t.Run("recent samples come from the sidecar, old ones from the bucket", func(t *testing.T) {
		from := now.Add(-oldFrom)
		want := func() map[string][][2]any { return matrix(t, p.url, `up{job="self"}`, from, now, "job", "instance") }
		got := func() map[string][][2]any { return matrix(t, g.url, `up{job="self"}`, from, now, "job", "instance") }
		values := func() map[any]int {
			n := map[any]int{}
			for _, series := range matrix(t, g.url, `up{job="self"}`, from, now.Add(5*time.Minute), "job", "instance") {
				for _, v := range series {
					n[v[1]]++
				}
			}
			return n
		}
		require.Eventually(t, func() bool { n := values(); return n["1"] > 100 && n["0"] > 0 }, time.Minute, time.Second)
		require.Equal(t, want(), got())
	})
	t.Run("external labels are those of the cluster, without the replica", func(t *testing.T) {
		require.JSONEq(t, `{"status":"success","data":["one"]}`, get(t, g.url+"/api/v1/label/cluster/values").body)
		body := get(t, g.url+"/api/v1/query?dedup=true&partial_response=false&query="+url.QueryEscape(`up{job="self"}`)).body
		require.Contains(t, body, `"cluster":"one"`)
		require.NotContains(t, body, `"replica"`)
	})
	t.Run("limits hold", func(t *testing.T) {
		refused := get(t, g.url+"/api/v1/series?match[]="+url.QueryEscape(`{le!=""}`))
		require.Equal(t, http.StatusUnprocessableEntity, refused.code, refused.body)
	})
	t.Run("the series are those that the server behind has", func(t *testing.T) {
		var status struct {
			Data struct{ HeadStats struct{ NumSeries float64 } }
		}
		require.NoError(t, json.Unmarshal([]byte(get(t, p.url+"/api/v1/status/tsdb").body), &status))
		require.NotZero(t, status.Data.HeadStats.NumSeries)
		require.Eventually(t, func() bool {
			return metric(t, g.telemetry, "promguard_upstream_series", nil) == status.Data.HeadStats.NumSeries
		}, 3*time.Minute, time.Second)
		out, err := exec.Command(binary(t, "promguard"), "explain", "--upstream.url="+frontend.url, `up{job="self"}`).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Regexp(t, `(?m)^series +enforce +1 `, string(out))
	})
	t.Run("an answer without the server passes with a warning and counts", func(t *testing.T) {
		partial := map[string]string{"class": "query"}
		require.Zero(t, metric(t, g.telemetry, "promguard_partial_answers_total", partial))
		require.NoError(t, sidecarServer.cmd.Process.Kill())
		<-sidecarServer.exited
		got := get(t, g.url+"/api/v1/query?query=up")
		require.Equal(t, http.StatusOK, got.code, got.body)
		require.Contains(t, got.body, `"warnings":[`)
		require.NotZero(t, metric(t, g.telemetry, "promguard_partial_answers_total", partial))
	})
}

func TestAQueryThroughPromguardIsAnsweredByVictoriaMetrics(t *testing.T) {
	vm := peer(t, "victoria-metrics")
	address := freeAddress(t)
	// VictoriaMetrics answers 200 to /-/ready as Prometheus does.
	v := start(t, address, vm, "-storageDataPath="+t.TempDir(), "-httpListenAddr="+address, "-search.latencyOffset=0s", "-retentionPeriod=100y")
	now := time.Now().Truncate(time.Minute)
	var b strings.Builder
	for at := now.Add(-time.Hour); !at.After(now); at = at.Add(time.Minute) {
		fmt.Fprintf(&b, "up{job=\"self\",instance=\"a\"} 1 %d\n", at.UnixMilli())
	}
	resp, err := http.Post(v.url+"/api/v1/import/prometheus", "text/plain", strings.NewReader(b.String()))
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, http.StatusNoContent, resp.StatusCode)

	guardAddress := freeAddress(t)
	g := start(t, guardAddress, "promguard", "serve", "--upstream.url="+v.url, "--upstream.kind=victoriametrics", "--web.listen-address="+guardAddress)
	from := now.Add(-time.Hour)
	require.Eventually(t, func() bool {
		return len(matrix(t, v.url, `up{job="self"}`, from, now, "job", "instance")["job=self;instance=a;"]) == 61
	}, 30*time.Second, 200*time.Millisecond)
	require.Equal(t,
		matrix(t, v.url, `up{job="self"}`, from, now, "job", "instance"),
		matrix(t, g.url, `up{job="self"}`, from, now, "job", "instance"))
	require.JSONEq(t, `{"status":"success","data":["self"]}`, get(t, g.url+"/api/v1/label/job/values").body)
	require.Equal(t, http.StatusUnprocessableEntity, get(t, g.url+"/api/v1/series?match[]="+url.QueryEscape(`{le!=""}`)).code)
}
