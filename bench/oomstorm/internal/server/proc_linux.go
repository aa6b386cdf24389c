// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Supported says whether servers can be measured on this system.
const Supported = true

// cpuTime is the user and system time of all of a process's threads, to the
// nanosecond, by the process's own CPU clock.
func cpuTime(pid int) (time.Duration, error) {
	const schedClock = 2 // CPUCLOCK_SCHED in the kernel's posix-timers.h.
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|schedClock, &ts); err != nil {
		return 0, fmt.Errorf("reading the CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// readMemory reads a process's status file.
func readMemory(pid int) (Memory, error) {
	path := fmt.Sprintf("/proc/%d/status", pid)
	b, err := os.ReadFile(path)
	if err != nil {
		return Memory{}, err
	}
	var m Memory
	for _, f := range []struct {
		name string
		to   *int64
	}{{"VmRSS", &m.RSS}, {"VmHWM", &m.Peak}, {"RssAnon", &m.Anon}} {
		_, rest, ok := strings.Cut(string(b), "\n"+f.name+":")
		line, _, _ := strings.Cut(rest, "\n")
		fields := strings.Fields(line)
		if !ok || len(fields) == 0 {
			return Memory{}, fmt.Errorf("%s has no %s", path, f.name) // As that of a zombie.
		}
		kib, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil {
			return Memory{}, fmt.Errorf("%s: %w", path, err)
		}
		*f.to = kib << 10
	}
	return m, nil
}

// resetPeak has the kernel forget the peak of a process's resident memory.
func resetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

func killGroup(pid int) { _ = unix.Kill(-pid, unix.SIGKILL) }

func terminate(pid int) { _ = unix.Kill(pid, unix.SIGTERM) }
