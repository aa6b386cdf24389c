// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// outcome is what a command printed and how it ended.
type outcome struct {
	out  string
	code int
}

// command runs a binary to its end.
func command(t *testing.T, name, dir, stdin string, args ...string) outcome {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary(t, name), args...)
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return outcome{string(out), cmd.ProcessState.ExitCode()}
}

var guardName = regexp.MustCompile(`--(?:\[no-\])?(guard\.[a-z0-9.-]+)`)

func TestEveryGuardFlagHasAnOffValueInTheParityTests(t *testing.T) {
	t.Parallel()
	requirePairs(t)
	help := command(t, "prometheus", t.TempDir(), "", "--help").out
	named := map[string]bool{}
	for _, found := range guardName.FindAllStringSubmatch(help, -1) {
		named[found[1]] = true
	}
	for name := range named {
		require.Contains(t, guardOff, name, "a flag without an off value: add it to guardOff")
	}
	for name := range guardOff {
		require.Contains(t, named, name, "no such flag any more: remove it from guardOff")
	}
	// A hidden flag is not in the help, but it is among the flags of the API.
	p := prometheus(t, t.TempDir(), emptyConfig)
	for _, found := range regexp.MustCompile(`"(guard\.[^"]+)":`).FindAllStringSubmatch(get(t, p.url+"/api/v1/status/flags").body, -1) {
		require.Contains(t, guardOff, found[1], "a hidden flag without an off value: add it to guardOff")
	}
}

func TestHelpIsUpstreamsButForTheGuardFlags(t *testing.T) {
	t.Parallel()
	requirePairs(t)
	for _, flag := range []string{"--help", "--help-long", "--help-man", "--write-documentation"} {
		stock, patched := command(t, "stock/prometheus", t.TempDir(), "", flag), command(t, "prometheus", t.TempDir(), "", flag)
		require.Equal(t, stock.code, patched.code, flag)
		require.NotEmpty(t, stock.out, flag)
		require.Equal(t, withoutVersion(stock.out), withoutVersion(withoutGuardFlags(patched.out)), flag)
	}
	for _, flag := range []string{"--help", "--help-long", "--version"} {
		stock, patched := command(t, "stock/promtool", t.TempDir(), "", flag), command(t, "promtool", t.TempDir(), "", flag)
		require.Equal(t, stock.code, patched.code, flag)
		require.Equal(t, withoutVersion(stock.out), withoutVersion(patched.out), flag)
	}
}

// guardHelp is what the help, the manual and the reference say about one of
// promguard's flags.
var guardHelp = regexp.MustCompile(`(?m)^      --(\[no-\])?guard\..*\n( {20,}.*\n)*|^\.TP\n\\fB--guard\..*\n.*\n|^\| <code[^>]*>--guard\..*\n`)

func withoutGuardFlags(help string) string { return guardHelp.ReplaceAllString(help, "") }

var revisionText = regexp.MustCompile(`revision[:=] ?\w+[-.\w]*`)

func withoutVersion(s string) string {
	s = dateStamp.ReplaceAllString(versionStamp.ReplaceAllString(s, "VERSION"), "date")
	return revisionText.ReplaceAllString(s, "revision")
}

// TestStartThatFailsFailsAsUpstreams compares exit codes and what is printed.
func TestStartThatFailsFailsAsUpstreams(t *testing.T) {
	t.Parallel()
	requirePairs(t)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"good.yml": emptyConfig, "bad.yml": "nonsense: 1\n", "rules.yml": "rule_files: [r.yml]\n", "r.yml": "groups: [{name: a, rules: [{record: x, expr: 'sum('}]}]\n", "web.yml": "nonsense: 1\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o644))
	const address = "--web.listen-address=127.0.0.1:0"
	for _, args := range [][]string{
		{"--nonsense"},
		{"extra"},
		{"--config.file"},
		{"--config.file=none.yml"},
		{"--config.file=bad.yml"},
		{"--config.file="},
		{"--config.file=good.yml", "--query.timeout=x"},
		{"--config.file=good.yml", "--query.max-samples=x"},
		{"--config.file=good.yml", "--query.lookback-delta="},
		{"--config.file=good.yml", "--log.level=x"},
		{"--config.file=good.yml", "--log.format=x"},
		{"--config.file=good.yml", "--storage.tsdb.retention.size=x"},
		{"--config.file=good.yml", "--storage.tsdb.retention.time=-1d"},
		{"--config.file=good.yml", "--web.cors.origin=("},
		{"--config.file=good.yml", "--web.external-url=:%zz"},
		{"--config.file=good.yml", "--web.config.file=none.yml"},
		{"--config.file=good.yml", "--web.config.file=web.yml"},
		{"--config.file=good.yml", "--web.listen-address=nonsense"},
		{"--config.file=good.yml", "--web.listen-address=300.0.0.1:1"},
		{"--config.file=good.yml", "--agent", "--storage.tsdb.path=x"},
		{"--config.file=good.yml", "--storage.agent.path=x"},
		{"--config.file=rules.yml", "--agent", address},
		{"--config.file=good.yml", address, "--storage.tsdb.path=file"},
		{"--config.file=rules.yml", address, "--storage.tsdb.path=data"},
		{"--config.file=good.yml", address, "--enable-feature=nonsense", "--storage.tsdb.path=file"},
		{"--config.file=good.yml", "--auto-gomemlimit.ratio=9"},
		{"--config.file=good.yml", "--web.read-timeout=x"},
		{"--config.file=good.yml", "--no-nonsense"},
		{"--config.file=good.yml", "--config.file=good.yml"},
		{"--config.file=good.yml", "--scrape.discovery-reload-interval=0s", "--storage.tsdb.path=file", address},
		{"--config.file=bad.yml", "--log.format=json"},
	} {
		stock := command(t, "stock/prometheus", dir, "", args...)
		patched := command(t, "prometheus", dir, "", append(slices.Clone(args), guardOffFlags(slices.Contains(args, "--agent"))...)...)
		require.NotZero(t, stock.code, "%v must fail: %s", args, stock.out)
		require.Equal(t, stock.code, patched.code, "%v", args)
		require.Equal(t, said(stock.out), said(withoutGuardFlags(patched.out)), "%v", args)
	}
}

