// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package datadir

import "math"

// isLocked cannot be told here.
func isLocked(string) (bool, error) { return false, nil }

// freeBytes is not known here.
func freeBytes(string) (uint64, error) { return math.MaxInt64, nil }
