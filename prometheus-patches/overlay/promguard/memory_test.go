// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package promguard

import (
	"bytes"
	"log/slog"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promguard/memory"
	"github.com/prometheus/prometheus/promguard/newseries"
)

func TestTheCulpritIsLoggedWhenMemoryBecomesScarce(t *testing.T) {
	var log bytes.Buffer
	f := &seriesFlags{newSeries: newseries.New()}
	changed := f.nameCulprit(slog.New(slog.NewTextHandler(&log, nil)))
	changed(memory.OK, memory.Tight, memory.Usage{})
	require.Empty(t, log.String(), "nobody has added series")
	for i := range 5000 {
		f.newSeries.NewSeries(labels.FromStrings(labels.MetricName, "http_requests_total", "job", "api", "request_id", strconv.Itoa(i)), false)
	}
	changed(memory.Critical, memory.Tight, memory.Usage{})
	require.Empty(t, log.String(), "it becomes better")
	changed(memory.Tight, memory.Critical, memory.Usage{})
	require.Regexp(t, `new_series=5000 since=\S+ share=100% culprit="job=\\"api\\", .*request_id.*" to_drop_them="metric_relabel_configs: \[{source_labels: \[job, __name__, request_id], regex: api;http_requests_total;.+, action: drop}]"`, log.String())
}
