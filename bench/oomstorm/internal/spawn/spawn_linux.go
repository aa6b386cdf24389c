// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package spawn

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// beIdle changes the calling thread, which is the one that survives become. A
// thread of this class gives way at once when any other wakes; one that is only
// nice may run on for its time slice, some 4 ms.
func beIdle() error {
	return unix.SchedSetAttr(0, &unix.SchedAttr{Policy: unix.SCHED_IDLE}, 0)
}

func become(path string, args []string) error { return syscall.Exec(path, args, os.Environ()) }
