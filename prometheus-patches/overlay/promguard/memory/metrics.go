// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"context"
	"log/slog"

	"github.com/docker/go-units"
	"github.com/prometheus/client_golang/prometheus"
)

// Register adds metrics of the memory, and logs each change of state.
func (m *Monitor) Register(logger *slog.Logger, reg prometheus.Registerer) {
	if m == nil {
		return
	}
	changes := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "prometheus_guard_memory_state_changes_total",
		Help: "How often the state of the memory became this one.",
	}, []string{"state"})
	for _, s := range States {
		changes.WithLabelValues(s.String())
	}
	reg.MustRegister(changes, collector{m})
	m.OnChange(func(old, current State, u Usage) {
		changes.WithLabelValues(current.String()).Inc()
		level := slog.LevelWarn
		if current < old {
			level = slog.LevelInfo
		}
		size := func(n int64) string { return units.BytesSize(float64(n)) }
		logger.Log(context.Background(), level, "The state of the memory has changed", "state", current, "was", old,
			"live", size(u.Live), "limit", size(u.Limit), "resident", size(u.Resident), "kill", size(u.Kill), "allocated_per_second", size(int64(u.Growth)))
	})
}

var (
	stateDesc = prometheus.NewDesc("prometheus_guard_memory_state", "1 for the state of the memory: ok, tight, or critical, in which new series are refused.", []string{"state"}, nil)
	limitDesc = prometheus.NewDesc("prometheus_guard_memory_limit_bytes", "Memory that the process may use by --guard.memory-limit; 0 if nobody knows.", nil, nil)
	liveDesc  = prometheus.NewDesc("prometheus_guard_memory_live_bytes", "Memory of the heap after the last garbage collection, stacks, and the runtime's own.", nil, nil)
	resDesc   = prometheus.NewDesc("prometheus_guard_memory_resident_bytes", "Memory of the process, or of its cgroup, that the kernel cannot take back.", nil, nil)
	waitDesc  = prometheus.NewDesc("prometheus_guard_compaction_waiting_bytes", "Memory that a compaction of blocks waits for; 0 if none waits.", nil, nil)
)

type collector struct{ m *Monitor }

// Describe implements prometheus.Collector.
func (collector) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{stateDesc, limitDesc, liveDesc, resDesc, waitDesc} {
		c <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	u, state := c.m.Usage(), c.m.State()
	for _, s := range States {
		is := 0.0
		if s == state {
			is = 1
		}
		out <- prometheus.MustNewConstMetric(stateDesc, prometheus.GaugeValue, is, s.String())
	}
	out <- prometheus.MustNewConstMetric(limitDesc, prometheus.GaugeValue, float64(u.Limit))
	out <- prometheus.MustNewConstMetric(liveDesc, prometheus.GaugeValue, float64(u.Live))
	out <- prometheus.MustNewConstMetric(resDesc, prometheus.GaugeValue, float64(u.Resident))
	out <- prometheus.MustNewConstMetric(waitDesc, prometheus.GaugeValue, float64(c.m.waits.Load()))
}
