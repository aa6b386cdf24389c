// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/perf/benchfmt"

	"github.com/promguard/promguard/bench/internal/benchout"
	"github.com/promguard/promguard/bench/internal/binary"
	"github.com/promguard/promguard/bench/walreplay/internal/datadir"
	"github.com/promguard/promguard/bench/walreplay/internal/replay"
)

// results writes measurements as they are made.
type results struct {
	w      benchout.Writer
	config []benchfmt.Config
}

// newResults begins with what the measurements are made on.
func newResults(w io.Writer, output string) *results {
	r := &results{w: benchout.New(w, output)}
	r.set("goos", runtime.GOOS)
	r.set("goarch", runtime.GOARCH)
	r.set("cpu", cpuModel())
	r.set("cpus", strconv.Itoa(runtime.NumCPU()))
	for _, name := range []string{"GODEBUG", "GOGC", "GOMEMLIMIT"} {
		if v := os.Getenv(name); v != "" {
			r.set("env-"+strings.ToLower(name), v)
		}
	}
	return r
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

func (r *results) set(key, value string) {
	r.config = append(r.config, benchfmt.Config{Key: key, Value: []byte(value), File: true})
}

// log names the binaries and what they replay, and says in which direction the units
// that benchstat does not know improve.
func (r *results) log(binaries []binary.Binary, dir *datadir.Dir, c datadir.Contents) error {
	for _, b := range binaries {
		r.set("version-"+b.Name, b.Version)
		if len(b.Args) > 0 {
			r.set("args-"+b.Name, strings.Join(b.Args, " "))
		}
	}
	r.set("wal-bytes", strconv.FormatInt(dir.WALBytes, 10))
	r.set("wal-segments", strconv.Itoa(c.Segments))
	r.set("wal-series", strconv.Itoa(c.Series))
	r.set("wal-samples", strconv.Itoa(c.Samples))
	r.set("blocks-left-out", strconv.Itoa(dir.Blocks))
	for _, unit := range []string{
		"cpu-sec/op", "replay-sec/op", "start-cpu-sec/op", "peak-anon-bytes", "voluntary-switches/op", "involuntary-switches/op", "read-bytes/op", "disk-read-bytes/op",
	} {
		if err := r.better(unit, "lower"); err != nil {
			return err
		}
	}
	if err := r.better("samples/s", "higher"); err != nil {
		return err
	}
	return r.better("series/s", "higher")
}

func (r *results) better(unit, direction string) error {
	return r.w.Write(&benchfmt.UnitMetadata{UnitMetadataKey: benchfmt.UnitMetadataKey{Unit: unit, Key: "better"}, OrigUnit: unit, Value: direction})
}

func (r *results) write(name string, values ...benchfmt.Value) error {
	return r.w.Write(&benchfmt.Result{Config: r.config, Name: benchfmt.Name(name), Iters: 1, Values: values})
}

// replay writes one replay of a log. Rates are of the time that the head says its
// replay took.
func (r *results) replay(s step, c datadir.Contents, took replay.Result) error {
	return r.write("Replay/binary="+s.binary.Name+"/gomaxprocs="+strconv.Itoa(s.gomaxprocs),
		benchfmt.Value{Value: took.Wall.Seconds(), Unit: "sec/op"},
		benchfmt.Value{Value: took.CPU.Seconds(), Unit: "cpu-sec/op"},
		benchfmt.Value{Value: took.Replay.Seconds(), Unit: "replay-sec/op"},
		benchfmt.Value{Value: took.StartCPU.Seconds(), Unit: "start-cpu-sec/op"},
		benchfmt.Value{Value: float64(took.PeakAnon), Unit: "peak-anon-bytes"},
		benchfmt.Value{Value: float64(took.Voluntary), Unit: "voluntary-switches/op"},
		benchfmt.Value{Value: float64(took.Involuntary), Unit: "involuntary-switches/op"},
		benchfmt.Value{Value: float64(took.ReadBytes), Unit: "read-bytes/op"},
		benchfmt.Value{Value: float64(took.DiskReadBytes), Unit: "disk-read-bytes/op"},
		benchfmt.Value{Value: float64(took.HeadSeries), Unit: "head-series"},
		benchfmt.Value{Value: per(c.Samples, took.Replay), Unit: "samples/s"},
		benchfmt.Value{Value: per(c.Series, took.Replay), Unit: "series/s"},
	)
}

// floor writes one pass over a log.
func (r *results) floor(stage string, c datadir.Contents, wall, cpu time.Duration) error {
	values := []benchfmt.Value{
		{Value: wall.Seconds(), Unit: "sec/op"},
		{Value: cpu.Seconds(), Unit: "cpu-sec/op"},
		{Value: per(int(c.Bytes), wall), Unit: "B/s"},
	}
	if c.Samples > 0 {
		values = append(values, benchfmt.Value{Value: per(c.Samples, wall), Unit: "samples/s"})
	}
	return r.write("Floor/stage="+stage, values...)
}

func per(n int, took time.Duration) float64 { return float64(n) / max(took.Seconds(), 1e-9) }
