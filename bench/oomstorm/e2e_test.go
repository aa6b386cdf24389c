// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"

	"github.com/promguard/promguard/bench/oomstorm/internal/family"
	"github.com/promguard/promguard/internal/cli"
)

// prometheus is the path of the Prometheus to test with.
func prometheus(t *testing.T) string { return built(t, "prometheus") }

// built is the path of a binary to test with: PROMGUARD_BIN names the directory.
func built(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("PROMGUARD_BIN")
	if dir == "" {
		t.Skip("PROMGUARD_BIN is not set; make test sets it")
	}
	path := filepath.Join(dir, name)
	require.FileExists(t, path, "run make "+name)
	return path
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o777))
	return file
}

func requireEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestTheSmallScenarioOnARealPrometheusIsMeasuredInFull(t *testing.T) {
	binary := prometheus(t)
	defer goleak.VerifyNone(t)
	tmp := t.TempDir()
	var stdout, stderr bytes.Buffer
	err := execute(t.Context(), []string{"run", "--scenario=small", "--binary=patched=" + binary, "--tmp-dir=" + tmp}, &stdout, &stderr)
	require.NoError(t, err, stderr.String())
	requireEmpty(t, tmp)
	of := func(phase, name string) float64 {
		t.Helper()
		v, ok := figure(t, &stdout, name)["Oomstorm/phase="+phase+"/binary=patched"]
		require.True(t, ok, "%s has no %s", phase, name)
		return v
	}
	require.GreaterOrEqual(t, of("calm", "lived-sec"), 3.0)
	for _, name := range []string{"peak-of-limit", "live-over-rest-of-budget", "storm-answered", "dashboards-answered", "sum-up-p99-sec", "health-p99-sec", "metrics-p99-sec", "idle-away-sec"} {
		require.Positive(t, of("storm", name), name)
	}
	for _, phase := range []string{"calm", "storm", "compaction", "explosion", "replay"} {
		for _, name := range []string{"scrapes-missed", "exploding-missed", "samples-lost", "rules-missed", "rules-failed"} {
			require.GreaterOrEqual(t, of(phase, name), 0.0)
		}
	}
	require.Zero(t, of("calm", "samples-lost"))
	require.Positive(t, of("compaction", "compactions"))
	require.Positive(t, of("explosion", "exploded"))
	require.Positive(t, of("replay", "ready-sec"))
	require.Greater(t, of("replay", "restart-of-live"), 0.5)
}

// trigger calls a function when a phase has been announced.
type trigger struct {
	bytes.Buffer
	phase string
	fire  func() error
}

func (w *trigger) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(": "+w.phase+", for")) {
		if err := w.fire(); err != nil {
			return 0, err
		}
	}
	return w.Buffer.Write(b)
}

const brief = `series: 5000
limit: 2GiB
scrape_interval: 200ms
rule_interval: 200ms
phases:
- {name: calm, for: 1s}
- {name: storm, for: 1m, storm: {clients: 4, families: [query-buckets, series]}}
- {name: never, for: 1m}
expect:
- {name: it lives, figure: alive, at_least: 1}
- {name: it gets there, phase: never, figure: alive, at_least: 1}
`

func TestInterruptInTheStormLeavesNothing(t *testing.T) {
	binary := prometheus(t)
	defer goleak.VerifyNone(t)
	ctx, cancel := context.WithCancel(t.Context())
	stderr := &trigger{phase: "storm", fire: func() error {
		time.AfterFunc(500*time.Millisecond, cancel)
		return nil
	}}
	tmp := t.TempDir()
	var stdout bytes.Buffer
	err := execute(ctx, []string{"run", "--scenario=" + write(t, "brief.yaml", brief), "--binary=" + binary, "--tmp-dir=" + tmp}, &stdout, stderr)
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, stdout.String())
	requireEmpty(t, tmp)
	left, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, file := range left {
		b, _ := os.ReadFile(file) // Processes of others come and go.
		require.NotContains(t, string(b), tmp)
	}
}

