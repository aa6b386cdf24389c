// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package v1

import "github.com/prometheus/prometheus/tsdb"

// replayProgressStatus is the status of a replay whose progress is known.
type replayProgressStatus struct {
	walReplayStatus
	Percent float64 `json:"percent"` // From 0 to 100, of the bytes.
	Rate    float64 `json:"rate"`    // Bytes per second.
	ETA     float64 `json:"eta"`     // Seconds.
}

// withReplayProgress returns the status with the progress, or as it is if that
// is not known.
func withReplayProgress(s walReplayStatus, p *tsdb.WALReplayProgress) any {
	if p == nil {
		return s
	}
	return replayProgressStatus{walReplayStatus: s, Percent: 100 * p.Ratio, Rate: p.Rate, ETA: p.ETA.Seconds()}
}
