// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"
)

// builds of Prometheus that promguard stands in front of.
var builds = []string{"prometheus", "stock/prometheus"}

// serverAt starts a build of Prometheus at an address.
func serverAt(t *testing.T, build, address, data, config string, flags ...string) *server {
	t.Helper()
	file := filepath.Join(t.TempDir(), "prometheus.yml")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o644))
	return start(t, address, build, append([]string{
		"--config.file=" + file, "--storage.tsdb.path=" + data, "--web.listen-address=" + address, "--storage.tsdb.retention.time=100y",
	}, flags...)...)
}

func (s *server) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, s.cmd.Process.Kill())
	<-s.exited
}

// promguardBefore starts promguard with a policy and flags.
func promguardBefore(t *testing.T, policy string, flags ...string) promguardServer {
	t.Helper()
	file := filepath.Join(t.TempDir(), "promguard.yml")
	require.NoError(t, os.WriteFile(file, []byte(policy), 0o644))
	address, telemetry := freeAddress(t), freeAddress(t)
	s := start(t, address, "promguard", append([]string{
		"serve", "--config.file=" + file, "--web.listen-address=" + address, "--web.telemetry-address=" + telemetry,
	}, flags...)...)
	return promguardServer{s, "http://" + telemetry}
}

// hang stops the server where it is, until SIGCONT or the end of the test. It waits for
// each thread: one that still runs may answer.
func (s *server) hang(t *testing.T) {
	t.Helper()
	process := s.cmd.Process
	require.NoError(t, process.Signal(syscall.SIGSTOP))
	t.Cleanup(func() { _ = process.Signal(syscall.SIGCONT) })
	eventually(t, "all threads are stopped", func() bool {
		states, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", process.Pid))
		require.NoError(t, err)
		require.NotEmpty(t, states)
		return !slices.ContainsFunc(states, func(file string) bool {
			state, err := os.ReadFile(file)
			return err != nil || !strings.Contains(string(state), "State:\tT")
		})
	})
}

func preferred(t *testing.T, g promguardServer, s *server) bool {
	t.Helper()
	return metric(t, g.telemetry, "promguard_upstream_preferred", map[string]string{"server": s.url}) == 1
}

func TestReadsGoOnWhileOneOfTwoServersIsKilledAndReplays(t *testing.T) {
	t.Parallel()
	address, data := freeAddress(t), few.data(t)
	same := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.CopyFS(same, os.DirFS(data)))
	first := serverAt(t, "stock/prometheus", address, data, emptyConfig)
	second := serverAt(t, "prometheus", freeAddress(t), same, emptyConfig)
	g := promguardBefore(t, "{}\n", "--upstream.url="+first.url, "--upstream.url="+second.url)
	require.True(t, preferred(t, g, first), "it runs longer")
	query := g.url + "/api/v1/query?query=" + url.QueryEscape("count(kube_pod_info)") + fmt.Sprintf("&time=%f", metric(t, first.url, "prometheus_tsdb_head_max_time_seconds", nil))
	want := get(t, query)
	require.Equal(t, http.StatusOK, want.code, want.body)
	requireSame := func(when string) { require.Equal(t, want.body, get(t, query).body, when) }
	state := func(s *server, state string) func() bool {
		return func() bool {
			requireSame("while the server is waited for to be " + state)
			return metric(t, g.telemetry, "promguard_upstream_state", map[string]string{"server": s.url, "state": state}) == 1
		}
	}

	first.kill(t)
	// A connection that was open may break under one request, which is not sent again.
	eventually(t, "reads go to the other server", func() bool { return get(t, query).code == http.StatusOK })
	eventually(t, "the server is known to be away", state(first, "away"))
	feed := holdReplay(t, data)
	cmd := exec.Command(first.cmd.Path, first.cmd.Args[1:]...)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	eventually(t, "the server replays", state(first, "replaying"))
	require.True(t, preferred(t, g, second))
	feed()
	eventually(t, "the server is ready again", state(first, "ready"))
	require.True(t, preferred(t, g, second), "the other one has a gap")
	require.Equal(t, "2", get(t, query).header.Get("X-Promguard-Upstream"))
	for _, line := range []string{"does not answer", "replays its write-ahead log", "is ready again"} {
		require.Contains(t, g.out.String(), `msg="Upstream server `+line+`" server=`+first.url)
	}

	second.kill(t)
	eventually(t, "reads go to the first server again", func() bool { return get(t, query).code == http.StatusOK })
	require.True(t, preferred(t, g, first))
	requireSame("after its replay")
}

