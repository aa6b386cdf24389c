// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"os/exec"
	"runtime"
	"syscall"
)

// Launch starts a process that ends with this one, and then lets wait run, which must
// wait for its end: the kernel kills it when the thread that started it ends, and that
// stays until wait returns.
func Launch(cmd *exec.Cmd, wait func()) error {
	cmd.SysProcAttr = ChildAttr()
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			wait()
		}
	}()
	return <-started
}

// SignalGroup signals a process and its children that are in its group.
func SignalGroup(pid int, s syscall.Signal) { _ = syscall.Kill(-pid, s) }
