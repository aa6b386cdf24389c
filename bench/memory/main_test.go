// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/require"
	"golang.org/x/perf/benchfmt"

	"github.com/promguard/promguard/internal/cli"
)

func TestSeriesAreMeasuredKeptAndDropped(t *testing.T) {
	dir := os.Getenv("PROMGUARD_BIN")
	if dir == "" {
		t.Skip("PROMGUARD_BIN is not set; make test-e2e sets it")
	}
	var out strings.Builder
	args := []string{"--binary=" + filepath.Join(dir, "prometheus") + " --guard.drop-rules=off", "--pods=300", "--scrapes=1"}
	require.NoError(t, run(t.Context(), args, &out))
	heap := map[string]float64{}
	for in := benchfmt.NewReader(strings.NewReader(out.String()), "out"); in.Scan(); {
		if r, ok := in.Result().(*benchfmt.Result); ok {
			heap[r.Name.String()], _ = r.Value("heap-B/series")
		}
	}
	require.Len(t, heap, 2)
	require.InDelta(t, 1400, heap["Series/binary=prometheus/kind=kept"], 700, out.String())
	require.Less(t, heap["Series/binary=prometheus/kind=dropped"], 300., out.String())
}

func TestMistakesAreToldBeforeAnythingIsStarted(t *testing.T) {
	for want, args := range map[string][]string{
		"--binary": {},
		"--pods, --scrapes and --count must be 1 or more": {"--binary=x", "--pods=0"},
		`binary x: exec: "./x": stat ./x: no such file`:   {"--binary=./x"},
	} {
		require.ErrorContains(t, run(t.Context(), args, t.Output()), want)
	}
}

func TestServerThatEndsIsToldWithItsLastWords(t *testing.T) {
	dir := os.Getenv("PROMGUARD_BIN")
	if dir == "" {
		t.Skip("PROMGUARD_BIN is not set; make test-e2e sets it")
	}
	var tail cli.Tail
	err := run(t.Context(), []string{"--binary=" + filepath.Join(dir, "prometheus") + " --storage.tsdb.retention.size=x"}, t.Output())
	require.ErrorContains(t, err, "prometheus: it ended (exit status ")
	require.ErrorAs(t, err, &tail)
	require.Contains(t, tail.Log, "units: invalid x")
}

func TestOwnerIsWhoAskedTheLibraryForMemory(t *testing.T) {
	sample := &profile.Sample{}
	for _, name := range []string{"slices.Grow", "github.com/prometheus/prometheus/scrape.(*slab[go.shape.x]).add", "github.com/prometheus/prometheus/scrape.f"} {
		sample.Location = append(sample.Location, &profile.Location{Line: []profile.Line{{Function: &profile.Function{Name: name}}}})
	}
	require.Equal(t, "scrape.slab", owner(sample))
	require.Equal(t, "other", owner(&profile.Sample{}))
}

func TestASeriesCostsWhatAnIdleServerDoesNotHave(t *testing.T) {
	f := figures{heap: 1000, series: 10, "tsdb.a": 500, "scrape.b": 100}
	require.Equal(t, figures{heap: 80, "tsdb.a": 50, "scrape.b": 0}, f.over(figures{heap: 200, series: 5, "scrape.b": 100}, f[series]))
}

func TestPhasesAreReadFromTheLog(t *testing.T) {
	gc := func(live string) string {
		return "gc 7 @1.5s 8%: 0.1+2.0+0.1 ms clock, 0.2+0/3/1+0.2 ms cpu, 400->500->" + live + " MB, 420 MB goal, 0 MB stacks, 0 MB globals, 2 P"
	}
	o := &observer{peaks: map[string]peaks{}, entered: make(chan string, 100), restart: "restart-"}
	for _, line := range []string{
		`level=INFO source=head.go:1 msg="Replaying on-disk memory mappable chunks if any"`, gc("300"), gc("200"),
		`level=INFO msg="Server is ready to receive web requests."`,
		`level=INFO msg="Starting stale series compaction"`, `level=INFO msg="write block started" mint=1`, gc("350"), `level=INFO msg="write block completed"`, gc("351"),
		`level=INFO msg="Ending stale series compaction" num_series=7`,
		`level=INFO msg="write block started" mint=1`, gc("360"), `level=INFO msg="write block completed"`, gc("340"),
	} {
		o.line(line)
	}
	live := map[string]int64{}
	for name, p := range o.peaks {
		live[name] = p.live >> 20
	}
	require.Equal(t, map[string]int64{"restart-replay": 300, "restart-stale": 351, "restart-block": 360, "restart-gc": 340}, live)
}

func TestPhasesAreComparedWithTheRestAroundThem(t *testing.T) {
	var out strings.Builder
	live := map[string]peaks{"rest": {live: 100 << 20}, "block": {live: 120 << 20}, "replay": {}}
	rss := map[string]peaks{"rest": {rss: 150 << 20}, "block": {rss: 180 << 20}, "replay": {rss: 130 << 20}}
	require.NoError(t, printPhases(&out, "x", live, rss))
	got := map[string]float64{}
	for in := benchfmt.NewReader(strings.NewReader(out.String()), "out"); in.Scan(); {
		if r, ok := in.Result().(*benchfmt.Result); ok {
			got[r.Name.String()], _ = r.Value("live/rest")
		}
	}
	require.Equal(t, map[string]float64{"Phase/binary=x/phase=replay": 1, "Phase/binary=x/phase=block": 1.2}, got)
}
