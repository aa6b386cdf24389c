// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/promguard/promguard/internal/cli"
	"github.com/promguard/promguard/internal/proc"
)

const (
	stopTimeout = 30 * time.Second
	tailLines   = 10
)

// children are the processes that run. start and stop are called from one
// goroutine.
type children struct {
	dir   string // for the logs
	out   io.Writer
	ended func(cause error) // called when a process ends that was not stopped
	kids  []*child
	stops atomic.Bool
}

type child struct {
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
}

// start starts a process in a group of its own, so that a terminal's Ctrl-C
// reaches only us, with its output in a log file.
func (c *children) start(path string, args ...string) error {
	name := filepath.Base(path)
	logFile := filepath.Join(c.dir, name+".log")
	log, err := os.Create(logFile)
	if err != nil {
		return err
	}
	defer log.Close() // The process has its own.
	k := &child{name: name, cmd: exec.Command(path, args...), done: make(chan struct{})}
	k.cmd.Stdout, k.cmd.Stderr = log, log
	err = proc.Launch(k.cmd, func() {
		_ = k.cmd.Wait() // Its state says how it ended.
		close(k.done)
		if !c.stops.Load() {
			c.ended(cli.NewTail(fmt.Errorf("%s stopped (%s)", name, k.cmd.ProcessState), tail(logFile)))
		}
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(c.out, "started %s, log in %s\n", name, logFile)
	c.kids = append(c.kids, k)
	return nil
}

// signal signals the process's whole group.
func (k *child) signal(s syscall.Signal) { proc.SignalGroup(k.cmd.Process.Pid, s) }

// stop ends the processes, the last one first, and waits for them. A process
// that takes too long, and all of them at another signal, are killed.
func (c *children) stop(signals <-chan os.Signal) {
	c.stops.Store(true)
	for _, k := range slices.Backward(c.kids) {
		select {
		case <-k.done:
			continue
		default:
		}
		fmt.Fprintf(c.out, "stopping %s\n", k.name)
		k.signal(syscall.SIGTERM)
		select {
		case <-k.done:
		case <-signals:
			k.signal(syscall.SIGKILL)
		case <-time.After(stopTimeout):
			fmt.Fprintf(c.out, "%s did not stop within %s; killing it\n", k.name, stopTimeout)
			k.signal(syscall.SIGKILL)
		}
		<-k.done
	}
}

// tail is the end of a log.
func tail(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	lines = lines[max(0, len(lines)-tailLines):]
	return strings.Join(lines, "\n")
}
