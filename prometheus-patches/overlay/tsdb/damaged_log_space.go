// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux || darwin

package tsdb

import "syscall"

// diskSpace returns the bytes that are free, and those that there are, on the disk
// of a directory.
func diskSpace(dir string) (free, size uint64, err error) {
	var s syscall.Statfs_t
	err = syscall.Statfs(dir, &s)
	return s.Bavail * uint64(s.Bsize), s.Blocks * uint64(s.Bsize), err
}
