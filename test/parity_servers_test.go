// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// guardOff is the off value of every flag that promguard adds. With all of them
// the build must behave as upstream's does, which the tests in this file's
// neighbours prove. Whoever adds a flag adds its off value here.
var guardOff = map[string]string{
	"guard.api-timeout":           "off",
	"guard.drop-rules":            "off",
	"guard.max-head-series":       "off",
	"guard.memory-limit":          "off",
	"guard.metadata-concurrency":  "off",
	"guard.min-client-rate":       "off",
	"guard.query-concurrency":     "off",
	"guard.query-text-limits":     "off",
	"guard.queue-timeout":         "10s", // Without a pool or a budget nothing waits.
	"guard.bulk-concurrency":      "off",
	"guard.read-memory-budget":    "off",
	"guard.read-procs":            "off",
	"guard.response-max-bytes":    "off",
	"guard.series-labels":         "off",
	"guard.series-limits":         "off",
	"guard.spare-connections":     "off",
	"guard.wal-replay":            "off",
	"guard.wal-replay-gomaxprocs": "off",
}

// guardOffFlags returns them as arguments of a server, or of an agent, which refuses
// all but those of its scrapes.
func guardOffFlags(agent bool) []string {
	var flags []string
	for name, value := range guardOff {
		if !agent || name == "guard.drop-rules" {
			flags = append(flags, "--"+name+"="+value)
		}
	}
	slices.Sort(flags)
	return flags
}

// A build is a binary and the flags that each start of it gets.
type build struct {
	name   string
	binary string
	// flags may be nil.
	flags func(agent bool) []string
	// mayLog holds the messages that only one of the build and stock may log.
	mayLog map[string]bool
	// exceptions are the requests that are meant to be answered differently.
	exceptions []exception
}

func stockBuild() build { return build{name: "stock", binary: "stock/prometheus"} }
func offBuild() build {
	return build{name: "patched, --guard.* off", binary: "prometheus", flags: guardOffFlags, mayLog: map[string]bool{
		"INFO promguard": true, // Says that all are off.
	}}
}

// mode is a way to run a server. Every build is run in every mode.
type mode struct {
	name  string
	flags []string
	// prefix stands before every route.
	prefix string
	agent  bool
	// One request in every is sent, from the one at first: the modes share the
	// corpus between them.
	every, first int
}

var modes = []mode{
	{name: "with default flags", every: 2},
	{name: "with everything enabled", every: 2, first: 1, prefix: "/prom", flags: []string{
		"--web.external-url=http://prometheus.test/prom/", "--web.page-title=Parity",
		"--web.enable-admin-api", "--web.enable-lifecycle", "--web.enable-remote-write-receiver", "--web.enable-otlp-receiver",
		`--web.cors.origin=https?://(a|b)\.example`, "--web.user-assets=assets", "--web.search.max-limit=500",
		"--enable-feature=search-api,exemplar-storage,memory-snapshot-on-shutdown,promql-experimental-functions,promql-per-step-stats,metadata-wal-records,promql-delayed-name-removal,query-cost,promql-unquoted-utf8-names",
		"--query.max-samples=30000", "--query.timeout=20s", "--storage.remote.read-sample-limit=5000", "--storage.remote.read-max-bytes-in-frame=4096",
		"--log.level=debug",
	}},
	{name: "as an agent", every: 8, agent: true, flags: []string{"--agent", "--web.external-url=http://prometheus.test/"}},
}

// paritySetup is what all servers share: they are told from each other by
// their build, and by the directory in which they are started, alone.
type paritySetup struct{ config, rules string }

const parityRules = `groups:
- name: records
  interval: 2s
  labels: {from: rules}
  rules:
  - record: path:requests:sum
    expr: sum by (path) (app_requests_total)
    labels: {job: rules}
- name: alerts
  interval: 2s
  limit: 10
  rules:
  - alert: Always
    expr: vector(1)
    for: 10m
    labels: {severity: page, job: rules}
    annotations: {summary: "<b>{{ $value }}</b>"}
  - alert: Never
    expr: absent(vector(1))
    labels: {job: rules}
`

const parityExposition = `# HELP target_requests_total Requests, <b>all</b> of them.
# TYPE target_requests_total counter
target_requests_total{code="200"} 7
target_requests_total{code="500"} 1
# HELP target_size_bytes Sizes.
# TYPE target_size_bytes histogram
target_size_bytes_bucket{le="10"} 1
target_size_bytes_bucket{le="+Inf"} 3
target_size_bytes_sum 99
target_size_bytes_count 3
# TYPE target_open gauge
target_open NaN
`