// holdReplay puts a pipe in place of the first segment of the log, so that a replay
// of it waits until feed is called.
func holdReplay(t *testing.T, data string) (feed func()) {
	t.Helper()
	segment := filepath.Join(data, "wal", "00000000")
	text, err := os.ReadFile(segment)
	require.NoError(t, err)
	require.NoError(t, os.Remove(segment))
	require.NoError(t, syscall.Mkfifo(segment, 0o600))
	return func() {
		pipe, err := os.OpenFile(segment, os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = pipe.Write(text)
		require.NoError(t, err)
		require.NoError(t, pipe.Close())
	}
}

func TestWithoutAnyServerPromguardSaysHowEachIs(t *testing.T) {
	t.Parallel()
	gone := []string{freeAddress(t), freeAddress(t)}
	address, telemetry := freeAddress(t), freeAddress(t)
	cmd := exec.Command(binary(t, "promguard"), "serve", "--upstream.url=http://"+gone[0], "--upstream.url=http://"+gone[1],
		"--web.listen-address="+address, "--web.telemetry-address="+telemetry)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	eventually(t, "promguard serves without an upstream server", func() bool {
		resp, err := http.Get("http://" + address + "/-/healthy")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	})
	require.Equal(t, http.StatusServiceUnavailable, get(t, "http://"+address+"/-/ready").code)
	a := get(t, "http://"+address+"/api/v1/query?query=up")
	require.Equal(t, http.StatusServiceUnavailable, a.code)
	require.Equal(t, "5", a.header.Get("Retry-After"))
	require.Contains(t, errorOf(t, a), "upstream 1 does not answer, upstream 2 does not answer")

	p := serverAt(t, "prometheus", gone[1], t.TempDir(), emptyConfig)
	eventually(t, "promguard is ready once one of them is", func() bool { return get(t, "http://"+address+"/-/ready").code == http.StatusOK })
	eventually(t, "and asks it what it is", func() bool {
		return metric(t, "http://"+telemetry, "promguard_upstream_probed", map[string]string{"server": p.url}) == 1
	})
	require.Equal(t, http.StatusOK, get(t, "http://"+address+"/api/v1/query?query=up").code)
}

func TestServerWithoutNewSamplesIsLeft(t *testing.T) {
	t.Parallel()
	without := serverAt(t, "stock/prometheus", freeAddress(t), t.TempDir(), emptyConfig)
	address := freeAddress(t)
	scraping := serverAt(t, "prometheus", address, t.TempDir(), `
scrape_configs:
  - job_name: prometheus
    scrape_interval: 1s
    static_configs: [{targets: [`+address+`]}]
`)
	eventually(t, "the server has scraped itself", func() bool { return metric(t, scraping.url, "prometheus_tsdb_head_max_time_seconds", nil) > 0 })
	g := promguardBefore(t, "{}\n", "--upstream.url="+without.url, "--upstream.url="+scraping.url, "--upstream.stale-after=30s")
	eventually(t, "reads go to the server that has samples", func() bool { return preferred(t, g, scraping) })
	require.EqualValues(t, 1, metric(t, g.telemetry, "promguard_upstream_state", map[string]string{"server": without.url, "state": "behind"}))
}

// exporter is a target that can be out of reach. It exposes many series, and one whose
// sample is from the future.
type exporter struct {
	*httptest.Server

	gone atomic.Bool
}

func newExporter(t *testing.T, ahead time.Duration) *exporter {
	t.Helper()
	var page strings.Builder
	for i := range 100 {
		fmt.Fprintf(&page, "something{i=\"%d\"} 1\n", i)
	}
	if ahead > 0 {
		fmt.Fprintf(&page, "ahead 1 %d\n", time.Now().Add(ahead).UnixMilli())
	}
	e := &exporter{}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if e.gone.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = io.WriteString(w, page.String())
	}))
	t.Cleanup(e.Close)
	return e
}

