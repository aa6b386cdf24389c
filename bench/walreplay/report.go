// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/perf/benchfmt"

	"github.com/promguard/promguard/bench/walreplay/internal/datadir"
	"github.com/promguard/promguard/bench/walreplay/internal/replay"
)

// report writes results in Go's benchmark format.
type report struct {
	w        *benchfmt.Writer
	config   []benchfmt.Config
	contents datadir.Contents
}

// better says in which direction the units that benchstat does not know improve.
var better = []struct{ unit, direction string }{
	{"cpu-sec/op", "lower"},
	{"replay-sec/op", "lower"},
	{"start-cpu-sec/op", "lower"},
	{"peak-anon-bytes", "lower"},
	{"voluntary-switches/op", "lower"},
	{"involuntary-switches/op", "lower"},
	{"samples/s", "higher"},
	{"series/s", "higher"},
}

func newReport(w io.Writer, c runConfig, dir *datadir.Dir, contents datadir.Contents) (*report, error) {
	r := &report{w: benchfmt.NewWriter(w), contents: contents}
	r.set("goos", runtime.GOOS)
	r.set("goarch", runtime.GOARCH)
	r.set("cpu", cpuModel())
	r.set("cpus", strconv.Itoa(runtime.NumCPU()))
	for _, b := range c.Binaries {
		r.set("version-"+b.Name, b.Version)
		if len(b.Args) > 0 {
			r.set("args-"+b.Name, strings.Join(b.Args, " "))
		}
	}
	for _, name := range []string{"GOGC", "GOMEMLIMIT", "GODEBUG"} {
		if v := os.Getenv(name); v != "" {
			r.set("env-"+strings.ToLower(name), v)
		}
	}
	r.set("wal-bytes", strconv.FormatInt(dir.WALBytes, 10))
	r.set("wal-segments", strconv.Itoa(contents.Segments))
	r.set("wal-series", strconv.Itoa(contents.Series))
	r.set("wal-samples", strconv.Itoa(contents.Samples))
	r.set("blocks-left-out", strconv.Itoa(dir.Blocks))
	for _, u := range better {
		m := &benchfmt.UnitMetadata{UnitMetadataKey: benchfmt.UnitMetadataKey{Unit: u.unit, Key: "better"}, OrigUnit: u.unit, Value: u.direction}
		if err := r.w.Write(m); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *report) set(key, value string) {
	r.config = append(r.config, benchfmt.Config{Key: key, Value: []byte(value), File: true})
}

// add writes one result. Rates are by the time that the head itself says its
// replay took.
func (r *report) add(s step, res replay.Result) error {
	replaySeconds := max(res.Replay.Seconds(), 1e-9)
	return r.w.Write(&benchfmt.Result{
		Config: r.config,
		Name:   benchfmt.Name("Replay/binary=" + s.binary.Name + "/gomaxprocs=" + strconv.Itoa(s.gomaxprocs)),
		Iters:  1,
		Values: []benchfmt.Value{
			{Value: res.Wall.Seconds(), Unit: "sec/op"},
			{Value: res.CPU.Seconds(), Unit: "cpu-sec/op"},
			{Value: res.Replay.Seconds(), Unit: "replay-sec/op"},
			{Value: res.StartCPU.Seconds(), Unit: "start-cpu-sec/op"},
			{Value: float64(res.PeakAnon), Unit: "peak-anon-bytes"},
			{Value: float64(res.Voluntary), Unit: "voluntary-switches/op"},
			{Value: float64(res.Involuntary), Unit: "involuntary-switches/op"},
			{Value: float64(res.HeadSeries), Unit: "head-series"},
			{Value: float64(r.contents.Samples) / replaySeconds, Unit: "samples/s"},
			{Value: float64(r.contents.Series) / replaySeconds, Unit: "series/s"},
		},
	})
}

// cpuModel is the processor's name as Linux tells it, as go test prints it.
func cpuModel() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(line, ":")
		if name := strings.TrimSpace(name); name == "model name" || name == "Model" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}
