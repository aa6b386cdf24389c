// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package tsdb

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/prometheus/common/promslog"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/tsdb/wlog"
	"github.com/prometheus/prometheus/util/compression"
)

// A full disk may be why the log is damaged. Upstream's repair writes, for which it has
// the room of the segments that it deletes: what is kept must not take that away.
func TestOnAFullDiskARepairEndsAsUpstreamsDoes(t *testing.T) {
	made := t.TempDir()
	writeSegments(t, made)
	damageSegment(t, made, 2)
	dir := filepath.Join(copyOf(t, made), "on", "tmpfs")
	require.NoError(t, os.MkdirAll(dir, 0o777))
	mount := func(t *testing.T, options string) {
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
			t.Skip("mounting a small disk: ", err)
		}
		t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, 0)) })
		require.NoError(t, os.CopyFS(dir, os.DirFS(made)))
	}
	unknown := func(string) (uint64, uint64, error) { return 0, 0, errors.ErrUnsupported }

	var ends []map[string]string
	for name, keeper := range map[string]*damagedLogs{
		"keeping is off": nil,
		"keeping is on":  keeperOf(dir, promslog.NewNopLogger()),
		"keeping is on, and the disk does not say": {dir: dir, logger: promslog.NewNopLogger(), space: unknown},
	} {
		t.Run("no byte is left, "+name, func(t *testing.T) {
			mount(t, "size=600k")
			fillBytes(t, dir)
			damage := damageOf(t, dir, 2)
			w, err := wlog.New(promslog.NewNopLogger(), nil, filepath.Join(dir, "wal"), compression.None)
			require.NoError(t, err)
			keeper.keep(damage, 0)
			require.NoError(t, w.Repair(damage))
			require.NoError(t, w.Close())
			require.Empty(t, keptLogs(dir))
			ends = append(ends, logFiles(t, dir))
		})
	}
	require.Equal(t, ends[0], ends[1])
	require.Equal(t, ends[0], ends[2])

	t.Run("no file can be made", func(t *testing.T) {
		mount(t, "nr_inodes=40")
		fillInodes(t, dir)
		before := logFiles(t, dir)
		d := keeperOf(dir, promslog.NewNopLogger())
		d.keep(damageOf(t, dir, 2), 0)
		require.Empty(t, keptLogs(dir))
		require.Equal(t, before, logFiles(t, dir))
	})
}

func fillBytes(t *testing.T, dir string) {
	f, err := os.Create(filepath.Join(dir, "filler"))
	require.NoError(t, err)
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NoError(t, f.Close())
}

func fillInodes(t *testing.T, dir string) {
	var err error
	for i := 0; err == nil; i++ {
		err = os.WriteFile(filepath.Join(dir, fmt.Sprint("filler", i)), nil, 0o666)
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
}