func TestServerThatReachesNoTargetIsLeftForGood(t *testing.T) {
	t.Parallel()
	scrape := func(build string, e *exporter) *server {
		return serverAt(t, build, freeAddress(t), t.TempDir(), `
scrape_configs:
  - job_name: exporter
    scrape_interval: 1s
    static_configs: [{targets: [`+strings.TrimPrefix(e.URL, "http://")+`]}]
`)
	}
	reached := newExporter(t, 0)
	first := scrape("stock/prometheus", reached)
	second := scrape("prometheus", newExporter(t, 5*time.Minute))
	appended := func() float64 { return metric(t, first.url, "prometheus_tsdb_head_samples_appended_total", nil) }
	eventually(t, "there is a sample from the future", func() bool {
		return metric(t, second.url, "prometheus_tsdb_head_max_time_seconds", nil) > float64(time.Now().Unix()+60)
	})
	g := promguardBefore(t, "{}\n", "--upstream.url="+first.url, "--upstream.url="+second.url, "--upstream.stale-after=30s")
	require.True(t, preferred(t, g, first), "it runs longer, and a sample from the future makes the other no better")

	reached.gone.Store(true)
	eventually(t, "reads go to the server that has samples", func() bool {
		require.Zero(t, metric(t, g.telemetry, "promguard_upstream_state", map[string]string{"server": second.url, "state": "behind"}))
		return preferred(t, g, second)
	})
	require.EqualValues(t, 1, metric(t, g.telemetry, "promguard_upstream_state", map[string]string{"server": first.url, "state": "behind"}))
	require.Greater(t, metric(t, g.telemetry, "promguard_upstream_missing_seconds", map[string]string{"server": first.url}), 29.)
	up := get(t, g.url+"/api/v1/query?query=something")
	require.Equal(t, "2", up.header.Get("X-Promguard-Upstream"))
	require.Equal(t, 100, strings.Count(up.body, `"metric"`))

	reached.gone.Store(false)
	before := appended()
	eventually(t, "the first server has samples again, for longer than promguard takes to compare", func() bool { return appended() > before+100*20 })
	require.True(t, preferred(t, g, second), "the other one has a hole")
	require.EqualValues(t, 1, metric(t, g.telemetry, "promguard_upstream_switches_total", nil))
}

// ask sends a request, and goes on. An answer without a code is none.
func ask(target string) chan answer {
	answers := make(chan answer, 1)
	go func() {
		defer close(answers)
		if res, err := http.Get(target); err == nil {
			defer res.Body.Close()
			body, _ := io.ReadAll(res.Body)
			answers <- answer{code: res.StatusCode, header: res.Header, body: string(body)}
		}
	}()
	return answers
}

func TestReadThatAShutdownStopsIsAnsweredByTheOtherServer(t *testing.T) {
	t.Parallel()
	first := serverAt(t, "prometheus", freeAddress(t), t.TempDir(), emptyConfig, "--guard.query-concurrency=1", "--guard.queue-timeout=5m", "--guard.api-timeout=5m", "--query.timeout=5m")
	second := serverAt(t, "stock/prometheus", freeAddress(t), t.TempDir(), emptyConfig)
	g := promguardBefore(t, "{}\n", "--upstream.url="+first.url, "--upstream.url="+second.url)
	require.True(t, preferred(t, g, first))
	reads := func() int {
		return strings.Count(get(t, first.url+"/api/v1/status/guard/queries").body, `"endpoint"`)
	}
	// It takes minutes, and those who come after it wait.
	ask(first.url + "/api/v1/query_range?start=0&end=10000&step=1&query=" + url.QueryEscape("quantile_over_time(0.5,vector(1)[200000s:1s])"))
	eventually(t, "the server is busy", func() bool { return reads() == 1 })
	waiting, stopped := ask(g.url+"/api/v1/query?query="+url.QueryEscape("vector(7)")), ask(first.url+"/api/v1/query?query=up")
	eventually(t, "both reads have reached the server", func() bool { return reads() == 3 })
	first.stop(t)
	a := <-waiting
	require.Equal(t, http.StatusOK, a.code, a.body)
	require.Contains(t, a.body, `"7"`)
	require.Equal(t, "2", a.header.Get("X-Promguard-Upstream"))
	require.EqualValues(t, 1, metric(t, g.telemetry, "promguard_upstream_resent_total", map[string]string{"reason": "not_ready"}))
	direct := <-stopped
	require.Equal(t, http.StatusServiceUnavailable, direct.code)
	require.Equal(t, "true", direct.header.Get("X-Prometheus-Stopping"))
	require.Equal(t, "5", direct.header.Get("Retry-After"))
}

