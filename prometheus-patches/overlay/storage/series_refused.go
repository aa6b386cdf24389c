// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package storage

import "errors"

// ErrSeriesRefused is returned by appenders for a sample of a series that does not
// exist, and may not be created now. Samples of other series can be appended.
var ErrSeriesRefused = errors.New("new series refused")
