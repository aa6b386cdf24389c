// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package results

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/perf/benchfmt"
)

func report() *Report {
	r := &Report{
		Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Machine: Machine{OS: "linux", Arch: "amd64", CPU: "A <fast> CPU", CPUs: 4, Env: map[string]string{"GOGC": "50"}},
		Binaries: []Binary{
			{Name: "upstream", Version: "prometheus, version 3.15.0"},
			{Name: "patched", Version: "prometheus, version 3.15.0+promguard.1", Args: []string{"--a=<b>", "--c"}},
		},
		Log:   Log{Name: "data", Bytes: 10 << 20, Segments: 3, Series: 1000, Samples: 5_000_000},
		Floor: []Stage{{Name: "read", WallSeconds: 0.1, CPUSeconds: 0.1, Bytes: 10 << 20}, {Name: "decode", WallSeconds: 0.5, CPUSeconds: 0.5, Bytes: 10 << 20, Samples: 5_000_000}},
	}
	for i, procs := range []int{1, 64, 1, 64, 1} {
		for j, b := range r.Binaries {
			r.Runs = append(r.Runs, Run{Binary: b.Name, GOMAXPROCS: procs, WallSeconds: float64(i + 1), CPUSeconds: float64(2 * (i + j + 1)), ReplaySeconds: 0.5, PeakAnonBytes: 100 << 20})
		}
	}
	return r
}

func write(t *testing.T, r *Report, format string) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, r.Write(&out, format))
	return out.String()
}

func TestJSONHasAllOfTheReport(t *testing.T) {
	var again Report
	require.NoError(t, json.Unmarshal([]byte(write(t, report(), "json")), &again))
	require.Equal(t, report(), &again)
}

func TestBenchfmtHasALinePerRun(t *testing.T) {
	in := benchfmt.NewReader(strings.NewReader(write(t, report(), "benchfmt")), "x")
	n := 0
	for in.Scan() {
		res, ok := in.Result().(*benchfmt.Result)
		if !ok {
			continue
		}
		n++
		v, ok := res.Value("samples/s")
		require.True(t, ok)
		require.Equal(t, 1e7, v)
		require.Equal(t, "50", res.GetConfig("env-gogc"))
	}
	require.NoError(t, in.Err())
	require.Equal(t, 10, n)
}

func TestTableHasTheMedianOfEachBinaryAndGOMAXPROCS(t *testing.T) {
	text := write(t, report(), "table")
	var rows [][]string
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 5 && (f[0] == "upstream" || f[0] == "patched") && f[1] != "prometheus," {
			rows = append(rows, f[:5])
		}
	}
	require.Equal(t, [][]string{
		{"upstream", "1", "3", "3.000", "6.000"},
		{"patched", "1", "3", "3.000", "8.000"},
		{"upstream", "64", "2", "3.000", "6.000"},
		{"patched", "64", "2", "3.000", "8.000"},
	}, rows)
	require.Contains(t, text, "x floor")
	require.NotContains(t, write(t, &Report{Binaries: report().Binaries, Runs: report().Runs}, "table"), "floor")
}
