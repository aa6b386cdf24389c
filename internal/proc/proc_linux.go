// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Supported says whether processes can be measured on this system.
const Supported = true

// ChildAttr puts a process into a group of its own, so that a terminal's Ctrl-C
// reaches only us, and has it killed if the starting thread ends.
func ChildAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// CPUTime is the user and system time of all of a process's threads, to the
// nanosecond, by the process's own CPU clock.
func CPUTime(pid int) (time.Duration, error) {
	const schedClock = 2 // CPUCLOCK_SCHED in the kernel's posix-timers.h.
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|schedClock, &ts); err != nil {
		return 0, fmt.Errorf("reading the CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// Memory is the resident memory of a process, in bytes.
type Memory struct {
	RSS  int64 // now
	Peak int64 // the most since the process began, or since ResetPeak
	Anon int64 // the part of RSS that is not a file's
}

// ReadMemory reads how much memory a process has. It is an error if the process
// has ended, also if nobody has waited for it yet.
func ReadMemory(pid int) (Memory, error) {
	kib, err := status(fmt.Sprintf("/proc/%d/status", pid), "VmRSS", "VmHWM", "RssAnon")
	if err != nil {
		return Memory{}, err
	}
	return Memory{RSS: kib[0] << 10, Peak: kib[1] << 10, Anon: kib[2] << 10}, nil
}

// ResetPeak has the kernel forget the peak of a process's resident memory.
func ResetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// ContextSwitches sums over the threads that a process has now. Threads that
// ended are missing; the Go runtime hardly ever ends one.
func ContextSwitches(pid int) (voluntary, involuntary int64, err error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for _, t := range threads {
		fields, err := status(t, "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches")
		if err != nil {
			return 0, 0, err
		}
		voluntary += fields[0]
		involuntary += fields[1]
	}
	return voluntary, involuntary, nil
}

// BytesRead is how much a process has read by system calls, and how much of
// all that it read, m-mapped files included, came from storage.
func BytesRead(pid int) (calls, disk int64, err error) {
	fields, err := status(fmt.Sprintf("/proc/%d/io", pid), "rchar", "read_bytes")
	if err != nil {
		return 0, 0, err
	}
	return fields[0], fields[1], nil
}

// status reads numbers from one of /proc's status files.
func status(path string, names ...string) ([]int64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	values := make([]int64, 0, len(names))
	for _, name := range names {
		_, rest, ok := strings.Cut("\n"+string(b), "\n"+name+":")
		line, _, _ := strings.Cut(rest, "\n")
		fields := strings.Fields(line)
		if !ok || len(fields) == 0 {
			return nil, fmt.Errorf("%s has no %s", path, name)
		}
		v, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		values = append(values, v)
	}
	return values, nil
}
