// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package memory

import "math"

// Left is how many bytes more may live until new series are refused, and until nothing is
// let in any more, if taken bytes have been taken since the last collection, which live.
// Without a limit there is always room.
func (u Usage) Left(taken int64) (critical, alarming int64) {
	if u.Limit <= 0 {
		return math.MaxInt64, math.MaxInt64
	}
	live := max(u.liveNow(), u.Live+taken-u.transient)
	of := func(share float64) int64 { return int64(share*float64(u.Limit)) - live }
	compaction := max(0, u.expected()-u.liveNow())
	return max(of(liveShares.begin[Tight]), of(liveShares.begin[Critical])-compaction), of(alarm)
}

// Exceeds says that bytes more are beyond the limit as long as what is dead is not collected.
func (u Usage) Exceeds(bytes int64) bool { return u.Limit > 0 && u.Heap+u.own+bytes > u.Limit }