func TestRequestsToAServerThatHangsEnd(t *testing.T) {
	t.Parallel()
	first := serverAt(t, "prometheus", freeAddress(t), t.TempDir(), emptyConfig)
	second := serverAt(t, "stock/prometheus", freeAddress(t), t.TempDir(), emptyConfig)
	g := promguardBefore(t, "limits: {deadline: {query: 10m, metadata: 10m}}\n", "--upstream.url="+first.url, "--upstream.url="+second.url)
	require.True(t, preferred(t, g, first))
	first.hang(t)
	queries, lists := ask(g.url+"/api/v1/query?query=up"), ask(g.url+"/api/v1/labels?limit=10")
	query, labels := <-queries, <-lists
	require.Equal(t, http.StatusServiceUnavailable, query.code, "it may be what hangs the server")
	require.Contains(t, errorOf(t, query), "it no longer answers")
	require.Equal(t, http.StatusOK, labels.code, labels.body)
	require.Equal(t, "2", labels.header.Get("X-Promguard-Upstream"))
	require.Equal(t, "2", get(t, g.url+"/api/v1/query?query=up").header.Get("X-Promguard-Upstream"))

	second.hang(t)
	eventually(t, "promguard is not ready without any server", func() bool { return get(t, g.url+"/-/ready").code == http.StatusServiceUnavailable })
	require.NoError(t, first.cmd.Process.Signal(syscall.SIGCONT))
	eventually(t, "promguard is ready with one", func() bool { return get(t, g.url+"/-/ready").code == http.StatusOK })
}

func TestLimitsFollowWhatTheServerSaysOfItself(t *testing.T) {
	t.Parallel()
	for _, build := range builds {
		t.Run(build, func(t *testing.T) {
			address := freeAddress(t)
			// It is ready below its path only, which start does not know.
			file := filepath.Join(t.TempDir(), "prometheus.yml")
			require.NoError(t, os.WriteFile(file, []byte("global: {evaluation_interval: 15s}\n"), 0o644))
			cmd := exec.Command(binary(t, build), "--config.file="+file, "--storage.tsdb.path="+t.TempDir(), "--web.listen-address="+address,
				"--web.external-url=https://grafana.example/prom", "--query.lookback-delta=1m")
			require.NoError(t, cmd.Start())
			t.Cleanup(func() {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			})
			root := "http://" + address + "/prom"
			eventually(t, "the server is ready", func() bool {
				resp, err := http.Get(root + "/-/ready")
				if err == nil {
					resp.Body.Close()
				}
				return err == nil && resp.StatusCode == http.StatusOK
			})
			for flag, want := range map[string]string{
				"--upstream.url=http://" + address: "it answers 404 at /api/v1/status/buildinfo and 404 at /api/v1/query",
				"--upstream.kind=mimir":            "use --upstream.kind=prometheus",
			} {
				args := []string{"serve", "--web.listen-address=127.0.0.1:0", "--web.telemetry-address=127.0.0.1:0", flag}
				if !strings.Contains(flag, "url") {
					args = append(args, "--upstream.url="+root)
				}
				out, err := exec.Command(binary(t, "promguard"), args...).CombinedOutput()
				require.Error(t, err)
				require.Contains(t, string(out), want)
				require.Contains(t, string(out), "--upstream.probe=warn")
				require.Equal(t, 1, strings.Count(string(out), "\n"), string(out))
			}

			g := promguardBefore(t, "limits: {range: {mode: enforce, max: 61s}, samples: {max: 40}}\n", "--upstream.url="+root)
			at := func(query string) answer { return get(t, g.url+"/api/v1/query?query="+url.QueryEscape(query)) }
			require.Equal(t, http.StatusOK, at("up").code, "with the default of 5m it would read too much")
			require.Contains(t, errorOf(t, at("up or up offset 2s")), "reads 1m")
			require.Contains(t, errorOf(t, at("max_over_time(vector(1)[5m:])")), "samples at once exceeds the 40 allowed")
		})
	}
}

