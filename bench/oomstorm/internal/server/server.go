// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package server starts Prometheus binaries and follows their memory until they
// end.
package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/promguard/promguard/bench/internal/binary"
	"github.com/promguard/promguard/bench/internal/proc"
	"github.com/promguard/promguard/bench/internal/telemetry"
	"github.com/promguard/promguard/internal/cli"
)

const (
	pollPeriod = 100 * time.Millisecond
	tailLines  = 12
	// samplePeriod is how often memory is read. A limit that is kept by killing
	// can be exceeded by what a process allocates in that time.
	samplePeriod = 20 * time.Millisecond
)

// Options say how to start a Binary.
type Options struct {
	DataDir    string
	ConfigFile string
	// Addr is where to listen, as in 127.0.0.1:9090.
	Addr string
	// Procs is the cgroup.procs file of a cgroup to start in; empty is none.
	Procs string
	// KillAt is the anonymous memory in bytes at which the process is killed; 0 is
	// never. GOMEMLIMIT is then 0.9 of it, as Prometheus has it in a cgroup.
	KillAt int64
	// ReadyTimeout is how long the server may take until it is ready.
	ReadyTimeout time.Duration
}

// Server is a process that runs or has ended. Its methods may be used
// concurrently.
type Server struct {
	Binary binary.Binary
	// URL is where it listens, as in http://127.0.0.1:9090.
	URL string

	cmd   *exec.Cmd
	dead  chan struct{}
	err   error     // how it ended; read after dead
	ended time.Time // when it ended; read after dead

	mu        sync.Mutex
	tail      []string
	now, peak proc.Memory // peak is the most of each since ResetPeak
	live      int64       // bytes of the heap that the last collection of garbage left
	peakLive  int64
	killed    bool
}

// Start starts a server and waits until it is ready. If it returns an error, or
// ctx ends, no process is left. Otherwise the caller must call Kill or Stop.
func Start(ctx context.Context, b binary.Binary, o Options) (*Server, error) {
	s := &Server{Binary: b, URL: "http://" + o.Addr, dead: make(chan struct{})}
	if err := s.launch(o); err != nil {
		return nil, fmt.Errorf("binary %s: %w", b.Name, err)
	}
	go s.watch(o.KillAt)
	ctx, cancel := context.WithTimeoutCause(ctx, o.ReadyTimeout, fmt.Errorf("%s was not ready after %s; see --ready-timeout", b.Name, o.ReadyTimeout))
	defer cancel()
	for {
		if _, err := s.Get(ctx, "/-/ready"); err == nil {
			return s, nil
		}
		if err := s.Wait(ctx); err != nil {
			s.Kill()
			return nil, err
		}
	}
}

// launch starts the process.
func (s *Server) launch(o Options) error {
	args := append([]string{
		"--config.file=" + o.ConfigFile, "--storage.tsdb.path=" + o.DataDir, "--web.listen-address=" + o.Addr, "--enable-feature=exemplar-storage",
	}, s.Binary.Args...)
	s.cmd = exec.Command(s.Binary.Path, args...)
	if o.Procs != "" { // It joins its cgroup before its first instruction.
		s.cmd = exec.Command("/bin/sh", append([]string{"-c", `echo $$ >"$0" && exec "$@"`, o.Procs, s.Binary.Path}, args...)...)
	}
	for _, v := range os.Environ() { // The limit comes from the cgroup, or from us.
		if !strings.HasPrefix(v, "GOMEMLIMIT=") {
			s.cmd.Env = append(s.cmd.Env, v)
		}
	}
	s.cmd.Env = append(s.cmd.Env, "GODEBUG=gctrace=1")
	if o.KillAt > 0 {
		s.cmd.Env = append(s.cmd.Env, fmt.Sprintf("GOMEMLIMIT=%d", o.KillAt/10*9))
	}
	log, err := s.cmd.StderrPipe()
	if err != nil {
		return err
	}
	return proc.Start(s.cmd, func() {
		s.readLog(log)
		s.err = s.cmd.Wait()
		s.ended = time.Now()
		close(s.dead)
	})
}

// collected is the trace of a collection of garbage: what it left.
var collected = regexp.MustCompile(`^gc \d+ @.* \d+->\d+->(\d+) MB, `)

