// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package walreplay

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/promslog"
	"github.com/stretchr/testify/require"
)

func withProcs(t *testing.T, n int) {
	t.Helper()
	before := runtime.GOMAXPROCS(n)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

func TestLimitReadsItsFlag(t *testing.T) {
	for _, in := range []string{"auto", "off", "1", "7", "24"} {
		l := Limit{procs: 3}
		require.NoError(t, l.Set(in))
		require.Equal(t, in, l.String())
	}
	for _, in := range []string{"", "0", "-1", "many", "1.5"} {
		var l Limit
		require.ErrorContains(t, l.Set(in), "neither auto, off, nor a number")
	}
}

func TestCapLowersAndRestoresProcessors(t *testing.T) {
	auto := min(runtime.NumCPU(), AutoMax)
	for _, tc := range []struct {
		limit             string
		procs             int
		during            int
		concurrencyDuring int
	}{
		{limit: "2", procs: 5, during: 2, concurrencyDuring: 2},
		{limit: "8", procs: 5, during: 5, concurrencyDuring: 5}, // Never raised.
		{limit: "auto", procs: AutoMax + 8, during: auto, concurrencyDuring: auto},
		{limit: "auto", procs: 1, during: 1, concurrencyDuring: 1},
	} {
		withProcs(t, tc.procs)
		var limit Limit
		require.NoError(t, limit.Set(tc.limit))
		reg := prometheus.NewRegistry()
		concurrency := 0
		restore := Cap(limit, &concurrency, promslog.NewNopLogger(), reg)
		require.Equal(t, tc.during, runtime.GOMAXPROCS(0), tc.limit)
		require.Equal(t, tc.concurrencyDuring, concurrency, tc.limit)
		got, err := reg.Gather()
		require.NoError(t, err)
		require.EqualValues(t, tc.during, got[0].GetMetric()[0].GetGauge().GetValue())
		restore()
		require.Equal(t, tc.procs, runtime.GOMAXPROCS(0), tc.limit)
	}
}

func TestCapThatIsOffLeavesNoTrace(t *testing.T) {
	withProcs(t, 5)
	var limit Limit
	require.NoError(t, limit.Set("off"))
	reg := prometheus.NewRegistry()
	var log bytes.Buffer
	concurrency := 0
	restore := Cap(limit, &concurrency, promslog.New(&promslog.Config{Writer: &log}), reg)
	require.Equal(t, 5, runtime.GOMAXPROCS(0))
	require.Zero(t, concurrency, "upstream's default stays")
	restore()
	require.Equal(t, 5, runtime.GOMAXPROCS(0))
	got, err := reg.Gather()
	require.NoError(t, err)
	require.Empty(t, got)
	require.Empty(t, log.String())
}
