// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/prometheus/common/model"

	"github.com/promguard/promguard/internal/promapi"
)

// liveCounts returns how many series the metric names of a server have: of those
// that wanted is true of, the series of now, by queries of several names; of others
// and of those that have more series than a query may read, what the server says of
// its head, if it does. The notes say what could not be counted.
func liveCounts(ctx context.Context, api *promapi.Client, wanted func(name string) bool) (counts map[string]Count, notes []string, err error) {
	names, err := api.Names(ctx)
	if err != nil {
		return nil, nil, err
	}
	head, err := api.Head(ctx)
	if err != nil {
		notes = append(notes, fmt.Sprintf("How many series a metric has could not be asked beforehand: %s.", err))
	}
	counts = map[string]Count{}
	for _, name := range names {
		if n, ok := head.ByName[name]; ok {
			counts[name] = Count{Series: n, Churned: true}
		}
	}
	most := api.Budget().Series
	asked := slices.DeleteFunc(names, func(name string) bool { return head.AtMost(name) > most || !wanted(name) })
	missing := 0
	for _, b := range head.Batches(asked, most) {
		rows, err := api.Query(ctx, fmt.Sprintf("count by (%s) (%s)", model.MetricNameLabel, promapi.Selector(b.Names)))
		if err != nil {
			if missing == 0 {
				notes = append(notes, fmt.Sprintf("The series of %s and others could not be counted: %s.", b.Names[0], err))
			}
			missing += len(b.Names)
		}
		for _, r := range rows {
			counts[r.Labels.Get(model.MetricNameLabel)] = Count{Series: int(r.Value)}
		}
	}
	if missing > 0 {
		notes = append(notes, fmt.Sprintf("%d metric names were not counted.", missing))
	}
	return counts, notes, ctx.Err()
}

// liveValues is what countValues is, for a server. A metric with more series than a query
// may read, and what could not be asked, is left out.
func liveValues(ctx context.Context, api *promapi.Client, counts map[string]Count, wanted map[string][]string) map[string]map[string]map[string]int {
	out := map[string]map[string]map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if counts[name].Series > api.Budget().Series {
			continue
		}
		out[name] = map[string]map[string]int{}
		for _, label := range wanted[name] {
			rows, err := api.Query(ctx, fmt.Sprintf("count by (%s) (%s)", promapi.LabelName(label), promapi.Selector([]string{name})))
			if err != nil {
				continue
			}
			values := map[string]int{}
			for _, r := range rows {
				values[r.Labels.Get(label)] = int(r.Value)
			}
			out[name][label] = values
		}
	}
	return out
}