func newParitySetup(t *testing.T, agent bool) paritySetup {
	t.Helper()
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		fmt.Fprint(w, parityExposition)
	}))
	t.Cleanup(target.Close)
	dir := t.TempDir()
	p := paritySetup{config: filepath.Join(dir, "prometheus.yml"), rules: filepath.Join(dir, "rules.yml")}
	require.NoError(t, os.WriteFile(p.rules, []byte(parityRules), 0o644))
	config := fmt.Sprintf(`global:
  scrape_interval: 2s
  evaluation_interval: 2s
  external_labels: {cluster: parity}
scrape_configs:
- job_name: target
  static_configs: [{targets: [%q], labels: {zone: a}}]
  relabel_configs:
  - {source_labels: [zone], target_label: region, replacement: "eu-$1"}
  metric_relabel_configs:
  - {source_labels: [code], regex: "500", action: drop}
- job_name: nobody
  static_configs: [{targets: ["127.0.0.1:1"]}]
- job_name: empty
  static_configs: [{targets: []}]
`, strings.TrimPrefix(target.URL, "http://"))
	if !agent {
		config += fmt.Sprintf("rule_files: [%q]\nalerting: {alertmanagers: [{static_configs: [{targets: [\"127.0.0.1:1\"]}]}]}\n"+
			"otlp: {promote_resource_attributes: [service.name]}\n", p.rules)
	}
	require.NoError(t, os.WriteFile(p.config, []byte(config), 0o644))
	return p
}

// parityServer is a running build.
type parityServer struct {
	*server
	build   build
	mode    mode
	address string
	dir     string
}

var listening = regexp.MustCompile(`msg="?Listening on"? .*address=(127\.0\.0\.1:\d+)`)

// startParity starts a build in dir, which holds its data. The port is chosen by
// the kernel and the paths are relative, so that all have the same command line.
func startParity(t *testing.T, b build, m mode, setup paritySetup, dir string) *parityServer {
	t.Helper()
	args := []string{"--config.file=" + setup.config, "--web.listen-address=127.0.0.1:0"}
	if m.agent {
		args = append(args, "--storage.agent.path=data")
	} else {
		args = append(args, "--storage.tsdb.path=data")
	}
	args = append(args, m.flags...)
	if b.flags != nil {
		args = append(args, b.flags(m.agent)...)
	}
	writeDated(t, filepath.Join(dir, "assets", "a.txt"), "an asset\n")
	writeDated(t, filepath.Join(dir, "consoles", "c.html"), `{{ with query "count(app_text)" }}{{ . | first | value }}{{ end }} {{ .Path }}`)
	s := &parityServer{build: b, mode: m, dir: dir, server: &server{out: newOutput(t), exited: make(chan struct{})}}
	s.cmd = exec.Command(binary(t, b.binary), args...)
	s.cmd.Stdout, s.cmd.Stderr = s.out.File, s.out.File
	s.cmd.Dir = dir
	require.NoError(t, s.cmd.Start())
	go func() {
		_ = s.cmd.Wait()
		close(s.exited)
	}()
	t.Cleanup(func() { s.stop(t) })
	eventually(t, b.name+" listens", func() bool {
		found := listening.FindStringSubmatch(s.out.String())
		if found != nil {
			s.address = found[1]
		}
		return found != nil
	})
	s.url = "http://" + s.address + m.prefix
	s.waitReady(t)
	return s
}

// writeDated makes a file and its directory, both of one fixed time, which goes
// into Last-Modified.
func writeDated(t *testing.T, file, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	at := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	require.NoError(t, os.Chtimes(file, at, at))
	require.NoError(t, os.Chtimes(filepath.Dir(file), at, at))
}

// settled waits until the targets were scraped and the rules evaluated, after
// which the set of series changes no more.
func (s *parityServer) settled(t *testing.T) {
	t.Helper()
	need := []string{
		"targets?state=active|" + `"health":"up"`,
		"targets?state=active|" + `"health":"down"`,
	}
	if !s.mode.agent {
		need = append(need,
			"query?query=count(target_open)|"+`"1"`,
			"query?query=count(up)|"+`"2"`,
			"query?query=count(path:requests:sum)|"+`"\d`,
			"query?query=count(ALERTS_FOR_STATE)|"+`"1"`,
		)
	}
	for _, n := range need {
		path, pattern, _ := strings.Cut(n, "|")
		var last string
		ok := func() bool {
			last = get(t, s.url+"/api/v1/"+path).body
			return regexp.MustCompile(pattern).MatchString(last)
		}
		for deadline := time.Now().Add(patience); !ok(); time.Sleep(50 * time.Millisecond) {
			require.True(t, time.Now().Before(deadline), "%s: %s says %s", s.build.name, path, last)
		}
	}
}

func (s *parityServer) send(t *testing.T, r request) reply {
	t.Helper()
	return send(t, s.address, s.mode.prefix, r)
}
