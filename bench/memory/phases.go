// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/perf/benchfmt"

	"github.com/promguard/promguard/bench/internal/binary"
	"github.com/promguard/promguard/internal/proc"
)

// phase is something that a server does to its head and that takes memory.
type phase struct {
	name string
	// begin is in the line of the log with which it begins. Each ends where the next begins.
	begin string
}

// A server starts on a log of more than three hours, writes two of them as a block, and
// shortens the log. Then it is killed, replays what is left, and is asked to end.
var phases = []phase{
	{"replay", "Replaying on-disk memory mappable chunks"},
	{"rest", "Server is ready to receive web requests"},
	{"stale", "Starting stale series compaction"},
	{"between", "Ending stale series compaction"},
	{"block", "write block started"},
	{"gc", "write block completed"},
	{"between", "Head GC completed"},
	{"checkpoint", "Creating checkpoint"},
	{"rest", "WAL checkpoint complete"},
	{"shutdown", "Received an OS signal, exiting gracefully"},
}

// peaks are of a phase: bytes of live heap and of resident memory.
type peaks struct{ live, rss int64 }

// observer reads what a server writes: the lines of its log say which phase it is in,
// those of its collector how much was live.
type observer struct {
	restart string // before the names of phases: of which start they are
	url     string

	mu      sync.Mutex
	phase   string
	peaks   map[string]peaks
	rests   map[string]figures // by phase of rest
	entered chan string
}

func (o *observer) line(text string) {
	if live, ok := proc.Collected(text); ok {
		o.mu.Lock()
		p := o.peaks[o.phase]
		p.live = max(p.live, live)
		o.peaks[o.phase] = p
		o.mu.Unlock()
		return
	}
	for _, p := range phases {
		if (p.name == "block" || p.name == "gc") && o.inStale() {
			continue
		}
		if strings.Contains(text, `msg="`+p.begin) {
			o.enter(p.name)
			return
		}
	}
}

// inStale reports whether the blocks that are written are those of stale series.
func (o *observer) inStale() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.HasSuffix(o.phase, "stale")
}

// enter ends a phase and begins the next.
func (o *observer) enter(name string) {
	o.mu.Lock()
	o.phase = o.restart + name
	o.mu.Unlock()
	select {
	case o.entered <- name:
	default:
	}
}

// sample reads how much of the process is resident and is not a file's.
func (o *observer) sample(ctx context.Context, pid int) {
	for tick := time.NewTicker(2 * time.Millisecond); ctx.Err() == nil; <-tick.C {
		m, err := proc.ReadMemory(pid)
		if err != nil {
			return
		}
		o.mu.Lock()
		p := o.peaks[o.phase]
		p.rss = max(p.rss, m.Anon)
		o.peaks[o.phase] = p
		o.mu.Unlock()
	}
}

// server is a process that is observed.
type server struct {
	*observer
	*proc.Process

	stop context.CancelFunc // watching it
}

func (o *observer) start(ctx context.Context, b binary.Binary, dir, restart, gogc string) (*server, error) {
	addr, err := proc.FreeAddress()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte("global: {}\n"), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(b.Path, append([]string{
		"--config.file=" + file, "--storage.tsdb.path=" + filepath.Join(dir, "data"), "--web.listen-address=" + addr,
		"--storage.tsdb.retention.time=100y", "--storage.tsdb.block-reload-interval=30s",
	}, b.Args...)...)
	cmd.Env = append(os.Environ(), "GODEBUG=gctrace=1")
	if gogc != "" {
		cmd.Env = append(cmd.Env, "GOGC="+gogc)
	}
	o.restart, o.url, o.phase, o.entered = restart, "http://"+addr, restart+"start", make(chan string, 100)
	p, err := proc.Start(cmd, o.line)
	if err != nil {
		return nil, err
	}
	watching, stop := context.WithCancel(ctx)
	go o.sample(watching, p.PID())
	return &server{o, p, stop}, nil
}

// reaches waits until the server enters a phase.
func (s *server) reaches(ctx context.Context, name string) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.Dead():
			return s.Error(fmt.Sprintf("it ended before %q", name), s.How())
		case entered := <-s.entered:
			if entered == name {
				return nil
			}
		}
	}
}

// rest collects garbage twice: the heap that is left is what phases are measured against.
func (s *server) rest(ctx context.Context, name string) error {
	s.mu.Lock()
	s.phase = s.restart + name
	s.mu.Unlock()
	f, err := readHeap(ctx, s.url)
	if err != nil {
		return err
	}
	m, err := proc.ReadMemory(s.PID())
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.peaks[s.restart+name] = peaks{int64(f[heap]), m.Anon}
	s.rests[s.restart+name] = f
	s.phase = s.restart + "idle"
	s.mu.Unlock()
	return nil
}

const phaseTimeout = 30 * time.Minute

// throughPhases takes a server through its phases, on a copy of a data directory, and
// returns the peaks, and the whole heap where it rests.
func throughPhases(ctx context.Context, b binary.Binary, data, gogc string) (map[string]peaks, map[string]figures, error) {
	dir, err := os.MkdirTemp("", "memory-*")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(filepath.Join(dir, "data"), os.DirFS(data)); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, phaseTimeout, errors.New("a phase did not end within 30m"))
	defer cancel()
	o := &observer{peaks: map[string]peaks{}, rests: map[string]figures{}}
	for _, restart := range []string{"", "restart-"} {
		s, err := o.start(ctx, b, dir, restart, gogc)
		if err != nil {
			return nil, nil, err
		}
		err = s.reaches(ctx, "rest")
		if err == nil {
			err = s.rest(ctx, "rest")
		}
		if err == nil && restart == "" {
			if err = s.reaches(ctx, "rest"); err == nil {
				err = s.rest(ctx, "compacted")
			}
		}
		if err != nil || restart == "" {
			s.Kill()
		} else if !s.Stop(ctx, phaseTimeout) {
			err = errors.New("it did not end after SIGTERM")
		}
		s.stop()
		if err != nil {
			return nil, nil, err
		}
	}
	return o.peaks, o.rests, nil
}

// against says which rest a phase is measured against.
var against = []struct{ phase, rest string }{
	{"replay", "rest"},
	{"stale", "rest"},
	{"block", "rest"},
	{"gc", "rest"},
	{"checkpoint", "compacted"},
	{"restart-replay", "compacted"},
	{"restart-shutdown", "restart-rest"},
}

func printPhases(w io.Writer, name string, live, rss map[string]peaks) error {
	out := benchfmt.NewWriter(w)
	for _, a := range against {
		if live[a.phase] == (peaks{}) && rss[a.phase] == (peaks{}) {
			continue // It did not come to that.
		}
		r := &benchfmt.Result{Name: benchfmt.Name("Phase/binary=" + name + "/phase=" + a.phase), Iters: 1}
		rest := live[a.rest].live
		peak := max(live[a.phase].live, rest) // Where nothing was collected, little was allocated.
		r.Values = []benchfmt.Value{
			{Value: float64(peak), Unit: "live-B"},
			{Value: float64(rest), Unit: "rest-B"},
			{Value: math.Round(1000*float64(peak)/float64(rest)) / 1000, Unit: "live/rest"},
			{Value: float64(rss[a.phase].rss), Unit: "anon-B"},
			{Value: math.Round(1000*float64(rss[a.phase].rss)/float64(rest)) / 1000, Unit: "anon/rest"},
		}
		if err := out.Write(r); err != nil {
			return err
		}
	}
	return nil
}
