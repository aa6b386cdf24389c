// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"github.com/prometheus/prometheus/model/labels"
)

// SeriesObserver is told of series that appenders create. It must be quick, and must
// not append.
type SeriesObserver interface {
	// NewSeries is called for a series that was created, or that somebody else has
	// refused to create.
	NewSeries(ls labels.Labels, refused bool)
}

// ObserveSeries makes o hear of the series that are created from now on. It is called
// before the first appender is made; the replay is over then.
func (h *Head) ObserveSeries(o SeriesObserver) { h.seriesObserver = o }

func (h *Head) observeSeries(ls labels.Labels) {
	if h.seriesObserver != nil {
		h.seriesObserver.NewSeries(ls, false)
	}
}

// HasSeries reports whether the head has the series.
func (h *Head) HasSeries(ls labels.Labels) bool {
	return h.series.getByHash(ls.Hash(), ls) != nil
}

// SeriesWith returns how many series of the head have the label.
func (h *Head) SeriesWith(name, value string) int {
	gone := h.rolledBack.count(labels.Label{Name: name, Value: value}) // Before they leave.
	return max(0, h.postings.Count(name, value)-gone)
}
