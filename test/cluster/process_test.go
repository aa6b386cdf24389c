// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cluster

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// process is one part of the cluster.
type process struct {
	name, log string
	cmd       *exec.Cmd
	done      chan struct{}
}

// binDir is where make cluster puts the parts.
func binDir(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("PROMGUARD_BIN")
	if dir == "" {
		lacks(t, "PROMGUARD_BIN is not set: make test-cluster sets it")
	}
	return dir
}

// start runs a program until the test ends. What it writes goes to NAME.log in the
// cluster's folder, whose end is shown if the test fails.
func start(t testing.TB, logs, name, binary string, env []string, args ...string) *process {
	t.Helper()
	p := &process{name: name, log: filepath.Join(logs, name+".log"), done: make(chan struct{})}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	require.NoError(t, err)
	defer out.Close()
	p.cmd = exec.Command(binary, args...)
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	// Not ended by a Ctrl-C that is meant for the test, which ends it in its turn.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			t.Logf("%s: %s ends with\n%s", p.name, p.log, tail(p.log, 8))
		}
	})
	return p
}

// stop ends the process, with SIGKILL if it does not heed SIGTERM.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// await waits until ready says nil, and fails when the process has ended or the
// time is over.
func (p *process) await(t testing.TB, limit time.Duration, ready func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := ready()
		if err == nil {
			return
		}
		select {
		case <-p.done:
			require.FailNow(t, p.name+" has ended", "%v; %s:\n%s", err, p.log, tail(p.log, 30))
		case <-time.After(100 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			require.FailNow(t, p.name+" is not ready", "%v; %s:\n%s", err, p.log, tail(p.log, 30))
		}
	}
}

// tail is the end of a file, for people.
func tail(file string, lines int) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// freePort is a port that nobody listened on just now.
func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
