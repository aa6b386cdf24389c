// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package proc

import (
	"errors"
	"syscall"
	"time"
)

// Supported says whether processes can be measured on this system.
const Supported = false

// Memory is the resident memory of a process, in bytes.
type Memory struct{ RSS, Peak, Anon int64 }

// ChildAttr puts a process into a group of its own, so that a terminal's Ctrl-C
// reaches only us.
func ChildAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func CPUTime(int) (time.Duration, error) { return 0, errors.ErrUnsupported }

func ReadMemory(int) (Memory, error) { return Memory{}, errors.ErrUnsupported }

func ResetPeak(int) error { return errors.ErrUnsupported }

func ContextSwitches(int) (voluntary, involuntary int64, err error) {
	return 0, 0, errors.ErrUnsupported
}

func BytesRead(int) (calls, disk int64, err error) { return 0, 0, errors.ErrUnsupported }
