// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBinaryIsANameAPathAndArguments(t *testing.T) {
	for spec, want := range map[string]Binary{
		"bin/Prometheus":                        {Name: "prometheus", Path: "bin/Prometheus", Args: []string{}},
		"new=/opt/p":                            {Name: "new", Path: "/opt/p", Args: []string{}},
		"  off=bin/p --guard.x=off  --log=1  ":  {Name: "off", Path: "bin/p", Args: []string{"--guard.x=off", "--log=1"}},
		"bin/p --enable-feature=promql-at=more": {Name: "p", Path: "bin/p", Args: []string{"--enable-feature=promql-at=more"}},
	} {
		got, err := ParseBinary(spec)
		require.NoError(t, err, spec)
		require.Equal(t, want, got, spec)
	}
	for spec, want := range map[string]string{
		"":                              "empty",
		"Big=p":                         "must be of lower-case letters",
		"=p":                            "must be of lower-case letters",
		"p --storage.tsdb.path=x":       "--storage.tsdb.path is set by oomstorm",
		"p --web.listen-address :9090":  "--web.listen-address is set by oomstorm",
		"p --log.level=warn --log.foo1": "--log.level is set by oomstorm",
	} {
		_, err := ParseBinary(spec)
		require.ErrorContains(t, err, want, spec)
	}
}

func TestWatchKeepsThePeaksAndKillsAtTheLimit(t *testing.T) {
	w := &Watch{}
	w.AwaitBelow(100)
	require.False(t, w.add(Memory{RSS: 300, Anon: 90, Peak: 310}, 100))
	require.True(t, w.Recovered().IsZero())
	require.False(t, w.add(Memory{RSS: 100, Anon: 99, Peak: 310}, 100))
	require.WithinDuration(t, time.Now(), w.Recovered(), time.Second)
	require.Equal(t, Memory{RSS: 300, Anon: 99, Peak: 310}, w.Peak())
	require.Equal(t, int64(100), w.Now().RSS)
	require.False(t, w.Killed())
	require.False(t, w.add(Memory{Anon: 1 << 40}, 0), "no limit")
	require.True(t, w.add(Memory{Anon: 100}, 100))
	require.True(t, w.Killed())
}

func TestLimitReachesTheServerInOneWayOnly(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "1GiB")
	require.NotContains(t, environment(0), "GOMEMLIMIT=1GiB")
	env := environment(5)
	require.Contains(t, env, "GOMEMLIMIT=5")
	require.NotContains(t, env, "GOMEMLIMIT=1GiB")
}

func TestOwnMemoryAndCPUTimeCanBeRead(t *testing.T) {
	if !Supported {
		t.Skip("measures through /proc")
	}
	m, err := readMemory(os.Getpid())
	require.NoError(t, err)
	require.Positive(t, m.Anon)
	require.GreaterOrEqual(t, m.RSS, m.Anon)
	require.GreaterOrEqual(t, m.Peak, m.Anon)
	cpu, err := cpuTime(os.Getpid())
	require.NoError(t, err)
	require.Positive(t, cpu)
	_, err = readMemory(1 << 30)
	require.Error(t, err)
}
