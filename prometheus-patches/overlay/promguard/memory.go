// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package promguard

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/prometheus/prometheus/promguard/memory"
	"github.com/prometheus/prometheus/tsdb"
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
	go f.memory.Run(context.Background())
}

// Memory is what a database asks before it compacts its head early. Nil where nobody
// watches the memory.
func (f *Flags) Memory() tsdb.Memory {
	if f.memory == nil {
		return nil
	}
	return f.memory
}
