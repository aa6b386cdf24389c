// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package tsdb

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/common/promslog"
)

// BenchmarkADamagedBlockThatIsLoadedAgain loads three blocks, one of which has a damaged
// index.
func BenchmarkADamagedBlockThatIsLoadedAgain(b *testing.B) {
	dir := b.TempDir()
	for i := range int64(3) {
		createBlock(b, dir, genSeries(20_000, 5, i*1000, i*1000+10))
	}
	opts := DefaultOptions()
	db, err := Open(dir, promslog.NewNopLogger(), nil, opts, nil)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, db.Close()) })
	db.DisableCompactions()
	extra := createBlock(b, dir, genSeries(20_000, 5, 5000, 5010))
	require.NoError(b, os.WriteFile(filepath.Join(extra, "index"), []byte("damaged"), 0o666))
	require.Error(b, db.reloadBlocks())
	var before, after syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &before))
	b.ReportAllocs()
	for b.Loop() {
		_ = db.reloadBlocks()
	}
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &after))
	used := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(used)/float64(b.N)/1e6, "cpu-ms/reload")
}

// BenchmarkACompactionThatWaitsAgain estimates what a compaction of three blocks of 20,000
// series takes, which is done at each try.
func BenchmarkACompactionThatWaitsAgain(b *testing.B) {
	dir := b.TempDir()
	var dirs []string
	for i := range int64(3) {
		dirs = append(dirs, createBlock(b, dir, genSeries(20_000, 5, i*1000, i*1000+10)))
	}
	db, err := Open(dir, promslog.NewNopLogger(), nil, DefaultOptions(), nil)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, db.Close()) })
	db.DisableCompactions()
	var before, after syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &before))
	for b.Loop() {
		require.Positive(b, db.seriesOf(dirs))
	}
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &after))
	used := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(used)/float64(b.N)/1e6, "cpu-ms/try")
}