func TestServerThatIsKilledIsReportedForTheTimeItLived(t *testing.T) {
	t.Parallel()
	binary := prometheus(t)
	tmp := t.TempDir()
	now := filepath.Join(t.TempDir(), "now")
	stderr := &trigger{phase: "storm", fire: func() error { return os.WriteFile(now, nil, 0o666) }}
	dying := write(t, "dying", fmt.Sprintf(`#!/bin/sh
[ "$1" = --version ] && exec %[1]s --version
(exec 2>/dev/null; until test -e %[2]s; do sleep 0.1; done; sleep 1; kill -KILL $$) &
exec %[1]s "$@"
`, binary, now))
	var stdout bytes.Buffer
	err := execute(t.Context(), []string{"run", "--scenario=" + write(t, "brief.yaml", brief), "--binary=" + dying, "--tmp-dir=" + tmp}, &stdout, stderr)
	require.ErrorIs(t, err, cli.Exit(1), stderr.String())
	requireEmpty(t, tmp)
	require.Contains(t, stderr.String(), "dying ended in storm: signal: killed;")
	require.Contains(t, stderr.String(), "UNMET: it lives (dying): alive in storm is 0, less than 1")
	require.Contains(t, stderr.String(), "UNMET: it gets there (dying): alive in never is 0, less than 1")
	lived := figure(t, &stdout, "lived-sec")
	require.Len(t, lived, 2)
	require.Less(t, lived["Oomstorm/phase=storm/binary=dying"], 30.0)
	require.Less(t, figure(t, &stdout, "sum-up-p99-sec")["Oomstorm/phase=storm/binary=dying"], 30.0, "its end is no slowness")
}

func TestLimitThatIsTooSmallToStartIsSaidToBeTheReason(t *testing.T) {
	t.Parallel()
	binary := prometheus(t)
	var out bytes.Buffer
	tiny := write(t, "tiny.yaml", "series: 5000\nlimit: 12MiB\nphases: [{name: calm, for: 1s}]\n")
	err := execute(t.Context(), []string{"run", "--scenario=" + tiny, "--binary=" + binary, "--tmp-dir=" + t.TempDir()}, &out, &out)
	require.ErrorContains(t, err, "killed")
	require.ErrorContains(t, err, "limit")
}

func TestClientsAskThePromguardThatIsNamedAndProbesTheServer(t *testing.T) {
	t.Parallel()
	const asked = `series: 5000
limit: 2GiB
phases: [{name: asked, for: 10m, dashboards: {clients: 1, expressions: true, rounds: 1}}]
expect:
- {name: dashboards are denied, figure: dashboards-refused-share, at_least: 1}
- {name: probes are not, figure: sum-up-failed, at_most: 0}
`
	deny := write(t, "deny.yaml", "rules: [{name: nobody, match: {class: query}, deny: {reason: to see who is asked}}]\n")
	args := []string{"run", "--scenario=" + write(t, "asked.yaml", asked), "--binary=" + prometheus(t), "--tmp-dir=" + t.TempDir()}
	var out bytes.Buffer
	err := execute(t.Context(), append(args, "--proxy="+built(t, "promguard")+" --config.file="+deny), &out, &out)
	require.NoError(t, err, out.String())

	err = execute(t.Context(), append(args, "--proxy="+built(t, "promguard")+" --config.file="+deny+".none"), &out, &out)
	require.ErrorContains(t, err, "--proxy")
}

func TestTheSearchPrintsFamiliesToPaste(t *testing.T) {
	t.Parallel()
	binary := prometheus(t)
	var stdout, stderr bytes.Buffer
	err := execute(t.Context(), []string{
		"search", "--binary=patched=" + binary, "--series=5000", "--limit=1GiB", "--families=series", "--families=query-buckets", "--tries=2", "--timeout=2s", "--top=4", "--tmp-dir=" + t.TempDir(),
	}, &stdout, &stderr)
	require.NoError(t, err, stderr.String())
	var found []family.Family
	require.NoError(t, yaml.Unmarshal(stdout.Bytes(), &found), stdout.String())
	require.Len(t, found, 4)
	for _, f := range found {
		require.NoError(t, f.Check())
	}
}
