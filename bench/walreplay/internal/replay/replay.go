// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package replay starts a Prometheus binary on a data directory, waits until
// the write-ahead log is replayed, and measures what that took.
package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/promguard/promguard/bench/internal/binary"
	"github.com/promguard/promguard/internal/proc"
)

// Options say how to replay.
type Options struct {
	// DataDir is the data directory. The binary writes to it: give it a copy.
	DataDir string
	// GOMAXPROCS is the binary's environment variable, 1 or more.
	GOMAXPROCS int
	// Env is added to this process's environment.
	Env []string
	// Config is the configuration file's text. Empty is one that scrapes nothing.
	Config string
	// Timeout ends a replay that takes too long; 0 is never.
	Timeout time.Duration
}

// Result is what one replay took, from the start of the process to its log line
// "TSDB started", unless a field says otherwise. Nothing is subtracted.
type Result struct {
	Wall time.Duration
	// CPU is the process's user and system time.
	CPU time.Duration
	// StartCPU is the part of CPU before the log line "Starting TSDB".
	StartCPU time.Duration
	// Replay is prometheus_tsdb_data_replay_duration_seconds: what the head
	// itself says its replay took.
	Replay time.Duration
	// PeakAnon is the most anonymous resident memory seen, in bytes, sampled
	// every 10 ms.
	PeakAnon int64
	// Voluntary and Involuntary are context switches of all threads.
	Voluntary, Involuntary int64
	// ReadBytes were read by system calls; m-mapped files are not in them.
	// DiskReadBytes came from storage; what was in the page cache is not in them.
	ReadBytes, DiskReadBytes int64
	// HeadSeries is prometheus_tsdb_head_series.
	HeadSeries int64
	// Repaired says that the log was corrupt and that the binary repaired it: it
	// replayed only what was before the corruption.
	Repaired bool
}

const (
	logStarting  = "Starting TSDB"
	logStarted   = "TSDB started"
	logRepairing = "Encountered WAL read error"

	samplePeriod  = 10 * time.Millisecond
	answerTimeout = time.Minute
)

var listenRE = regexp.MustCompile(`Listening on.* address=([0-9.]+:[0-9]+)`)

// Run replays a data directory once and kills the process. It returns when the
// process is gone, also if ctx is cancelled.
func Run(ctx context.Context, b binary.Binary, o Options) (Result, error) {
	s, err := Start(ctx, b, o)
	if err != nil {
		return Result{}, err
	}
	s.Kill()
	return s.Result, nil
}

// Server is a Prometheus that has replayed a data directory and answers.
type Server struct {
	*proc.Process

	Result Result
	URL    string // without a slash at its end
	binary binary.Binary
}

// CPU is the process's user and system time until now.
func (s *Server) CPU() (time.Duration, error) { return proc.CPUTime(s.PID()) }

// Err says how the process ended, in one error, if it has.
func (s *Server) Err() error {
	if s.Alive() {
		return nil
	}
	return s.died("ended")
}

func (s *Server) died(what string) error {
	return s.Error(fmt.Sprintf("%s (%s) %s", s.binary.Name, s.binary.Path, what), s.How())
}

// Start replays a data directory and leaves the process running.
func Start(ctx context.Context, b binary.Binary, o Options) (*Server, error) {
	if !proc.Supported {
		return nil, errors.New("replays are measured through Linux's /proc and CPU clocks; this system has none")
	}
	if o.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.Timeout, fmt.Errorf("%s had not replayed the WAL after %s; see --timeout", b.Name, o.Timeout))
		defer cancel()
	}
	config := filepath.Join(o.DataDir, "walreplay.yml")
	if err := os.WriteFile(config, []byte(cmp.Or(o.Config, "global: {}\n")), 0o666); err != nil {
		return nil, err
	}
	cmd := exec.Command(b.Path, append([]string{
		"--config.file=" + config, "--storage.tsdb.path=" + o.DataDir, "--web.listen-address=127.0.0.1:0",
	}, b.Args...)...)
	cmd.Env = append(append(os.Environ(), "GOMAXPROCS="+strconv.Itoa(o.GOMAXPROCS)), o.Env...)
	r := &running{cmd: cmd, begin: time.Now(), started: make(chan struct{}), listening: make(chan struct{})}
	p, err := proc.Start(cmd, r.line)
	if err != nil {
		return nil, fmt.Errorf("binary %s: %w", b.Name, err)
	}
	s := &Server{Process: p, binary: b}
	if err := s.measure(ctx, r); err != nil {
		s.Kill()
		return nil, err
	}
	return s, nil
}

