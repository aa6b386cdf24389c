// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package server

import (
	"errors"
	"time"
)

// Supported says whether servers can be measured on this system.
const Supported = false

func cpuTime(int) (time.Duration, error) { return 0, errors.ErrUnsupported }

func readMemory(int) (Memory, error) { return Memory{}, errors.ErrUnsupported }

func resetPeak(int) error { return errors.ErrUnsupported }

func killGroup(int) {}

func terminate(int) {}
