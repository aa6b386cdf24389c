// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/promguard/promguard/bench/oomstorm/internal/limit"
)

// prometheus is the path of the Prometheus to test with: PROMGUARD_BIN names
// the directory it is in.
func prometheus(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("PROMGUARD_BIN")
	if dir == "" {
		t.Skip("PROMGUARD_BIN is not set; make test sets it")
	}
	path := filepath.Join(dir, "prometheus")
	require.FileExists(t, path, "run make prometheus")
	return path
}

// measured runs a command that prints JSON.
func measured[T any](t *testing.T, args ...string) (results []T) {
	t.Helper()
	tmp := t.TempDir()
	var stdout, stderr bytes.Buffer
	err := execute(t.Context(), append(args, "--tmp-dir="+tmp, "--series=5000", "--format=json"), &stdout, &stderr)
	require.NoError(t, err, stderr.String())
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &results))
	entries, err := os.ReadDir(tmp)
	require.NoError(t, err)
	require.Empty(t, entries)
	return results
}

func TestSmallStormOnARealPrometheusIsMeasuredInFull(t *testing.T) {
	binary := prometheus(t)
	defer goleak.VerifyNone(t)
	r := measured[stormResult](t, "run", "--binary=patched="+binary, "--limit=2GiB", "--clients=4", "--duration=3s", "--baseline=1s",
		"--scrape-interval=500ms", "--rule-interval=500ms", "--settle-timeout=1s", "--rest-period=1s")[0]
	require.True(t, r.Survived, r.How)
	require.InDelta(t, 3, r.Lived, 1e-9)
	require.EqualValues(t, 2<<30, r.Limit)
	require.Equal(t, "1843 MiB", r.GOMemLimit, "0.9 of the limit, whatever enforces it")
	require.Greater(t, r.Rest, int64(20<<20))
	require.GreaterOrEqual(t, r.Peak.HWM, r.Peak.Anon)
	require.GreaterOrEqual(t, r.Scrapes.Expected, 20)
	require.GreaterOrEqual(t, r.Rules.Expected, 4)
	require.Zero(t, r.RuleFailures)
	require.Zero(t, r.Meanwhile.Query.Failed+r.Meanwhile.Health.Failed+r.Unloaded.Query.Failed)
	require.Positive(t, r.Meanwhile.Query.P99)
	require.NotNil(t, r.Terminated)
	answered := 0
	for kind, a := range r.Answers {
		answered += a.Outcomes["200"]
		require.Zero(t, a.Outcomes["400"]+a.Outcomes["404"]+a.Outcomes["405"]+a.Outcomes["415"], "%s: %v", kind, a.Outcomes)
	}
	require.Positive(t, answered)
}

// trigger calls a function when the storm has been announced.
type trigger struct {
	bytes.Buffer
	fire func() error
}

func (w *trigger) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("storm of")) {
		if err := w.fire(); err != nil {
			return 0, err
		}
	}
	return w.Buffer.Write(b)
}

func TestInterruptInTheStormLeavesNothing(t *testing.T) {
	binary := prometheus(t)
	defer goleak.VerifyNone(t)
	ctx, cancel := context.WithCancel(t.Context())
	stderr := &trigger{fire: func() error {
		time.AfterFunc(500*time.Millisecond, cancel)
		return nil
	}}
	tmp := t.TempDir()
	var stdout bytes.Buffer
	err := execute(ctx, []string{
		"run", "--binary=" + binary, "--series=5000", "--limit=2GiB", "--clients=4", "--duration=1m", "--baseline=1s", "--rest-period=1s",
		"--scrape-interval=200ms", "--rule-interval=200ms", "--tmp-dir=" + tmp,
	}, &stdout, stderr)
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, stdout.String())
	entries, err := os.ReadDir(tmp)
	require.NoError(t, err)
	require.Empty(t, entries)
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
	dir, tmp := t.TempDir(), t.TempDir()
	now := filepath.Join(dir, "now")
	stderr := &trigger{fire: func() error { return os.WriteFile(now, nil, 0o666) }}
	dying := filepath.Join(dir, "dying")
	script := fmt.Sprintf(`#!/bin/sh
[ "$1" = --version ] && exec %[1]s --version
(exec 2>/dev/null; until test -e %[2]s; do sleep 0.1; done; sleep 1; kill -KILL $$) &
exec %[1]s "$@"
`, binary, now)
	require.NoError(t, os.WriteFile(dying, []byte(script), 0o777))

	var stdout bytes.Buffer
	err := execute(t.Context(), []string{
		"run", "--binary=" + dying, "--series=5000", "--limit=off", "--clients=4", "--duration=1m", "--baseline=1s", "--rest-period=1s",
		"--scrape-interval=200ms", "--rule-interval=200ms", "--tmp-dir=" + tmp, "--format=json",
	}, &stdout, stderr)
	require.NoError(t, err, stderr.String())
	var results []stormResult
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &results))
	r := results[0]
	require.False(t, r.Survived)
	require.Equal(t, "signal killed", r.How)
	require.InDelta(t, 2, r.Lived, 1.5)
	require.NotEmpty(t, r.Log)
	require.Positive(t, r.Peak.HWM)
	require.Positive(t, r.Scrapes.Expected)
	require.Less(t, r.Scrapes.Expected, 100, "only those of the time it lived")
	require.Positive(t, r.Meanwhile.Query.Count)
	require.Less(t, r.Meanwhile.Query.Max, 5.0, "its end is no slowness")
	require.NotEmpty(t, r.Answers)
	require.Nil(t, r.Terminated)
}

func TestLimitThatIsTooSmallToStartIsSaidToBeTheReason(t *testing.T) {
	t.Parallel()
	binary := prometheus(t)
	for by, want := range map[string]string{
		"watchdog": "signal killed, by the watchdog",
		"cgroup":   "signal killed, by the kernel at the cgroup's limit",
	} {
		t.Run(by, func(t *testing.T) {
			if c, err := limit.NewCgroup(1 << 30); err == nil {
				require.NoError(t, c.Remove())
			} else if by == "cgroup" {
				t.Skip("no memory cgroup can be made here: ", err)
			}
			var out bytes.Buffer
			err := execute(t.Context(), []string{
				"run", "--binary=" + binary, "--series=5000", "--limit=12MiB", "--limit-by=" + by, "--tmp-dir=" + t.TempDir(),
			}, &out, &out)
			require.ErrorContains(t, err, "stopped before it was ready ("+want+")")
		})
	}
}

func TestSingleRequestOnARealPrometheusIsMeasured(t *testing.T) {
	t.Parallel()
	binary := prometheus(t)
	r := measured[oneResult](t, "one", "--binary=patched="+binary, "--request=read-chunks", "--rest-period=1s")[0]
	require.Equal(t, "200", r.Outcome)
	require.Equal(t, "off", r.Limit)
	require.Greater(t, r.Bytes, int64(100<<10))
	require.Positive(t, r.FirstByte)
	require.GreaterOrEqual(t, r.Total, r.FirstByte)
	require.Positive(t, r.CPU)
	require.GreaterOrEqual(t, r.CPU, r.CPUAfter)
	require.GreaterOrEqual(t, r.Peak, r.Rest)
	require.Empty(t, r.How)
}
