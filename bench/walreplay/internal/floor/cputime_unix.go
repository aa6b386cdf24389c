// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package floor

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime is the user and system time that this process has used.
func cpuTime() (time.Duration, error) {
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &ru); err != nil {
		return 0, err
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano()), nil
}
