// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/perf/benchfmt"
)

// counted returns how often each benchmark was measured, and checks that it has
// all units.
func counted(t *testing.T, out *bytes.Buffer, units ...string) map[string]int {
	t.Helper()
	lines := map[string]int{}
	r := benchfmt.NewReader(out, "stdout")
	for r.Scan() {
		result, ok := r.Result().(*benchfmt.Result)
		if !ok {
			continue
		}
		lines[string(result.Name)]++
		for _, unit := range units {
			v, ok := result.Value(unit)
			require.True(t, ok, unit)
			require.Positive(t, v, unit)
		}
	}
	return lines
}

func TestEveryBodyIsStreamedThroughEveryTarget(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, execute([]string{"stream", "--count=1", "--bytes=3000000"}, &out))
	want := map[string]int{}
	for body := range bodies {
		for _, proxy := range []string{"none", "bare", "promguard", "promguard-truncate"} {
			want["Stream/body="+body+"/proxy="+proxy] = 1
		}
	}
	require.Equal(t, want, counted(t, &out, "sec/op", "B/s", "peak-rss-bytes"))
}

func TestIdleAndSlowClientsAreConnectedWhileOthersAreMeasured(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, execute([]string{"crowd", "--count=2", "--idle=20", "--slow=10", "--rate=100", "--duration=100ms"}, &out))
	require.Equal(t, map[string]int{"Crowd/crowd=none": 2, "Crowd/crowd=idle": 2, "Crowd/crowd=slow": 2, "Crowd/crowd=both": 2},
		counted(t, &out, "p50-sec", "p99-sec", "connections"))
}