func TestFederationAndRemoteReadThroughPromguardAreThoseOfTheServer(t *testing.T) {
	t.Parallel()
	for _, build := range builds {
		t.Run(build, func(t *testing.T) {
			p := serverAt(t, build, freeAddress(t), few.data(t), emptyConfig, "--query.lookback-delta=10y")
			g := promguardBefore(t, "open: [federate, read]\nlimits: {range: {max: 100y}}\n", "--upstream.url="+p.url)

			pods, up := "match[]=kube_pod_info", "match[]="+url.QueryEscape(`{__name__=~"up|kube_node_info"}`)
			for _, query := range []string{pods, pods + "&" + up, "match[]=nothing_such", "match[]=" + url.QueryEscape("up{")} {
				direct, proxied := get(t, p.url+"/federate?"+query), get(t, g.url+"/federate?"+query)
				require.Equal(t, direct.code, proxied.code, query)
				if direct.code == http.StatusOK {
					require.Equal(t, lines(direct), lines(proxied), query)
					require.Equal(t, direct.header.Get("Content-Type"), proxied.header.Get("Content-Type"))
				}
			}
			require.Greater(t, len(lines(get(t, g.url+"/federate?"+pods))), 50)
			require.Contains(t, errorOf(t, get(t, g.url+"/federate?"+everything)), "Limit selectivity")

			newest := int64(1000 * metric(t, p.url, "prometheus_tsdb_head_max_time_seconds", nil))
			named := func(name string) []*prompb.LabelMatcher {
				return []*prompb.LabelMatcher{{Name: "__name__", Value: name}, {Type: prompb.LabelMatcher_NRE, Name: "namespace", Value: "kube-.*"}}
			}
			for _, types := range [][]prompb.ReadRequest_ResponseType{nil, {prompb.ReadRequest_SAMPLES}, {prompb.ReadRequest_STREAMED_XOR_CHUNKS}} {
				body := snappy(t, &prompb.ReadRequest{AcceptedResponseTypes: types, Queries: []*prompb.Query{
					{StartTimestampMs: newest - 60_000, EndTimestampMs: newest, Matchers: named("kube_pod_info")},
					{StartTimestampMs: newest, EndTimestampMs: newest, Matchers: named("kube_node_info"), Hints: &prompb.ReadHints{StartMs: newest, EndMs: newest, Func: "rate"}},
				}})
				direct, proxied := sendRead(t, p.url, body), sendRead(t, g.url, body)
				require.Equal(t, http.StatusOK, direct.code, direct.body)
				require.Equal(t, direct.code, proxied.code)
				require.Equal(t, direct.body, proxied.body)
				require.Greater(t, len(direct.body), 1000)
				for _, name := range []string{"Content-Type", "Content-Encoding"} {
					require.Equal(t, direct.header.Get(name), proxied.header.Get(name))
				}
			}
			histograms := snappy(t, &prompb.ReadRequest{Queries: []*prompb.Query{{EndTimestampMs: newest, Matchers: []*prompb.LabelMatcher{{Type: prompb.LabelMatcher_NEQ, Name: "le"}}}}})
			a := sendRead(t, g.url, histograms)
			require.Equal(t, http.StatusUnprocessableEntity, a.code)
			require.Contains(t, errorOf(t, a), "Limit selectivity")
		})
	}
}

// lines are those of an exposition. The order of series is that of the server's
// memory where several match[] are merged.
func lines(a answer) []string {
	list := strings.Split(strings.TrimSpace(a.body), "\n")
	slices.Sort(list)
	return list
}

func sendRead(t *testing.T, root, body string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, root+"/api/v1/read", strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("Content-Encoding", "snappy")
	req.Header.Set("X-Prometheus-Remote-Read-Version", "0.1.0")
	return do(t, req)
}