// running is a process that replays, by its log. What is measured at a line is measured
// when it is read, so that nothing comes between the line and the measurement.
type running struct {
	cmd   *exec.Cmd
	begin time.Time

	started, listening chan struct{} // closed at the log lines of that meaning

	mu     sync.Mutex
	result Result
	fail   error // of a measurement
	addr   string
}

func (r *running) line(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid := r.cmd.Process.Pid
	switch {
	case strings.Contains(line, logStarting):
		r.result.StartCPU, r.fail = proc.CPUTime(pid)
	case strings.Contains(line, logRepairing):
		r.result.Repaired = true
	case strings.Contains(line, logStarted) && r.result.Wall == 0:
		r.result.Wall = time.Since(r.begin)
		var errs [3]error
		r.result.CPU, errs[0] = proc.CPUTime(pid)
		r.result.Voluntary, r.result.Involuntary, errs[1] = proc.ContextSwitches(pid)
		r.result.ReadBytes, r.result.DiskReadBytes, errs[2] = proc.BytesRead(pid)
		r.fail = errors.Join(r.fail, errors.Join(errs[:]...))
		r.sampleMemory()
		close(r.started)
	}
	if m := listenRE.FindStringSubmatch(line); m != nil && r.addr == "" {
		r.addr = m[1]
		close(r.listening)
	}
}

// sampleMemory needs r.mu.
func (r *running) sampleMemory() {
	memory, err := proc.ReadMemory(r.cmd.Process.Pid)
	if err != nil {
		return // The process has just ended, which is noticed.
	}
	r.result.PeakAnon = max(r.result.PeakAnon, memory.Anon)
}

// measure waits until the log is replayed, and for what the process itself says then.
func (s *Server) measure(ctx context.Context, r *running) error {
	tick := time.NewTicker(samplePeriod)
	defer tick.Stop()
	for replaying := true; replaying; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.Dead():
			return s.died("stopped before the WAL was replayed")
		case <-tick.C:
			r.mu.Lock()
			r.sampleMemory()
			r.mu.Unlock()
		case <-r.started:
			replaying = false
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout, fmt.Errorf("%s replayed the WAL and then was not ready within %s", s.binary.Name, answerTimeout))
	defer cancel()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.Dead():
		return s.died("stopped before it answered")
	case <-r.listening:
	}
	r.mu.Lock()
	fail := r.fail
	s.Result, s.URL = r.result, "http://"+r.addr
	r.mu.Unlock()
	if fail != nil {
		return fmt.Errorf("measuring %s: %w", s.binary.Name, fail)
	}
	if err := s.WaitReady(ctx, s.URL); err != nil { // A moment after its log is replayed.
		return fmt.Errorf("asking %s whether it is ready: %w", s.binary.Name, err)
	}
	metrics, err := proc.Metrics(ctx, s.URL, "prometheus_tsdb_data_replay_duration_seconds", "prometheus_tsdb_head_series")
	if err != nil {
		return fmt.Errorf("asking %s how the replay went: %w", s.binary.Name, err)
	}
	s.Result.Replay = time.Duration(metrics[0] * float64(time.Second))
	s.Result.HeadSeries = int64(metrics[1])
	return nil
}