var (
	logged = regexp.MustCompile(`(?m)^time=\S+ level=INFO .*\n?|^\{"time":"[^"]*","level":"INFO".*\n?`)
	moment = regexp.MustCompile(`time=\S+ |source=\S+ |"time":"[^"]*",|"source":"[^"]*",`)
)

// said is what a failed start printed, without what is only informative, the
// time and the line of the source.
func said(out string) string {
	return moment.ReplaceAllString(logged.ReplaceAllString(out, ""), "")
}

func TestPromtoolDoesAsUpstreams(t *testing.T) {
	t.Parallel()
	requirePairs(t)
	d := makeDataset(t)
	setup := newParitySetup(t, false)
	server := prometheus(t, t.TempDir(), emptyConfig)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"bad.yml": "nonsense: 1\n", "bad_rules.yml": "groups: [{name: a, rules: [{record: x, expr: 'sum('}, {record: x, expr: '1'}]}]\n", "web.yml": "basic_auth_users: {a: b}\n",
		"test.yml": fmt.Sprintf("rule_files: [%q]\nevaluation_interval: 1m\ntests:\n- interval: 1m\n  input_series: [{series: 'app_requests_total{path=\"/\"}', values: '0+1x10'}]\n"+
			"  promql_expr_test: [{expr: 'path:requests:sum', eval_time: 4m, exp_samples: [{labels: 'path:requests:sum{path=\"/\",job=\"rules\",from=\"rules\"}', value: 5}]}]\n", setup.rules),
		"metrics.txt": "# HELP a b\n# TYPE a counter\na_total 1 1600000000\n# TYPE b gauge\nb{c=\"d\"} 2 1600000000\n# EOF\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	for _, args := range [][]string{
		{},
		{"--nonsense"},
		{"nonsense"},
		{"check"},
		{"tsdb", "nonsense"},
		{"check", "config", setup.config},
		{"check", "config", "--lint=all", "--lint-fatal", setup.config},
		{"check", "config", "--syntax-only", "bad.yml"},
		{"check", "config", "none.yml"},
		{"check", "rules", setup.rules},
		{"check", "rules", "bad_rules.yml"},
		{"check", "web-config", "web.yml"},
		{"check", "metrics"},
		{"check", "metrics", "--extended"},
		{"check", "healthy", "--url=" + server.url},
		{"check", "ready", "--url=" + server.url},
		{"check", "ready", "--url=http://127.0.0.1:1"},
		{"check", "service-discovery", "--timeout=1s", setup.config, "target"},
		{"test", "rules", "test.yml"},
		{"test", "rules", "none.yml"},
		{"query", "instant", server.url, "1+1", "--time=1"},
		{"query", "instant", server.url, "sum("},
		{"query", "range", "--start=1", "--end=9", "--step=4s", server.url, "vector(1)"},
		{"query", "series", "--match=up", server.url},
		{"query", "labels", server.url, "none"},
		{"query", "series", "--match={", "-o", "json", server.url},
		{"promql", "format", "--experimental", "sum(a)by(b)"},
		{"promql", "label-matchers", "set", "--experimental", "a", "b", "c"},
		{"promql", "format", "sum("},
		{"tsdb", "list", d.dir},
		{"tsdb", "list", "-r", d.dir},
		{"tsdb", "list", "none"},
		{"tsdb", "analyze", "--limit=10000", d.dir},
		{"tsdb", "analyze", "--extended", "--limit=10000", d.dir},
		{"tsdb", "analyze", d.dir, "none"},
		{"tsdb", "dump", d.dir},
		{"tsdb", "dump", "--format=seriesjson", "--match=app_text", d.dir},
		{"tsdb", "dump", "--match=app_native_seconds", "--match={path=\"/p/1\"}", d.dir},
		{"tsdb", "dump", "--match={", d.dir},
		{"tsdb", "dump-openmetrics", "--match=app_temperature_celsius", d.dir},
	} {
		stock, patched := command(t, "stock/promtool", dir, parityExposition, args...), command(t, "promtool", dir, parityExposition, args...)
		require.Equal(t, stock.code, patched.code, "promtool %v\n%s", args, patched.out)
		if want, got := sorted(stock.out), sorted(patched.out); want != got {
			t.Errorf("promtool %v: %s", args, firstDifference(want, got))
		}
	}
	// What is imported is the same block but for its name.
	var dumped []string
	for _, name := range []string{"stock/promtool", "promtool"} {
		into := t.TempDir()
		require.Zero(t, command(t, name, dir, "", "tsdb", "create-blocks-from", "openmetrics", "metrics.txt", into).code)
		require.NoError(t, os.Mkdir(filepath.Join(into, "wal"), 0o755)) // A database has one.
		dump := command(t, "stock/promtool", dir, "", "tsdb", "dump", into)
		require.Zero(t, dump.code, dump.out)
		dumped = append(dumped, dump.out)
	}
	require.NotEmpty(t, dumped[0])
	require.Equal(t, dumped[0], dumped[1])
}

// sorted puts lines in one order, because promtool counts in maps.
func sorted(out string) string {
	lines := strings.Split(out, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
