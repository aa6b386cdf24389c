// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux && !darwin

package tsdb

import "errors"

// diskSpace does not know: the number of directories is the only bound.
func diskSpace(string) (free, size uint64, err error) {
	return 0, 0, errors.ErrUnsupported
}
