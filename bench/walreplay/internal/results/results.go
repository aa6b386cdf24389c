// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package results holds what replays took, and writes it for benchstat, for
// people and for programs.
package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Report is a series of replays of one log on one machine.
type Report struct {
	Created  time.Time `json:"created"`
	Machine  Machine   `json:"machine"`
	Binaries []Binary  `json:"binaries"`
	Log      Log       `json:"log"`
	Floor    []Stage   `json:"floor,omitempty"` // cumulative, in order
	Runs     []Run     `json:"runs"`            // in the order in which they were made
}

// Machine is what the replays ran on.
type Machine struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
	CPU  string `json:"cpu"`
	CPUs int    `json:"cpus"`
	// Env are the variables of the Go runtime that the binaries were given.
	Env map[string]string `json:"env,omitempty"`
}

// Binary is a Prometheus that was measured.
type Binary struct {
	Name    string   `json:"name"`
	Version string   `json:"version"`
	Args    []string `json:"args,omitempty"`
}

// Log is what was replayed.
type Log struct {
	Name          string `json:"name"`
	Bytes         int64  `json:"bytes"` // of checkpoint and segments
	Segments      int    `json:"segments"`
	Series        int    `json:"series"`
	Samples       int    `json:"samples"`
	Exemplars     int    `json:"exemplars"`
	BlocksLeftOut int    `json:"blocks_left_out"`
}

// Stage is a floor: what it takes here to get the log's bytes that far.
type Stage struct {
	Name        string  `json:"name"`
	WallSeconds float64 `json:"wall_seconds"`
	CPUSeconds  float64 `json:"cpu_seconds"`
	Bytes       int64   `json:"bytes"`
	Samples     int     `json:"samples,omitempty"`
}

// Run is one replay.
type Run struct {
	Binary              string  `json:"binary"`
	GOMAXPROCS          int     `json:"gomaxprocs"`
	WallSeconds         float64 `json:"wall_seconds"`
	CPUSeconds          float64 `json:"cpu_seconds"`
	ReplaySeconds       float64 `json:"replay_seconds"`
	StartCPUSeconds     float64 `json:"start_cpu_seconds"`
	PeakAnonBytes       int64   `json:"peak_anon_bytes"`
	VoluntarySwitches   int64   `json:"voluntary_switches"`
	InvoluntarySwitches int64   `json:"involuntary_switches"`
	ReadBytes           int64   `json:"read_bytes"`
	DiskReadBytes       int64   `json:"disk_read_bytes"`
	HeadSeries          int64   `json:"head_series"`
	Repaired            bool    `json:"repaired,omitempty"`
}

// rate is so many per second of the time that the head says its replay took.
func (r *Run) rate(n int) float64 { return float64(n) / max(r.ReplaySeconds, 1e-9) }

// ThisMachine describes the machine that the process runs on.
func ThisMachine() Machine {
	m := Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, CPU: cpuModel(), CPUs: runtime.NumCPU(), Env: map[string]string{}}
	for _, name := range []string{"GOGC", "GOMEMLIMIT", "GODEBUG"} {
		if v := os.Getenv(name); v != "" {
			m.Env[name] = v
		}
	}
	return m
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

// Formats are the formats that Write knows.
func Formats() []string { return []string{"benchfmt", "table", "json"} }

// Write writes the report in one of Formats.
func (r *Report) Write(w io.Writer, format string) error {
	switch format {
	case "benchfmt":
		b, err := NewBenchWriter(w, r)
		for i := range r.Runs {
			err = errors.Join(err, b.Add(&r.Runs[i]))
		}
		return err
	case "table":
		return r.writeTable(w)
	case "json":
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	return fmt.Errorf("format must be one of %v, got %q", Formats(), format)
}

// floor is the last stage of the floor, nil if none was measured.
func (r *Report) floor() *Stage {
	if len(r.Floor) == 0 {
		return nil
	}
	return &r.Floor[len(r.Floor)-1]
}

// cell is all runs of a binary at a value of GOMAXPROCS.
type cell struct {
	binary     string
	gomaxprocs int
	runs       []*Run
}

// median is the median of a figure over the cell's runs.
func (c *cell) median(figure func(*Run) float64) float64 {
	values := make([]float64, 0, len(c.runs))
	for _, r := range c.runs {
		values = append(values, figure(r))
	}
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// cells groups the runs by GOMAXPROCS and, in the order of Binaries, by binary.
func (r *Report) cells() []*cell {
	var procs []int
	for i := range r.Runs {
		if n := r.Runs[i].GOMAXPROCS; !slices.Contains(procs, n) {
			procs = append(procs, n)
		}
	}
	slices.Sort(procs)
	var all []*cell
	for _, n := range procs {
		for _, b := range r.Binaries {
			c := &cell{binary: b.Name, gomaxprocs: n}
			for i := range r.Runs {
				if run := &r.Runs[i]; run.Binary == b.Name && run.GOMAXPROCS == n {
					c.runs = append(c.runs, run)
				}
			}
			if len(c.runs) > 0 {
				all = append(all, c)
			}
		}
	}
	return all
}
