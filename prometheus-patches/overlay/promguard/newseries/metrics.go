// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package newseries

import "github.com/prometheus/client_golang/prometheus"

var culpritDesc = prometheus.NewDesc("prometheus_guard_new_series",
	"New series of the last minutes, created and refused, of those who add most: what has no value, their series do not have in common. At most three at a time, and none if few series are new.",
	[]string{"culprit_job", "culprit_namespace", "culprit_metric"}, nil)

// Describe implements prometheus.Collector.
func (*Tracker) Describe(out chan<- *prometheus.Desc) { out <- culpritDesc }

// Collect implements prometheus.Collector. There are not many over time, either:
// each had 5 % of the new series of some minutes.
func (t *Tracker) Collect(out chan<- prometheus.Metric) {
	for _, c := range t.Recent().Culprits {
		out <- prometheus.MustNewConstMetric(culpritDesc, prometheus.GaugeValue, float64(c.Created+c.Refused), c.Job, c.Namespace, c.Metric)
	}
}
