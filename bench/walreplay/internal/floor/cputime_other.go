// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package floor

import (
	"errors"
	"time"
)

func cpuTime() (time.Duration, error) { return 0, errors.ErrUnsupported }
