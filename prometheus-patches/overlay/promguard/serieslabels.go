// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package promguard

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/prometheus/prometheus/model/labels"
)

// Values of --guard.series-labels.
const (
	labelsPacked = "packed"
	labelsWhole  = "whole"
)

// packLabels packs the labels of series if the flag says so. Agents never do: they share the
// labels between their storage and the scrape cache, and packed copies would come on top.
func (f *seriesFlags) packLabels(agent bool, reg prometheus.Registerer) {
	packs := !agent && f.labels.word == labelsPacked
	labels.SetPacking(packs)
	if packs {
		reg.MustRegister(labelBytes{})
	}
}

var (
	basesDesc  = prometheus.NewDesc("prometheus_guard_label_bases_bytes", "Estimated memory of the label sets that packed series share.", nil, nil)
	tablesDesc = prometheus.NewDesc("prometheus_guard_label_tables_bytes", "Memory of the tables in which label sets to share are found.", nil, nil)
)

// labelBytes collects the memory of packed labels, without the edits of each series.
type labelBytes struct{}

// Describe implements prometheus.Collector.
func (labelBytes) Describe(c chan<- *prometheus.Desc) { c <- basesDesc; c <- tablesDesc }

// Collect implements prometheus.Collector.
func (labelBytes) Collect(c chan<- prometheus.Metric) {
	bases, tables := labels.PackedBytes()
	c <- prometheus.MustNewConstMetric(basesDesc, prometheus.GaugeValue, float64(bases))
	c <- prometheus.MustNewConstMetric(tablesDesc, prometheus.GaugeValue, float64(tables))
}
