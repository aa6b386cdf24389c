// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package replay

import (
	"errors"
	"syscall"
	"time"
)

// Supported says whether replays can be measured on this system.
const Supported = false

func childAttr() *syscall.SysProcAttr { return nil }

func killGroup(int) {}

func cpuTime(int) (time.Duration, error) { return 0, errors.ErrUnsupported }

func anonymousMemory(int) (int64, error) { return 0, errors.ErrUnsupported }

func contextSwitches(int) (voluntary, involuntary int64, err error) {
	return 0, 0, errors.ErrUnsupported
}

func bytesRead(int) (calls, disk int64, err error) { return 0, 0, errors.ErrUnsupported }
