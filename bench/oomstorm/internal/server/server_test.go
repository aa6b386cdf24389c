// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/bench/internal/proc"
)

func TestWatchKeepsThePeaksAndKillsAtTheLimit(t *testing.T) {
	w := &Watch{}
	w.AwaitBelow(100)
	require.False(t, w.add(proc.Memory{RSS: 300, Anon: 90, Peak: 310}, 100))
	require.True(t, w.Recovered().IsZero())
	require.False(t, w.add(proc.Memory{RSS: 100, Anon: 99, Peak: 310}, 100))
	require.WithinDuration(t, time.Now(), w.Recovered(), time.Minute)
	require.Equal(t, proc.Memory{RSS: 300, Anon: 99, Peak: 310}, w.Peak())
	require.Equal(t, int64(100), w.Now().RSS)
	require.False(t, w.Killed())
	require.False(t, w.add(proc.Memory{Anon: 1 << 40}, 0), "no limit")
	require.True(t, w.add(proc.Memory{Anon: 100}, 100))
	require.True(t, w.Killed())
}

func TestLimitReachesTheServerInOneWayOnly(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "1GiB")
	require.NotContains(t, environment(0), "GOMEMLIMIT=1GiB")
	env := environment(5)
	require.Contains(t, env, "GOMEMLIMIT=5")
	require.NotContains(t, env, "GOMEMLIMIT=1GiB")
}
