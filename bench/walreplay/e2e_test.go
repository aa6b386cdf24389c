// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/perf/benchfmt"

	"github.com/promguard/promguard/bench/walreplay/internal/datadir"
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

// generated makes a small data directory.
func generated(t *testing.T, series, scrapes int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	var stderr bytes.Buffer
	require.NoError(t, execute(t.Context(), []string{
		"generate", "--out=" + dir, "--series=" + strconv.Itoa(series), "--scrapes=" + strconv.Itoa(scrapes), "--churn=10",
	}, &stderr, &stderr))
	return dir
}

// fingerprint is a checksum of all names and contents below a directory.
func fingerprint(t *testing.T, dir string) [32]byte {
	t.Helper()
	h := sha256.New()
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		h.Write([]byte(path))
		if d.IsDir() {
			return nil
		}
		b, err := os.ReadFile(path)
		h.Write(b)
		return err
	}))
	return [32]byte(h.Sum(nil))
}

// benchResults reads the benchmark format as benchstat does.
func benchResults(t *testing.T, out *bytes.Buffer) []*benchfmt.Result {
	t.Helper()
	var all []*benchfmt.Result
	r := benchfmt.NewReader(out, "stdout")
	for r.Scan() {
		switch rec := r.Result().(type) {
		case *benchfmt.Result:
			all = append(all, rec.Clone())
		case *benchfmt.SyntaxError:
			require.NoError(t, rec)
		}
	}
	require.NoError(t, r.Err())
	return all
}

func TestReplaysOfARealPrometheusAreMeasuredAndTheSourceIsUntouched(t *testing.T) {
	binary := prometheus(t)
	defer goleak.VerifyNone(t)
	data, tmp := generated(t, 5000, 30), t.TempDir()
	d, err := datadir.Open(data)
	require.NoError(t, err)
	contents, err := d.Count(t.Context())
	require.NoError(t, err)
	before := fingerprint(t, data)

	var stdout, stderr bytes.Buffer
	err = execute(t.Context(), []string{
		"run", "--wal=" + data, "--tmp-dir=" + tmp, "--count=2", "--gomaxprocs=1,2",
		"--binary=plain=" + binary, "--binary=lifecycle=" + binary + " --web.enable-lifecycle",
	}, &stdout, &stderr)
	require.NoError(t, err, stderr.String())

	all := benchResults(t, &stdout)
	require.Len(t, all, 8)
	for _, r := range all {
		require.Equal(t, "--web.enable-lifecycle", r.GetConfig("args-lifecycle"))
		require.Contains(t, r.GetConfig("version-plain"), "prometheus, version ")
		require.Equal(t, strconv.Itoa(contents.Samples), r.GetConfig("wal-samples"))
		require.Equal(t, strconv.FormatInt(d.WALBytes, 10), r.GetConfig("wal-bytes"))
		value := func(unit string) float64 {
			v, ok := r.Value(unit)
			require.True(t, ok, unit)
			require.Positive(t, v, unit)
			return v
		}
		require.EqualValues(t, contents.Series, value("head-series"))
		require.Greater(t, value("sec/op"), value("replay-sec/op"))
		require.Greater(t, value("cpu-sec/op"), value("start-cpu-sec/op"))
		require.InEpsilon(t, float64(contents.Samples), value("samples/s")*value("replay-sec/op"), 1e-6)
		require.InEpsilon(t, float64(contents.Series), value("series/s")*value("replay-sec/op"), 1e-6)
		require.Greater(t, value("peak-anon-bytes"), float64(10<<20))
		value("voluntary-switches/op")
	}
	require.NotContains(t, stderr.String(), "warning")
	require.Equal(t, before, fingerprint(t, data))
	requireEmpty(t, tmp)
}

func TestReplayOfACorruptLogIsToldApart(t *testing.T) {
	binary := prometheus(t)
	data, tmp := generated(t, 2000, 10), t.TempDir()
	segment := filepath.Join(data, "wal", "00000000")
	b, err := os.ReadFile(segment)
	require.NoError(t, err)
	b[len(b)-1000] ^= 0xff
	require.NoError(t, os.WriteFile(segment, b, 0o666))
	before := fingerprint(t, data)

	var stdout, stderr bytes.Buffer
	err = execute(t.Context(), []string{"run", "--wal=" + data, "--tmp-dir=" + tmp, "--count=1", "--binary=" + binary}, &stdout, &stderr)
	require.NoError(t, err, stderr.String())
	require.Len(t, benchResults(t, &stdout), 1)
	require.Contains(t, stderr.String(), "warning: the log is corrupt")
	require.Contains(t, stderr.String(), "warning: prometheus found the log corrupt")
	require.Equal(t, before, fingerprint(t, data))
	requireEmpty(t, tmp)
}

func TestBinaryThatRefusesItsFlagsIsShownWithItsOwnWords(t *testing.T) {
	binary := prometheus(t)
	data, tmp := generated(t, 500, 2), t.TempDir()
	var stdout, stderr bytes.Buffer
	err := execute(t.Context(), []string{"run", "--wal=" + data, "--tmp-dir=" + tmp, "--binary=odd=" + binary + " --no-such-flag"}, &stdout, &stderr)
	require.ErrorContains(t, err, "odd ("+binary+") stopped before the WAL was replayed (exit status 1)")
	require.ErrorContains(t, err, "no-such-flag")
	require.NotContains(t, stdout.String(), "BenchmarkReplay")
	requireEmpty(t, tmp)
}

func requireEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}
