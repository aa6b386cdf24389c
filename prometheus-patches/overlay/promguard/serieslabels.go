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
		gauge := func(name, help string, bytes func(bases, tables int64) int64) {
			reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(bytes(labels.PackedBytes())) }))
		}
		gauge("prometheus_guard_label_bases_bytes", "Memory of the label sets that packed series share.", func(bases, _ int64) int64 { return bases })
		gauge("prometheus_guard_label_tables_bytes", "Memory of the tables in which label sets to share are found.", func(_, tables int64) int64 { return tables })
	}
}
