// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package spawn

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if os.Args[0] == "oomstorm" {
		if err := Become(os.Args[2:]); err != nil {
			os.Stderr.WriteString(err.Error())
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func TestProgramHasItsPriorityAndCgroupFromTheStart(t *testing.T) {
	procs := filepath.Join(t.TempDir(), "cgroup.procs")
	require.NoError(t, os.WriteFile(procs, nil, 0o666))
	cmd, err := Command(Options{Idle: true, Procs: procs}, "/bin/sh", "-c", "echo $$; cut -d' ' -f41 /proc/self/stat")
	require.NoError(t, err)
	out, err := cmd.Output()
	require.NoError(t, err)
	lines := strings.Fields(string(out))
	require.Equal(t, strconv.Itoa(unix.SCHED_IDLE), lines[1])
	joined, err := os.ReadFile(procs)
	require.NoError(t, err)
	require.Equal(t, lines[0], string(joined), "the process that joined is the program")
}

func TestProgramThatCannotBeStartedIsNamed(t *testing.T) {
	cmd, err := Command(Options{}, "/nowhere/prometheus")
	require.NoError(t, err)
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, "/nowhere/prometheus: no such file or directory", string(out))

	cmd, err = Command(Options{Procs: "/nowhere/cgroup.procs"}, "/bin/true")
	require.NoError(t, err)
	out, err = cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "/nowhere/cgroup.procs: no such file or directory")
}
