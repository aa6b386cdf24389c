// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package bounds

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/util/teststorage"
	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/relabel"
)

// TestTheFactorsAreThoseOfPrometheus stores every row that is drawn, asks Prometheus for
// its quantiles, and asks again without what recommended drops.
func TestTheFactorsAreThoseOfPrometheus(t *testing.T) {
	_, hs := theFacts(t)
	p, err := relabel.ProfileByName(relabel.ProfileRecommended)
	require.NoError(t, err)
	d, err := relabel.Compile(p)
	require.NoError(t, err)
	full, thinned := teststorage.New(t), teststorage.New(t)
	for _, h := range hs {
		store(t, full, h, func(labels.Labels) bool { return false })
		store(t, thinned, h, func(l labels.Labels) bool { _, drop := d.Drop(l); return drop })
		quantiles := map[float64][]row{}
		for i, r := range h.rows {
			for _, q := range r.quantiles {
				if quantiles[q] == nil {
					quantiles[q] = make([]row, len(h.rows))
				}
				r.quantiles, r.times = []float64{q}, 1
				quantiles[q][i] = r
			}
		}
		for q, rows := range quantiles {
			before, after := ask(t, full, h, q), ask(t, thinned, h, q)
			for i, r := range rows {
				if f := h.factors([]row{r}, left(h.rule)); len(f) > 0 {
					require.InDelta(t, f[0], max(before[i], after[i])/min(before[i], after[i]), 1e-9, "%s: row %d, quantile %g", h.rule.ID, i, q)
				}
			}
		}
	}
}

// store writes the rows as the buckets of one histogram, but for those that go.
func store(t *testing.T, s *teststorage.TestStorage, h *histogram, goes func(labels.Labels) bool) {
	t.Helper()
	a := s.Appender(t.Context())
	for i, r := range h.rows {
		for j, b := range append(slices.Clone(h.bounds), math.Inf(1)) {
			l := labels.FromStrings(labels.MetricName, h.rule.Thinning.Histograms[0]+"_bucket", "le", labels.FormatOpenMetricsFloat(b), "row", strconv.Itoa(i))
			if goes(l) {
				continue
			}
			_, err := a.Append(0, l, 0, r.counts[j])
			require.NoError(t, err)
		}
	}
	require.NoError(t, a.Commit())
}

// ask returns the quantile of each row.
func ask(t *testing.T, s *teststorage.TestStorage, h *histogram, q float64) map[int]float64 {
	t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Hour})
	query, err := engine.NewInstantQuery(t.Context(), s, nil, fmt.Sprintf("histogram_quantile(%g, %s_bucket)", q, h.rule.Thinning.Histograms[0]), time.Unix(0, 0))
	require.NoError(t, err)
	defer query.Close()
	rows, err := query.Exec(t.Context()).Vector()
	require.NoError(t, err)
	out := map[int]float64{}
	for _, r := range rows {
		i, err := strconv.Atoi(r.Metric.Get("row"))
		require.NoError(t, err)
		out[i] = r.F
	}
	return out
}
