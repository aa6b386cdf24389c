// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"github.com/prometheus/common/model"

	"github.com/promguard/promguard/internal/rules/evaluate"
)

// Count says how many series a metric has.
type Count struct {
	Series int
	// Churned says that those which have ended are among them.
	Churned bool
}

// countNames returns how many series each metric name has.
func countNames(series []evaluate.Series) map[string]Count {
	out := map[string]Count{}
	for i := range series {
		name := series[i].Labels.Get(model.MetricNameLabel)
		out[name] = Count{Series: out[name].Series + 1}
	}
	return out
}

// countValues returns, for labels of metrics, how many series have each value. The
// wanted labels are by metric name; a series without a label has the value "".
func countValues(series []evaluate.Series, wanted map[string][]string) map[string]map[string]map[string]int {
	out := map[string]map[string]map[string]int{}
	for name, names := range wanted {
		out[name] = map[string]map[string]int{}
		for _, l := range names {
			out[name][l] = map[string]int{}
		}
	}
	for i := range series {
		for label, values := range out[series[i].Labels.Get(model.MetricNameLabel)] {
			values[series[i].Labels.Get(label)]++
		}
	}
	return out
}
