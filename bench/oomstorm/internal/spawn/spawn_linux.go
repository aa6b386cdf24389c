// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package spawn

import (
	"os"
	"syscall"
)

// childAttr puts a process into a group of its own, so that a terminal's Ctrl-C
// reaches only us, and has it killed if the starting thread ends.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// addNice changes the calling thread, which is the one that survives become.
func addNice(n int) error {
	if n == 0 {
		return nil
	}
	// The system call returns 20 minus the nice value.
	now, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
	if err != nil {
		return err
	}
	return syscall.Setpriority(syscall.PRIO_PROCESS, 0, min(19, 20-now+n))
}

func become(path string, args []string) error { return syscall.Exec(path, args, os.Environ()) }
