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
