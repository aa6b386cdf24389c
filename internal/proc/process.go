// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/promguard/promguard/internal/cli"
)

// tailLines are the last lines of a log that are kept.
const tailLines = 12

// Process is a program that runs or has ended. Its methods may be used concurrently.
type Process struct {
	cmd   *exec.Cmd
	dead  chan struct{}
	ended time.Time // read after dead

	mu   sync.Mutex
	tail []string
}

// Start starts a command that ends with this program. Each line that it writes to stderr is
// given to line, unless that is nil.
func Start(cmd *exec.Cmd, line func(text string)) (*Process, error) {
	log, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, dead: make(chan struct{})}
	return p, Launch(cmd, func() {
		p.follow(log, line)
		_ = cmd.Wait() // Its state says how it ended.
		p.ended = time.Now()
		close(p.dead)
	})
}

// follow reads the log to its end, which is that of the process.
func (p *Process) follow(log io.Reader, line func(text string)) {
	in := bufio.NewScanner(log)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		text := in.Text()
		if _, trace := Collected(text); !trace {
			p.mu.Lock()
			p.tail = append(p.tail[max(0, len(p.tail)-tailLines+1):], text)
			p.mu.Unlock()
		}
		if line != nil {
			line(text)
		}
	}
	// A line that does not fit must not block the process.
	_, _ = io.Copy(io.Discard, log)
}

// collected is the trace of a collection of garbage: what it left.
var collected = regexp.MustCompile(`^gc \d+ @.* \d+->\d+->(\d+) MB, `)

// Collected returns the bytes of live heap that a collection of garbage left, if the line
// is one that GODEBUG=gctrace=1 has a program write of it.
func Collected(line string) (live int64, ok bool) {
	m := collected.FindStringSubmatch(line)
	if m == nil {
		return 0, false
	}
	mib, err := strconv.ParseInt(m[1], 10, 44)
	return mib << 20, err == nil
}

// PID is the number of the process, which may be another's once it has ended.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Dead is closed when the process has ended.
func (p *Process) Dead() <-chan struct{} { return p.dead }

// Alive says whether the process has not ended.
func (p *Process) Alive() bool {
	select {
	case <-p.dead:
		return false
	default:
		return true
	}
}

// Ended is when the process ended. It must have.
func (p *Process) Ended() time.Time { return p.ended }

// How is how the process ended, in words. It must have.
func (p *Process) How() string { return p.cmd.ProcessState.String() }

// Tail is the end of the log.
func (p *Process) Tail() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.tail)
}

// Error says that the process has ended: what is said of that, how, and its last words.
func (p *Process) Error(what, how string) error {
	return cli.NewTail(fmt.Errorf("%s (%s)", what, how), strings.Join(p.Tail(), "\n"))
}

// Kill kills the process and its children, and waits for its end.
func (p *Process) Kill() {
	if p.Alive() {
		SignalGroup(p.PID(), syscall.SIGKILL)
	}
	<-p.dead
}

// Stop asks the process to end. If it takes longer than timeout, or ctx ends, it is
// killed, and clean is false.
func (p *Process) Stop(ctx context.Context, timeout time.Duration) (clean bool) {
	if p.Alive() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
	}
	select {
	case <-p.dead:
		clean = true
	case <-time.After(timeout):
	case <-ctx.Done():
	}
	p.Kill()
	return clean
}
