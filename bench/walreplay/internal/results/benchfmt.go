// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package results

import (
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// better says in which direction the units that benchstat does not know improve.
var better = []struct{ unit, direction string }{
	{"cpu-sec/op", "lower"},
	{"replay-sec/op", "lower"},
	{"start-cpu-sec/op", "lower"},
	{"peak-anon-bytes", "lower"},
	{"voluntary-switches/op", "lower"},
	{"involuntary-switches/op", "lower"},
	{"read-bytes/op", "lower"},
	{"disk-read-bytes/op", "lower"},
	{"samples/s", "higher"},
	{"series/s", "higher"},
}

// BenchWriter writes runs in Go's benchmark format as they are made.
type BenchWriter struct {
	w      *benchfmt.Writer
	config []benchfmt.Config
	log    Log
}

// NewBenchWriter begins the output for a report, whose runs may be still to come.
func NewBenchWriter(w io.Writer, r *Report) (*BenchWriter, error) {
	b := &BenchWriter{w: benchfmt.NewWriter(w), log: r.Log}
	b.machine(&r.Machine)
	for _, bin := range r.Binaries {
		b.set("version-"+bin.Name, bin.Version)
		if len(bin.Args) > 0 {
			b.set("args-"+bin.Name, strings.Join(bin.Args, " "))
		}
	}
	b.set("wal-bytes", strconv.FormatInt(r.Log.Bytes, 10))
	b.set("wal-segments", strconv.Itoa(r.Log.Segments))
	b.set("wal-series", strconv.Itoa(r.Log.Series))
	b.set("wal-samples", strconv.Itoa(r.Log.Samples))
	b.set("blocks-left-out", strconv.Itoa(r.Log.BlocksLeftOut))
	for _, u := range better {
		m := &benchfmt.UnitMetadata{UnitMetadataKey: benchfmt.UnitMetadataKey{Unit: u.unit, Key: "better"}, OrigUnit: u.unit, Value: u.direction}
		if err := b.w.Write(m); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (b *BenchWriter) machine(m *Machine) {
	b.set("goos", m.OS)
	b.set("goarch", m.Arch)
	b.set("cpu", m.CPU)
	b.set("cpus", strconv.Itoa(m.CPUs))
	for _, name := range slices.Sorted(maps.Keys(m.Env)) {
		b.set("env-"+strings.ToLower(name), m.Env[name])
	}
}

func (b *BenchWriter) set(key, value string) {
	b.config = append(b.config, benchfmt.Config{Key: key, Value: []byte(value), File: true})
}

// Add writes one run.
func (b *BenchWriter) Add(r *Run) error {
	return b.w.Write(&benchfmt.Result{
		Config: b.config,
		Name:   benchfmt.Name("Replay/binary=" + r.Binary + "/gomaxprocs=" + strconv.Itoa(r.GOMAXPROCS)),
		Iters:  1,
		Values: []benchfmt.Value{
			{Value: r.WallSeconds, Unit: "sec/op"},
			{Value: r.CPUSeconds, Unit: "cpu-sec/op"},
			{Value: r.ReplaySeconds, Unit: "replay-sec/op"},
			{Value: r.StartCPUSeconds, Unit: "start-cpu-sec/op"},
			{Value: float64(r.PeakAnonBytes), Unit: "peak-anon-bytes"},
			{Value: float64(r.VoluntarySwitches), Unit: "voluntary-switches/op"},
			{Value: float64(r.InvoluntarySwitches), Unit: "involuntary-switches/op"},
			{Value: float64(r.ReadBytes), Unit: "read-bytes/op"},
			{Value: float64(r.DiskReadBytes), Unit: "disk-read-bytes/op"},
			{Value: float64(r.HeadSeries), Unit: "head-series"},
			{Value: r.rate(b.log.Samples), Unit: "samples/s"},
			{Value: r.rate(b.log.Series), Unit: "series/s"},
		},
	})
}

// WriteFloor writes passes over a log in Go's benchmark format.
func WriteFloor(w io.Writer, m Machine, stages []Stage) error {
	b := &BenchWriter{w: benchfmt.NewWriter(w)}
	b.machine(&m)
	for _, s := range stages {
		values := []benchfmt.Value{
			{Value: s.WallSeconds, Unit: "sec/op"},
			{Value: s.CPUSeconds, Unit: "cpu-sec/op"},
			{Value: s.rate(), Unit: "B/s"},
		}
		if s.Samples > 0 {
			values = append(values, benchfmt.Value{Value: float64(s.Samples) / max(s.WallSeconds, 1e-9), Unit: "samples/s"})
		}
		if err := b.w.Write(&benchfmt.Result{Config: b.config, Name: benchfmt.Name("Floor/stage=" + s.Name), Iters: 1, Values: values}); err != nil {
			return err
		}
	}
	return nil
}

// rate is in bytes per second of wall time.
func (s *Stage) rate() float64 { return float64(s.Bytes) / max(s.WallSeconds, 1e-9) }
