// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package results

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
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

func TestJSONIsReadBackAsItWas(t *testing.T) {
	r := report()
	again, err := Parse([]byte(write(t, r, "json")))
	require.NoError(t, err)
	require.Equal(t, r, again)
}

func TestWhatIsNoReportIsRefused(t *testing.T) {
	for _, s := range []string{"", "[]", "{}", `{"runs":[]}`, `{"color":1}`, "Benchmark"} {
		_, err := Parse([]byte(s))
		require.ErrorContains(t, err, "this is no report in the format json of walreplay run", s)
	}
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

func TestPageIsWellFormedSelfContainedAndEscaped(t *testing.T) {
	text := write(t, report(), "html")
	for _, out := range []string{"http:", "https:", "<script", "src=", "@import", "url(", "<fast>", "--a=<b>"} {
		require.NotContains(t, text, out)
	}
	for _, in := range []string{"A &lt;fast&gt; CPU", "3.15.0+promguard.1", "--a=&lt;b&gt; --c", "GOGC", "decode floor, 0.5", "2026-01-02 03:04 UTC", "5,000,000 samples"} {
		require.Contains(t, strings.ReplaceAll(text, "&#43;", "+"), in)
	}
	// Every plot is XML by itself, with a curve and all dots of each binary.
	plots := strings.Split(text, "<svg")[1:]
	require.Len(t, plots, 3)
	for _, p := range plots {
		svg := "<svg" + p[:strings.Index(p, "</svg>")+len("</svg>")]
		count := map[string]int{}
		dec := xml.NewDecoder(strings.NewReader(svg))
		for {
			token, err := dec.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			if e, ok := token.(xml.StartElement); ok {
				count[e.Name.Local]++
			}
		}
		require.Equal(t, 2, count["polyline"])
		require.Equal(t, 10+4, count["circle"])
	}
}

func TestAxesAreRoundAndHoldTheLargestValue(t *testing.T) {
	for _, tc := range []struct{ top, step float64 }{{0.7, 0.2}, {1, 0.2}, {4.9, 1}, {37, 10}, {1234, 500}} {
		p := &plot{}
		y := p.yAxis(tc.top)
		require.GreaterOrEqual(t, y(tc.top), plotTop)
		require.Equal(t, plotBottom, y(0))
		require.InDelta(t, tc.step, roundStep(tc.top/maxTicks), 1e-12)
		require.LessOrEqual(t, len(p.YTicks), maxTicks+1)
	}
}
