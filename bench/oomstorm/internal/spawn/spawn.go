// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package spawn starts processes whose priority and cgroup are set before they
// run their first instruction: through this program itself, which sets both and
// then becomes the other program.
package spawn

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"

	"github.com/promguard/promguard/bench/internal/proc"
)

// Word is the first argument that tells this program to become another one.
const Word = "become"

// Options are set before the program starts.
type Options struct {
	// Idle gives the program only the processor time that nobody else wants.
	Idle bool
	// Procs is the cgroup.procs file of a cgroup to join; empty joins none.
	Procs string
}

// Command is a command that runs a program at path under options. It ends when
// the thread that starts it ends.
func Command(o Options, path string, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, append([]string{Word, strconv.FormatBool(o.Idle), o.Procs, path}, args...)...)
	// Tests run this program under another file's name.
	cmd.Args[0] = "oomstorm"
	cmd.SysProcAttr = proc.ChildAttr()
	return cmd, nil
}

// Become does what Command asks for. args are those after Word. It returns only
// if it fails.
func Become(args []string) error {
	if len(args) < 3 {
		return errors.New("become is for oomstorm's own use")
	}
	idle, err := strconv.ParseBool(args[0])
	if err != nil {
		return err
	}
	if idle {
		runtime.LockOSThread() // A priority is that of the thread that becomes the other program.
		if err := beIdle(); err != nil {
			return fmt.Errorf("lowering the priority: %w", err)
		}
	}
	if procs := args[1]; procs != "" {
		f, err := os.OpenFile(procs, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString(strconv.Itoa(os.Getpid()))
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("joining the cgroup: %w", err)
		}
	}
	path, name := args[2], args[2]
	if self, err := os.Executable(); err == nil && self == path {
		name = os.Args[0] // As Command calls it.
	}
	return fmt.Errorf("%s: %w", path, become(path, append([]string{name}, args[3:]...)))
}
