// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package replay starts a Prometheus binary on a data directory, waits until
// the write-ahead log is replayed, and measures what that took.
package replay

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/promguard/promguard/bench/internal/binary"
	"github.com/promguard/promguard/bench/internal/proc"
	"github.com/promguard/promguard/bench/internal/telemetry"
	"github.com/promguard/promguard/internal/cli"
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
	tailLines     = 12
)

var listenRE = regexp.MustCompile(`Listening on.* address=([0-9.]+:[0-9]+)`)

// Run replays a data directory once and kills the process. It returns when the
// process is gone, also if ctx is cancelled.
func Run(ctx context.Context, b binary.Binary, o Options) (Result, error) {
	// The parent-death signal is sent when the starting thread ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s, err := Start(ctx, b, o)
	if err != nil {
		return Result{}, err
	}
	s.Kill()
	return s.Result, nil
}

// Server is a Prometheus that has replayed a data directory and answers.
type Server struct {
	Result Result
	URL    string // without a slash at its end
	r      *running
}

// Kill ends the process and waits for it. It may be called twice.
func (s *Server) Kill() { s.r.kill() }

// CPU is the process's user and system time until now.
func (s *Server) CPU() (time.Duration, error) { return proc.CPUTime(s.r.cmd.Process.Pid) }

// Err says how the process ended, in one error, if it has.
func (s *Server) Err() error {
	select {
	case <-s.r.waited:
		return s.r.died("ended")
	default:
		return nil
	}
}

// Start replays a data directory and leaves the process running. The calling
// goroutine must stay locked to its thread until the process has been killed:
// when the thread ends, so does the process.
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
	r := &running{binary: b, started: make(chan struct{}), listening: make(chan struct{})}
	r.cmd = exec.Command(b.Path, append([]string{
		"--config.file=" + config, "--storage.tsdb.path=" + o.DataDir, "--web.listen-address=127.0.0.1:0",
	}, b.Args...)...)
	r.cmd.Env = append(append(os.Environ(), "GOMAXPROCS="+strconv.Itoa(o.GOMAXPROCS)), o.Env...)
	r.cmd.SysProcAttr = proc.ChildAttr()
	if err := r.start(); err != nil {
		return nil, fmt.Errorf("binary %s: %w", b.Name, err)
	}
	result, err := r.measure(ctx)
	if err != nil {
		r.kill()
		return nil, err
	}
	return &Server{Result: result, URL: "http://" + r.addr, r: r}, nil
}

// running is a process that replays.
type running struct {
	binary binary.Binary
	cmd    *exec.Cmd
	begin  time.Time
	waited chan struct{} // closed when the process has ended
	err    error         // how it ended; read after waited

	started, listening chan struct{} // closed at the log lines of that meaning

	mu     sync.Mutex
	result Result
	fail   error // of a measurement
	addr   string
	tail   []string
}

func (r *running) start() error {
	stderr, err := r.cmd.StderrPipe()
	if err != nil {
		return err
	}
	r.begin = time.Now()
	if err := r.cmd.Start(); err != nil {
		return err
	}
	r.waited = make(chan struct{})
	go func() {
		r.readLog(stderr)
		r.err = r.cmd.Wait()
		close(r.waited)
	}()
	return nil
}

// kill ends the process and waits for it.
func (r *running) kill() {
	select {
	case <-r.waited: // Its number may be another's by now.
	default:
		proc.KillGroup(r.cmd.Process.Pid)
		<-r.waited
	}
}

// readLog follows the log. What is measured at a line is measured here, so that
// nothing comes between the line and the measurement.
func (r *running) readLog(stderr io.Reader) {
	in := bufio.NewScanner(stderr)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		r.line(in.Text())
	}
	// A line that does not fit must not block the process.
	_, _ = io.Copy(io.Discard, stderr)
}

func (r *running) line(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tail = append(r.tail, line); len(r.tail) > tailLines {
		r.tail = r.tail[1:]
	}
	pid := r.cmd.Process.Pid
	switch {
	case strings.Contains(line, logStarting):
		r.result.StartCPU, r.fail = proc.CPUTime(pid)
	case strings.Contains(line, logRepairing):
		r.result.Repaired = true
	case strings.Contains(line, logStarted) && r.result.Wall == 0:
		r.result.Wall = time.Since(r.begin)
		var err error
		r.result.CPU, err = proc.CPUTime(pid)
		r.fail = errors.Join(r.fail, err)
		r.result.Voluntary, r.result.Involuntary, err = proc.ContextSwitches(pid)
		r.fail = errors.Join(r.fail, err)
		r.result.ReadBytes, r.result.DiskReadBytes, err = proc.BytesRead(pid)
		r.fail = errors.Join(r.fail, err)
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
		return // The process has just ended; how is told by r.err.
	}
	r.result.PeakAnon = max(r.result.PeakAnon, memory.Anon)
}

func (r *running) measure(ctx context.Context) (Result, error) {
	tick := time.NewTicker(samplePeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return Result{}, context.Cause(ctx)
		case <-r.waited:
			return Result{}, r.died("stopped before the WAL was replayed")
		case <-tick.C:
			r.mu.Lock()
			r.sampleMemory()
			r.mu.Unlock()
		case <-r.started:
			return r.finish(ctx)
		}
	}
}

// finish adds what the process itself says.
func (r *running) finish(ctx context.Context) (Result, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout, fmt.Errorf("%s replayed the WAL and then was not ready within %s", r.binary.Name, answerTimeout))
	defer cancel()
	select {
	case <-ctx.Done():
		return Result{}, context.Cause(ctx)
	case <-r.waited:
		return Result{}, r.died("stopped before it answered")
	case <-r.listening:
	}
	r.mu.Lock()
	result, fail, addr := r.result, r.fail, r.addr
	r.mu.Unlock()
	if fail != nil {
		return Result{}, fmt.Errorf("measuring %s: %w", r.binary.Name, fail)
	}
	if err := awaitReady(ctx, "http://"+addr); err != nil {
		return Result{}, fmt.Errorf("asking %s whether it is ready: %w", r.binary.Name, err)
	}
	metrics, err := telemetry.Metrics(ctx, "http://"+addr, "prometheus_tsdb_data_replay_duration_seconds", "prometheus_tsdb_head_series")
	if err != nil {
		return Result{}, fmt.Errorf("asking %s how the replay went: %w", r.binary.Name, err)
	}
	result.Replay = time.Duration(metrics[0] * float64(time.Second))
	result.HeadSeries = int64(metrics[1])
	return result, nil
}

func (r *running) died(what string) error {
	how := "ended"
	if exit := (*exec.ExitError)(nil); errors.As(r.err, &exit) {
		how = exit.String()
	}
	return cli.NewTail(fmt.Errorf("%s (%s) %s (%s)", r.binary.Name, r.binary.Path, what, how), strings.Join(r.tail, "\n"))
}

// awaitReady waits until the server answers reads, which is a moment after its log is
// replayed.
func awaitReady(ctx context.Context, root string) error {
	for {
		if _, err := telemetry.Get(ctx, root+"/-/ready"); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
