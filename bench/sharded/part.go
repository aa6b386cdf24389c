// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/promguard/promguard/bench/internal/proc"
	"github.com/promguard/promguard/internal/cli"
)

const (
	pollPeriod   = 50 * time.Millisecond
	readyTimeout = 2 * time.Minute
	stopTimeout  = 20 * time.Second
	tailLines    = 10
)

// part is one process of the chain, which can end and be started again as it was. Its
// methods are called from one goroutine.
type part struct {
	name string
	kind string // what of the chain it is, in figures
	path string
	args []string
	env  []string // besides this process's
	url  string   // answers /-/ready
	log  string   // file that all its runs write to

	cmd     *exec.Cmd
	done    chan struct{} // closed when the process has ended
	how     error         // it ended; read after done
	stopped atomic.Bool   // by us
}

// start starts the process, which nobody waits for yet. If it ends before kill or stop
// is called, ended is told why.
func (p *part) start(ended func(*part, error)) error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer log.Close() // The process has its own.
	p.cmd = exec.Command(p.path, p.args...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.Env = append(os.Environ(), p.env...)
	p.done = make(chan struct{})
	p.stopped.Store(false)
	err = proc.Launch(p.cmd, func() {
		p.how = p.cmd.Wait()
		close(p.done)
		if !p.stopped.Load() {
			ended(p, p.early())
		}
	})
	if err != nil {
		p.done = nil
	}
	return err
}

// early is the error of a process that has ended by itself.
func (p *part) early() error {
	how := "exit status 0"
	if p.how != nil {
		how = p.how.Error()
	}
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return cli.NewTail(fmt.Errorf("%s stopped (%s)", p.name, how), strings.Join(lines[max(0, len(lines)-tailLines):], "\n"))
}

// ready waits until the process says that it is.
func (p *part) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("%s is not ready after %s; its log is %s", p.name, readyTimeout, p.log))
	defer cancel()
	return until(ctx, func() bool {
		_, err := proc.Get(ctx, p.url+"/-/ready")
		return err == nil
	})
}

// until polls until a condition holds, or ctx ends.
func until(ctx context.Context, holds func() bool) error {
	for !holds() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pollPeriod):
		}
	}
	return nil
}

// kill ends the process as the kernel does when there is no memory, and waits for that.
func (p *part) kill() {
	p.stopped.Store(true)
	if p.alive() { // Else its number may be another's.
		proc.KillGroup(p.cmd.Process.Pid)
		<-p.done
	}
}

// stop ends the process as an operator does. One that takes too long is killed.
func (p *part) stop() {
	p.stopped.Store(true)
	if !p.alive() {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(stopTimeout):
		p.kill()
	}
}

func (p *part) alive() bool {
	if p.done == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}
