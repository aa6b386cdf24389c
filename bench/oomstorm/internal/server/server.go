// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package server starts Prometheus binaries and follows their memory and CPU
// time until they end.
package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/promguard/promguard/bench/internal/binary"
	"github.com/promguard/promguard/bench/internal/proc"
	"github.com/promguard/promguard/internal/cli"
)

const (
	pollPeriod = 100 * time.Millisecond
	tailLines  = 12
)

// Options say how to start a Binary.
type Options struct {
	DataDir    string
	ConfigFile string
	// Addr is where to listen, as in 127.0.0.1:9090.
	Addr string
	// GOMemLimit is the environment variable in bytes; 0 leaves it unset, so
	// that Prometheus derives it from its cgroup.
	GOMemLimit int64
	// Procs is the cgroup.procs file of a cgroup to start in; empty is none.
	Procs string
	// KillAt is the anonymous memory in bytes at which the process is killed;
	// 0 is never.
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
	// Watch follows its memory.
	Watch *Watch

	cmd   *exec.Cmd
	dead  chan struct{}
	err   error     // how it ended; read after dead
	ended time.Time // when it ended; read after dead

	mu   sync.Mutex
	tail []string
}

// Start starts a server and waits until it is ready. If it returns an error, or
// ctx ends, no process is left. Otherwise the caller must call Kill or Stop.
func Start(ctx context.Context, b binary.Binary, o Options) (*Server, error) {
	if !proc.Supported {
		return nil, errors.New("servers are measured through Linux's /proc and CPU clocks; this system has none")
	}
	s := &Server{Binary: b, URL: "http://" + o.Addr, dead: make(chan struct{})}
	if err := s.launch(o); err != nil {
		return nil, fmt.Errorf("binary %s: %w", b.Name, err)
	}
	s.Watch = watch(s, o.KillAt)
	ctx, cancel := context.WithTimeoutCause(ctx, o.ReadyTimeout, fmt.Errorf("%s was not ready after %s; see --ready-timeout", b.Name, o.ReadyTimeout))
	defer cancel()
	if err := s.waitReady(ctx); err != nil {
		s.Kill()
		return nil, err
	}
	return s, nil
}

// launch starts the process on a thread that stays until it ends: the
// parent-death signal is sent when the starting thread ends.
func (s *Server) launch(o Options) error {
	args := append([]string{
		"--config.file=" + o.ConfigFile, "--storage.tsdb.path=" + o.DataDir, "--web.listen-address=" + o.Addr,
		"--enable-feature=exemplar-storage", "--web.enable-remote-write-receiver",
	}, s.Binary.Args...)
	s.cmd = exec.Command(s.Binary.Path, args...)
	if o.Procs != "" { // It joins its cgroup before its first instruction.
		s.cmd = exec.Command("/bin/sh", append([]string{"-c", `echo $$ >"$0" && exec "$@"`, o.Procs, s.Binary.Path}, args...)...)
	}
	s.cmd.SysProcAttr = proc.ChildAttr()
	s.cmd.Env = environment(o.GOMemLimit)
	log, err := s.cmd.StderrPipe()
	if err != nil {
		return err
	}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := s.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		s.readLog(log)
		s.err = s.cmd.Wait()
		s.ended = time.Now()
		close(s.dead)
	}()
	return <-started
}

// environment is ours, but for the limit, which is the same for every binary.
func environment(goMemLimit int64) []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "GOMEMLIMIT=") {
			env = append(env, v)
		}
	}
	if goMemLimit > 0 {
		env = append(env, fmt.Sprintf("GOMEMLIMIT=%d", goMemLimit))
	}
	return env
}

// readLog follows the log to its end, which is that of the process.
func (s *Server) readLog(log io.Reader) {
	in := bufio.NewScanner(log)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		line := in.Text()
		s.mu.Lock()
		if s.tail = append(s.tail, line); len(s.tail) > tailLines {
			s.tail = s.tail[1:]
		}
		s.mu.Unlock()
	}
	// A line that does not fit must not block the process.
	_, _ = io.Copy(io.Discard, log)
}

func (s *Server) waitReady(ctx context.Context) error {
	tick := time.NewTicker(pollPeriod)
	defer tick.Stop()
	for {
		if _, err := s.Get(ctx, "/-/ready"); err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-s.dead:
			return s.stoppedEarly()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// EarlyEndError is the error of Start if the process ended before it was ready.
type EarlyEndError struct {
	Binary binary.Binary
	How    string
	Tail   []string // its last log lines
}

func (e *EarlyEndError) Error() string { return e.Unwrap().Error() }

// Unwrap returns the error with the log lines apart.
func (e *EarlyEndError) Unwrap() error {
	return cli.NewTail(fmt.Errorf("%s (%s) stopped before it was ready (%s)", e.Binary.Name, e.Binary.Path, e.How), strings.Join(e.Tail, "\n"))
}

func (s *Server) stoppedEarly() error {
	return &EarlyEndError{Binary: s.Binary, How: s.How(), Tail: s.Tail()}
}

// Get reads a small answer. It is an error if it is none with a status below 300.
func (s *Server) Get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	return s.Do(req)
}

// Do is Get of another request.
func (s *Server) Do(req *http.Request) ([]byte, error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode >= http.StatusMultipleChoices {
		err = fmt.Errorf("%s: %s: %.200s", req.URL.Path, res.Status, b)
	}
	return b, err
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
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		how := "signal " + status.Signal().String()
		if s.Watch != nil && s.Watch.Killed() {
			how += ", by the watchdog"
		}
		return how
	}
	return fmt.Sprintf("exit code %d", exit.ExitCode())
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
	s.Watch.wait()
}

// Stop asks the process to end and says how long it took. If it takes longer
// than timeout, or ctx ends, it is killed, and clean is false.
func (s *Server) Stop(ctx context.Context, timeout time.Duration) (took time.Duration, clean bool) {
	begin := time.Now()
	if s.Alive() {
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-s.dead:
		clean = true
	case <-timer.C:
	case <-ctx.Done():
	}
	s.Kill()
	return time.Since(begin), clean
}
