// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import "time"

// MaxReadQueries is how many queries a remote read may have in any mode.
const MaxReadQueries = 1000

// Window is a range of time that is read as it stands.
type Window struct{ Start, End time.Time }

// latestWindow is where times are cut before they are judged; about a quarter of a
// million years, and what is beyond is beyond every limit.
const latestWindow = 1 << 53

// NewWindow returns the window between two times in milliseconds since 1970.
func NewWindow(start, end int64) Window {
	cut := func(ms int64) time.Time { return time.UnixMilli(min(max(ms, -latestWindow), latestWindow)) }
	return Window{cut(start), cut(end)}
}
