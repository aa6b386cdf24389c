// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestInterruptEndsAStepWithAllItStarted(t *testing.T) {
	dir := t.TempDir()
	s := steps{logs: filepath.Join(dir, "logs"), env: os.Environ(), out: io.Discard}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	pidFile := filepath.Join(dir, "pid")
	go func() {
		for ctx.Err() == nil {
			if b, err := os.ReadFile(pidFile); err == nil && strings.HasSuffix(string(b), "\n") {
				cancel()
			}
			time.Sleep(time.Millisecond)
		}
	}()
	err := s.run(ctx, dir, "sleep", "sh", "-c", "sleep 60 & echo $! > pid; wait")
	require.ErrorContains(t, err, "sleep: interrupted after")

	b, err := os.ReadFile(pidFile)
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return !alive(t, pid) }, 20*time.Second, time.Millisecond)
}

// alive says whether pid runs. A process that has ended but whose parent has
// not asked for its status yet can still be sent signals.
func alive(t *testing.T, pid int) bool {
	t.Helper()
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err != nil || !strings.Contains(string(stat), ") Z ")
}

func TestStepsGetNothingThatChangesTheBuildAndLeaveNothingBehind(t *testing.T) {
	got := environment([]string{
		"PATH=/bin", "HOME=/h", "https_proxy=p", "NPM_CONFIG_REGISTRY=r", "npm_config_cache=c",
		"NODE_ENV=production", "CI=true", "PUBLIC_URL=/x", "SECRET=s",
	}, "/tmp/ui")
	require.Equal(t, []string{
		"PATH=/bin", "HOME=/h", "https_proxy=p", "NPM_CONFIG_REGISTRY=r", "npm_config_cache=c",
		"npm_config_cache=/tmp/ui/npm-cache",
		"npm_config_store_dir=/tmp/ui/pnpm-store",
		"npm_config_cache_dir=/tmp/ui/pnpm-cache",
		"npm_config_state_dir=/tmp/ui/pnpm-state",
	}, got)
}

func TestTailIsTheEndOfTheText(t *testing.T) {
	for _, tc := range []struct {
		text, want string
		n          int
	}{
		{"", "", 2},
		{"a\n", "a", 2},
		{"a\nb\nc\n", "b\nc", 2},
		{"a\nb", "a\nb", 2},
	} {
		require.Equal(t, tc.want, string(tail([]byte(tc.text), tc.n)))
	}
}
