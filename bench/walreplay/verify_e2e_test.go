// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// generatedFull makes a data directory with all that generate knows.
func generatedFull(t *testing.T, seed int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	var stderr bytes.Buffer
	require.NoError(t, execute(t.Context(), []string{
		"generate", "--out=" + dir, "--series=2000", "--scrapes=140", "--churn=2", "--checkpoint-scrapes=20", fmt.Sprintf("--seed=%d", seed),
		"--mmapped-chunks", "--native-histograms=0.5", "--exemplars=0.001", "--out-of-order=0.05", "--oddities=0.02",
	}, &stderr, &stderr))
	return dir
}

// tampering is a Prometheus that runs a shell command in its data directory
// before it starts.
func tampering(t *testing.T, binary, command string) string {
	t.Helper()
	script := fmt.Sprintf(`#!/bin/sh
for a in "$@"; do
	case $a in
	--version) exec %[1]s "$@" ;;
	--storage.tsdb.path=*) (cd "${a#*=}" && %[2]s) || exit 9 ;;
	esac
done
exec %[1]s "$@"
`, binary, command)
	path := filepath.Join(t.TempDir(), "tampering")
	require.NoError(t, os.WriteFile(path, []byte(script), 0o755)) //nolint:gosec // A program.
	return path
}

func runVerify(t *testing.T, data, a, b string) (string, error) {
	t.Helper()
	tmp := t.TempDir()
	var stdout, stderr bytes.Buffer
	err := execute(t.Context(), []string{"verify", "--wal=" + data, "--tmp-dir=" + tmp, "--binary=left=" + a, "--binary=right=" + b}, &stdout, &stderr)
	requireEmpty(t, tmp)
	return stdout.String(), err
}

func TestHeadsOfOneBinaryAreTheSame(t *testing.T) {
	binary := prometheus(t)
	defer goleak.VerifyNone(t)
	data := generatedFull(t, 1)
	before := fingerprint(t, data)
	out, err := runVerify(t, data, binary, binary+" --guard.wal-replay-gomaxprocs=off")
	require.NoError(t, err)
	require.Equal(t, before, fingerprint(t, data))
	var series, samples, histograms, exemplars int
	_, err = fmt.Sscanf(out, "series %d\nsamples %d, of them %d native histograms\nexemplars %d\n", &series, &samples, &histograms, &exemplars)
	require.NoError(t, err, out)
	require.Greater(t, series, 2000)
	require.Greater(t, samples, 2000*130)
	require.Positive(t, histograms)
	require.Positive(t, exemplars)
	require.Contains(t, out, "fingerprint  sha256:")
	require.Contains(t, out, "The heads of left and right are the same.")

	// Where the samples lie, in m-mapped chunks or in the WAL, is not seen.
	again, err := runVerify(t, data, binary, tampering(t, binary, "rm -r chunks_head"))
	require.NoError(t, err)
	require.Contains(t, again, out[bytes.Index([]byte(out), []byte("fingerprint")):][:len("fingerprint  sha256:")+64])
}

func TestHeadsThatDifferAreToldByTheFirstDifference(t *testing.T) {
	binary := prometheus(t)
	data, other := generatedFull(t, 1), generatedFull(t, 2)
	for _, tc := range []struct{ name, command, want string }{
		{"another log", "rm -r wal wbl chunks_head && cp -r " + other + "/wal " + other + "/wbl " + other + "/chunks_head .", `^the heads differ: series \{__name__=.*\}`},
		{"a log that is cut", "truncate -s -20000 wal/00000001", `^the heads differ: series \{__name__=.*\}: sample \d+: left has .* at 2026-01-01T.*, right has none$`},
		{"no out-of-order samples", "rm wbl/*", `^the heads differ: series \{__name__=.*\}: sample \d+: left has .* at .*, right has .* at .*$`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, err := runVerify(t, data, binary, tampering(t, binary, tc.command))
			require.Error(t, err)
			require.Regexp(t, tc.want, err.Error())
			require.Empty(t, out)
		})
	}
}
