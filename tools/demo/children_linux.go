// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import "syscall"

// childAttr puts a process into a group of its own and has it killed if we are
// killed before we can stop it.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// signal signals the process's whole group.
func (k *child) signal(s syscall.Signal) { _ = syscall.Kill(-k.cmd.Process.Pid, s) }
