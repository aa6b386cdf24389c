// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package readapi

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/prometheus/prometheus/promguard/reads"
)

// metrics are about what was limited.
type metrics struct {
	stopped *prometheus.CounterVec
	aborted *prometheus.CounterVec
	queued  *prometheus.HistogramVec
}

func newMetrics(h *Handlers, reg prometheus.Registerer) *metrics {
	factory := promauto.With(reg)
	m := &metrics{
		stopped: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "prometheus_guard_api_requests_stopped_total",
			Help: "Read requests that were refused or stopped, by endpoint and reason.",
		}, []string{"endpoint", "reason"}),
		aborted: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "prometheus_guard_api_responses_aborted_total",
			Help: "Answers that were cut off after their first byte because the read was stopped or the client left, by endpoint.",
		}, []string{"endpoint"}),
		queued: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "prometheus_guard_api_queue_duration_seconds",
			Help:    "Time that read requests waited for their turn, by pool.",
			Buckets: []float64{.001, .01, .1, .5, 1, 2.5, 5, 10, 30},
		}, []string{"pool"}),
	}
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "prometheus_guard_api_requests_in_flight",
		Help: "Read requests that run or wait for their turn.",
	}, func() float64 { return float64(h.table.Len()) })
	for _, pool := range []*reads.Pool{h.metadata, h.bulk, h.query} {
		if pool == nil {
			continue
		}
		factory.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "prometheus_guard_api_requests_queued",
			Help:        "Read requests that wait for their turn, by pool.",
			ConstLabels: prometheus.Labels{"pool": pool.Name()},
		}, func() float64 { return float64(pool.Waiting()) })
	}
	if b := h.opts.Budget; b != nil {
		factory.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "prometheus_guard_read_memory_reserved_bytes",
			Help: "Memory that read requests have reserved.",
		}, func() float64 { return float64(b.Held()) })
		factory.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "prometheus_guard_read_memory_budget_bytes",
			Help: "Memory that read requests may reserve.",
		}, func() float64 { return float64(b.Total()) })
		factory.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "prometheus_guard_read_memory_waiting",
			Help: "Read requests that wait for memory, holding none.",
		}, func() float64 { return float64(b.Waiting()) })
	}
	return m
}

// init makes the counters that people alert on exist from the start.
func (m *metrics) init(e *endpoint) {
	for _, reason := range []reads.Reason{reads.ReasonDeadline, reads.ReasonTooLarge, reads.ReasonMemory, reads.ReasonQueue} {
		m.stopped.WithLabelValues(e.name, string(reason))
	}
	m.aborted.WithLabelValues(e.name)
}

func (m *metrics) waited(e *endpoint, d time.Duration) {
	if e.pool != nil {
		m.queued.WithLabelValues(e.pool.Name()).Observe(d.Seconds())
	}
}

// finished counts the end of a request.
func (m *metrics) finished(w *writer) {
	name := w.endpoint.name
	if stop := reads.Stopped(w.ctx); stop != nil {
		m.stopped.WithLabelValues(name, string(stop.Reason)).Inc()
	} else if w.slow {
		m.stopped.WithLabelValues(name, string(reads.ReasonSlow)).Inc()
	}
	if w.aborted {
		m.aborted.WithLabelValues(name).Inc()
	}
}
