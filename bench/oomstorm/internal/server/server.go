// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package server starts Prometheus binaries and follows their memory until they
// end.
package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/promguard/promguard/bench/internal/binary"
	"github.com/promguard/promguard/internal/proc"
)

// samplePeriod is how often memory is read. A limit that is kept by killing
// can be exceeded by what a process allocates in that time.
const samplePeriod = 20 * time.Millisecond

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
	*proc.Process

	Binary binary.Binary
	// URL is where it listens, as in http://127.0.0.1:9090.
	URL string

	mu        sync.Mutex
	now, peak proc.Memory // peak is the most of each since ResetPeak
	live      int64       // bytes of the heap that the last collection of garbage left
	peakLive  int64
	killed    bool
}

// Start starts a server and waits until it is ready. If it returns an error, or
// ctx ends, no process is left. Otherwise the caller must call Kill or Stop.
func Start(ctx context.Context, b binary.Binary, o Options) (*Server, error) {
	s := &Server{Binary: b, URL: "http://" + o.Addr}
	var err error
	if s.Process, err = proc.Start(o.command(b), s.line); err != nil {
		return nil, fmt.Errorf("binary %s: %w", b.Name, err)
	}
	go s.watch(o.KillAt)
	ctx, cancel := context.WithTimeoutCause(ctx, o.ReadyTimeout, fmt.Errorf("%s was not ready after %s; see --ready-timeout", b.Name, o.ReadyTimeout))
	defer cancel()
	if err := s.early(s.WaitReady(ctx, s.URL)); err != nil {
		s.Kill()
		return nil, err
	}
	return s, nil
}

func (o *Options) command(b binary.Binary) *exec.Cmd {
	args := append([]string{
		"--config.file=" + o.ConfigFile, "--storage.tsdb.path=" + o.DataDir, "--web.listen-address=" + o.Addr, "--enable-feature=exemplar-storage",
	}, b.Args...)
	cmd := exec.Command(b.Path, args...)
	if o.Procs != "" { // It joins its cgroup before its first instruction.
		cmd = exec.Command("/bin/sh", append([]string{"-c", `echo $$ >"$0" && exec "$@"`, o.Procs, b.Path}, args...)...)
	}
	for _, v := range os.Environ() { // The limit comes from the cgroup, or from us.
		if !strings.HasPrefix(v, "GOMEMLIMIT=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "GODEBUG=gctrace=1")
	if o.KillAt > 0 {
		cmd.Env = append(cmd.Env, fmt.Sprintf("GOMEMLIMIT=%d", o.KillAt/10*9))
	}
	return cmd
}

// line is told each line of the log.
func (s *Server) line(text string) {
	if live, ok := proc.Collected(text); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.live, s.peakLive = live, max(s.peakLive, live)
	}
}

// watch samples the process's memory until it ends, and kills it at a limit if
// there is one.
func (s *Server) watch(killAt int64) {
	tick := time.NewTicker(samplePeriod)
	defer tick.Stop()
	for {
		select {
		case <-s.Dead():
			return
		case <-tick.C:
		}
		m, err := proc.ReadMemory(s.PID())
		if err == nil && s.sample(m, killAt) { // Else it has just ended, which Dead will tell.
			s.Kill()
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
	if proc.ResetPeak(s.PID()) == nil {
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
	return e.Server.Error(fmt.Sprintf("%s (%s) stopped", b.Name, b.Path), e.How)
}

func (s *Server) early(err error) error {
	if errors.Is(err, proc.ErrEnded) {
		return &EarlyEndError{Server: s, How: s.How()}
	}
	return err
}

// Wait waits a moment; it is an error if the server ends meanwhile.
func (s *Server) Wait(ctx context.Context) error { return s.early(s.Process.Wait(ctx)) }

// Get reads a small answer. It is an error if it is no 200.
func (s *Server) Get(ctx context.Context, path string) ([]byte, error) {
	return proc.Get(ctx, s.URL+path)
}

// How is how the process ended, in words. It must have.
func (s *Server) How() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.killed {
		return "killed by oomstorm at the limit"
	}
	return s.Process.How()
}
