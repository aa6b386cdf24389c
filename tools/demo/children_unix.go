// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package main

import "syscall"

// childAttr puts a process into a group of its own.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// signal signals the process's whole group.
func (k *child) signal(s syscall.Signal) { _ = syscall.Kill(-k.cmd.Process.Pid, s) }
