// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatCannotWorkIsRefusedInOneLineBeforeAnythingStarts(t *testing.T) {
	bin, dir := t.TempDir(), t.TempDir()
	for _, name := range []string{"prometheus", "promguard"} {
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\nexit 1\n"), 0o755))
	}
	noise := filepath.Join(dir, "noise.prom")
	require.NoError(t, os.WriteFile(noise, []byte("a 1\n}{\n"), 0o666))
	empty := filepath.Join(dir, "empty")
	require.NoError(t, os.Mkdir(empty, 0o777))
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	port := strconv.Itoa(taken.Addr().(*net.TCPAddr).Port)
	free := freePorts(t)

	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"unknown flag", []string{"--nothing"}, "unknown long flag '--nothing' (see demo --help)"},
		{"scrapes too often", []string{"--scrape-interval=1ms"}, "--scrape-interval must be 1s or more, got 1ms"},
		{"no series", []string{"--series=0"}, "a cluster needs at least 1 series, got 0"},
		{"no binaries", []string{"--bin=" + empty}, "stat " + empty + "/prometheus: no such file or directory; make prometheus builds it, --bin names another directory"},
		{"no exposition", []string{"--exposition=" + dir + "/missing"}, "--exposition: stat " + dir + "/missing: no such file or directory"},
		{"noise", []string{"--exposition=" + noise}, "--exposition: " + noise + " is not an exposition in the text format: after 1 samples: "},
		{"empty directory", []string{"--exposition=" + empty}, "--exposition: " + empty + " has no *.prom files"},
		{"port in use", []string{"--proxy.port=" + port}, "port " + port + " is in use; stop what uses it, or name another one with --proxy.port"},
		{"no port", []string{"--telemetry.port=70000"}, "--telemetry.port must be from 1 to 65535, got 70000"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			data := filepath.Join(t.TempDir(), "data")
			args := tc.args
			for flag, value := range map[string]string{
				"--bin=": bin, "--data=": data, "--prometheus.port=": strconv.Itoa(free[0]), "--proxy.port=": strconv.Itoa(free[1]),
				"--telemetry.port=": strconv.Itoa(free[2]), "--exposition.port=": strconv.Itoa(free[3]),
			} {
				if !strings.HasPrefix(args[0], flag) {
					args = append(args, flag+value)
				}
			}
			c, err := parse(args, io.Discard)
			if err == nil {
				err = run(c, io.Discard)
			}
			require.ErrorContains(t, err, tc.want)
			require.NoDirExists(t, data)
		})
	}
}

func TestBinaryThatEndsAtOnceIsReportedWithItsLog(t *testing.T) {
	bin, free := t.TempDir(), freePorts(t)
	for _, name := range []string{"prometheus", "promguard"} {
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\necho out of cheese\nexit 7\n"), 0o755))
	}
	c := config{
		Bin: bin, Data: t.TempDir(), Series: 100, ScrapeInterval: 1e9,
		PrometheusPort: free[0], ProxyPort: free[1], TelemetryPort: free[2], ExpositionPort: free[3],
	}
	require.EqualError(t, run(c, io.Discard), "prometheus stopped (exit status 7); its last log lines:\n  out of cheese\n")
}

func TestOnAFullDiskTheDemoSaysSoAndEnds(t *testing.T) {
	bin := os.Getenv("PROMGUARD_BIN")
	if bin == "" {
		t.Skip("PROMGUARD_BIN is not set; make test sets it")
	}
	disk, free := t.TempDir(), freePorts(t)
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", `mount -t tmpfs -o size=1m tmpfs "$0" 2>/dev/null || exit 77; exec "$@"`,
		disk, self, "--bin="+bin, "--data="+disk, "--series=5000", "--scrape-interval=1s",
		"--prometheus.port="+strconv.Itoa(free[0]), "--proxy.port="+strconv.Itoa(free[1]), "--telemetry.port="+strconv.Itoa(free[2]), "--exposition.port="+strconv.Itoa(free[3]))
	cmd.Env = append(os.Environ(), asMain+"=1")
	var told strings.Builder
	cmd.Stderr = &told
	err = cmd.Run()
	exit, _ := errors.AsType[*exec.ExitError](err)
	if exit == nil || exit.ExitCode() == 77 || strings.HasPrefix(told.String(), "unshare:") {
		t.Skipf("no disk can be made here: %v %s", err, told.String())
	}
	require.Equal(t, 1, exit.ExitCode())
	require.Regexp(t, `^demo: prometheus cannot write to `+disk+`/prometheus \(\d+ writes of its log failed\): make room on that disk, or name another directory with --data; its last log lines:\n  `, told.String())
}
