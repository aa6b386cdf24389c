// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package promguard

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/prometheus/prometheus/promguard/memory"
	"github.com/prometheus/prometheus/promguard/newseries"
)

// leastMemory is the smallest memory limit in bytes.
const leastMemory = 64 << 20

// WatchMemory watches the memory of the process for as long as it lives. It is
// called when GOMEMLIMIT is set.
func (f *Flags) WatchMemory(logger *slog.Logger, reg prometheus.Registerer) {
	limit := memory.Auto
	if n := f.memoryLimit.or(0); n > 0 {
		limit = memory.AtMost(n)
	} else if !f.memoryLimit.auto {
		return
	}
	f.memory = memory.NewMonitor(limit)
	f.memory.Register(logger, reg)
	f.newSeries = newseries.New()
	reg.MustRegister(f.newSeries)
	f.memory.OnChange(f.nameCulprit(logger))
	go f.memory.Run(context.Background())
}

// nameCulprit returns a function that logs who adds series when the memory has
// become scarce.
func (f *Flags) nameCulprit(logger *slog.Logger) func(old, current memory.State, u memory.Usage) {
	return func(old, current memory.State, _ memory.Usage) {
		if current <= old {
			return
		}
		if culprit := f.newSeries.Report().Log(); culprit != nil {
			logger.Warn("Many new series have labels in common", culprit...)
		}
	}
}

// status returns what the API tells at /api/v1/status/guard, nil if it does not.
func (f *Flags) status() func() any {
	if f.memory == nil {
		return nil
	}
	type status struct {
		Memory    *memory.Status    `json:"memory"`
		NewSeries *newseries.Report `json:"newSeries"`
	}
	return func() any { return status{f.memory.Status(), f.newSeries.Recent()} }
}
