// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"math"
	"time"

	"github.com/prometheus/common/model"
)

// MaxReadQueries is how many queries a remote read may have in any mode.
const MaxReadQueries = 1000

// Window is a range of time that is read as it stands.
type Window struct{ Start, End time.Time }

// latestWindow is where times are cut before they are judged; about a quarter of a
// million years, and what is beyond is beyond every limit.
const latestWindow = 1 << 53

// NewWindow returns the window between two times in milliseconds since 1970.
func NewWindow(start, end int64) Window {
	return Window{time.UnixMilli(moment(float64(start))), time.UnixMilli(moment(float64(end)))}
}

func moment(ms float64) int64 { return int64(max(min(ms, latestWindow), -latestWindow)) }

// between returns the time from one moment to another, both in milliseconds, as
// far as a Duration goes.
func between(from, to int64) time.Duration {
	ms := float64(to) - float64(from)
	if ms >= math.MaxInt64/float64(time.Millisecond) {
		return math.MaxInt64
	}
	return time.Duration(max(ms, 0)) * time.Millisecond
}

// text writes a duration as Prometheus does; of more than a day, minutes are
// enough.
func text(d time.Duration) string {
	switch {
	case d == math.MaxInt64:
		return "all time"
	case d > 24*time.Hour:
		d = d.Round(time.Minute)
	case d > time.Minute:
		d = d.Round(time.Second)
	}
	return model.Duration(d).String()
}
