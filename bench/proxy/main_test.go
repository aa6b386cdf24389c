// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/perf/benchfmt"
)

// TestMain lets the test's own binary be the targets.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestEveryTargetIsMeasuredInBenchmarkFormat(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, execute([]string{"run", "--count=2", "--clients=2", "--requests=50", "--proxy=mine=" + self + " serve --listen={listen} --upstream={upstream}"}, &out))
	want := map[string]int{}
	for _, queries := range []string{"same", "unique"} {
		for _, name := range []string{"none", "bare", "mine"} {
			want["QueryRange/queries="+queries+"/proxy="+name] = 2
		}
	}
	require.Equal(t, want, counted(t, &out, "cpu-sec/op", "sec/op", "req/s", "p50-sec", "p99-sec"))
}

func TestWrongUseIsAnError(t *testing.T) {
	require.Error(t, execute([]string{"run", "--count=x"}, nil))
	require.ErrorContains(t, execute([]string{"run", "--requests=0"}, nil), "1 or more")
	require.ErrorContains(t, execute([]string{"run", "--proxy=other=/absent {listen}"}, nil), "absent")
	require.ErrorContains(t, execute([]string{"run", "--proxy=other"}, nil), "use NAME=PATH")
}

// counted reads results in Go's benchmark format, each of which must have the units.
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