// readLog follows the log to its end, which is that of the process.
func (s *Server) readLog(log io.Reader) {
	in := bufio.NewScanner(log)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		s.mu.Lock()
		if m := collected.FindSubmatch(in.Bytes()); m != nil {
			mib, _ := strconv.ParseInt(string(m[1]), 10, 64)
			s.live = mib << 20
			s.peakLive = max(s.peakLive, s.live)
		} else if s.tail = append(s.tail, in.Text()); len(s.tail) > tailLines {
			s.tail = s.tail[1:]
		}
		s.mu.Unlock()
	}
	// A line that does not fit must not block the process.
	_, _ = io.Copy(io.Discard, log)
}

// watch samples the process's memory until it ends, and kills it at a limit if
// there is one.
func (s *Server) watch(killAt int64) {
	tick := time.NewTicker(samplePeriod)
	defer tick.Stop()
	for {
		select {
		case <-s.dead:
			return
		case <-tick.C:
		}
		m, err := proc.ReadMemory(s.cmd.Process.Pid)
		if err != nil {
			continue // It has just ended, which dead will tell.
		}
		if s.sample(m, killAt) && s.Alive() {
			proc.KillGroup(s.cmd.Process.Pid)
		}
	}
}

// sample adds a sample and says whether to kill.
func (s *Server) sample(m proc.Memory, killAt int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = m
	s.peak = proc.Memory{RSS: max(s.peak.RSS, m.RSS, m.Peak), Anon: max(s.peak.Anon, m.Anon)}
	s.killed = s.killed || killAt > 0 && m.Anon >= killAt
	return s.killed
}

// Memory is the last sample, and the most of each since ResetPeak.
func (s *Server) Memory() (now, peak proc.Memory) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now, s.peak
}

// Live is the live heap, and the most since ResetPeak.
func (s *Server) Live() (now, peak int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live, s.peakLive
}

// ResetPeak forgets the peaks, also that of the kernel. A server that has ended
// keeps them.
func (s *Server) ResetPeak() {
	s.mu.Lock() // It keeps an old sample from being added after the reset.
	defer s.mu.Unlock()
	if proc.ResetPeak(s.cmd.Process.Pid) == nil {
		s.peak, s.peakLive = proc.Memory{}, s.live
	}
}

// EarlyEndError is the error of a wait for a server that has ended.
type EarlyEndError struct {
	Server *Server
	How    string
}

func (e *EarlyEndError) Error() string { return e.Unwrap().Error() }

// Unwrap returns the error with the last log lines apart.
func (e *EarlyEndError) Unwrap() error {
	b := e.Server.Binary
	return cli.NewTail(fmt.Errorf("%s (%s) stopped (%s)", b.Name, b.Path, e.How), strings.Join(e.Server.Tail(), "\n"))
}

// Wait waits a moment; it is an error if the server ends meanwhile.
func (s *Server) Wait(ctx context.Context) error {
	select {
	case <-time.After(pollPeriod):
		return nil
	case <-s.dead:
		return &EarlyEndError{Server: s, How: s.How()}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Get reads a small answer. It is an error if it is no 200.
func (s *Server) Get(ctx context.Context, path string) ([]byte, error) {
	return telemetry.Get(ctx, s.URL+path)
}

// Dead is closed when the process has ended.
func (s *Server) Dead() <-chan struct{} { return s.dead }

// Alive says whether the process has not ended.
func (s *Server) Alive() bool {
	select {
	case <-s.dead:
		return false
	default:
		return true
	}
}

// Ended is when the process ended. It must have.
func (s *Server) Ended() time.Time { return s.ended }

// How is how the process ended, in words. It must have.
func (s *Server) How() string {
	var exit *exec.ExitError
	if !errors.As(s.err, &exit) {
		return "exit code 0"
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return fmt.Sprintf("exit code %d", exit.ExitCode())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.killed {
		return "killed by oomstorm at the limit"
	}
	return "signal " + status.Signal().String()
}

// Tail is the end of the log.
func (s *Server) Tail() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.tail...)
}

// Kill kills the process and waits for its end.
func (s *Server) Kill() {
	if s.Alive() { // Else its number may be another's.
		proc.KillGroup(s.cmd.Process.Pid)
	}
	<-s.dead
}

// Stop asks the process to end. If it takes longer than timeout, or ctx ends, it
// is killed, and clean is false.
func (s *Server) Stop(ctx context.Context, timeout time.Duration) (clean bool) {
	if s.Alive() {
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
	}
	select {
	case <-s.dead:
		clean = true
	case <-time.After(timeout):
	case <-ctx.Done():
	}
	s.Kill()
	return clean
}
