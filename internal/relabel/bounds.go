// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package relabel

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// kept is a thinned histogram, or several with the same bounds, and what stays of it.
type kept struct {
	id         string
	histograms []string
	// bounds are the finite ones that the exporters have, in the versions since
	// Kubernetes 1.23 where they differ. A bound goes by its value: of other
	// versions' bounds nothing is dropped that is not one of these.
	bounds []float64
	// stay are the bounds that stay.
	stay []float64
	// per is what there is a set of buckets for.
	per   string
	since string
}

// rule returns the rule that leaves the bounds that stay.
func (k kept) rule() Rule {
	drop := slices.DeleteFunc(slices.Clone(k.bounds), func(b float64) bool { return slices.Contains(k.stay, b) })
	text := make([]string, 0, len(k.stay))
	for _, b := range k.stay {
		text = append(text, strconv.FormatFloat(b, 'g', 6, 64))
	}
	return Rule{
		ID:     k.id,
		Reason: fmt.Sprintf("%d buckets per %s; those of %s and +Inf stay", len(k.bounds)+1, k.per, strings.Join(text, ", ")),
		Saving: fmt.Sprintf("%d of %d buckets per %s", len(drop), len(k.bounds)+1, k.per),
		Since:  k.since,
	}.thinning(Thinning{Histograms: k.histograms, Drop: drop, Bounds: k.bounds})
}

// The bounds of Kubernetes' components.
var (
	requestBounds   = []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60}
	queueBounds     = prometheus.ExponentialBuckets(10e-9, 10, 10)
	extensionBounds = prometheus.ExponentialBuckets(0.0001, 2, 12)
	runtimeBounds   = prometheus.ExponentialBuckets(0.005, 2.5, 14)
	eventSizeBounds = prometheus.ExponentialBuckets(1024, 2, 8)
)

// keptBounds are what recommended thins. What stays of each histogram is what
// test/bounds finds and holds it to.
func keptBounds() []kept {
	return []kept{
		{
			id:         "apiserver-request-bounds",
			histograms: []string{"apiserver_request_duration_seconds"},
			bounds:     requestBounds,
			stay:       []float64{0.005, 0.025, 0.1, 0.4, 1, 2, 3, 5, 20, 30, 60},
			per:        "verb, resource, scope and API server",
			since:      "1.23",
		},
		{
			id:         "apiserver-sli-bounds",
			histograms: []string{"apiserver_request_sli_duration_seconds", "apiserver_request_slo_duration_seconds"},
			bounds:     requestBounds[2:],
			stay:       []float64{0.05, 0.1, 0.4, 1, 2, 5, 10, 30, 60},
			per:        "verb, resource, scope and API server",
			since:      "1.23",
		},
		{
			id:         "apiserver-etcd-bounds",
			histograms: []string{"etcd_request_duration_seconds"},
			bounds:     requestBounds,
			stay:       []float64{0.005, 0.025, 0.1, 0.4, 1, 4, 15, 60},
			per:        "operation, type of object, custom resources included, and API server",
			since:      "1.24",
		},
		{
			id:         "apiserver-flowcontrol-bounds",
			histograms: []string{"apiserver_flowcontrol_request_wait_duration_seconds", "apiserver_flowcontrol_request_execution_seconds"},
			bounds:     []float64{0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30},
			stay:       []float64{0, 0.005, 0.02, 0.05, 0.2, 0.5, 1, 2, 5, 10, 30},
			per:        "flow schema, priority level and API server",
			since:      "1.20",
		},
		{
			id:         "workqueue-bounds",
			histograms: []string{"workqueue_queue_duration_seconds", "workqueue_work_duration_seconds"},
			bounds:     queueBounds,
			stay:       queueBounds[2:],
			per:        "work queue and process",
		},
		{
			id:         "scheduler-extension-bounds",
			histograms: []string{"scheduler_framework_extension_point_duration_seconds"},
			bounds:     extensionBounds,
			stay:       []float64{0.0001, 0.0004, 0.0016, 0.0064, 0.0256, 0.1024, 0.2048},
			per:        "extension point, status and scheduler",
		},
		{
			id:         "apiserver-watch-size-bounds",
			histograms: []string{"apiserver_watch_events_sizes"},
			bounds:     eventSizeBounds,
			stay:       []float64{1024, 2048, 8192, 32768, 131072},
			per:        "type of object and API server",
		},
		{
			id:         "apiserver-watch-cache-bounds",
			histograms: []string{"apiserver_watch_cache_read_wait_seconds"},
			bounds:     requestBounds[:13],
			stay:       []float64{0.005, 0.025, 0.1, 0.4, 1, 3},
			per:        "type of object and API server",
		},
		{
			id:         "apiserver-seat-bounds",
			histograms: []string{"apiserver_flowcontrol_demand_seats"},
			bounds:     []float64{0.2, 0.4, 0.6, 0.8, 1, 1.2, 1.4, 1.7, 2, 2.8, 4, 6},
			stay:       []float64{0.2, 0.6, 2, 6},
			per:        "priority level and API server",
		},
	}
}

// coarseBounds are what aggressive takes of the bounds that recommended leaves.
func coarseBounds() []kept {
	coarser := func(id string, stay ...float64) kept {
		all := keptBounds()
		k := all[slices.IndexFunc(all, func(k kept) bool { return k.id == id })]
		k.id, k.bounds, k.stay = strings.TrimSuffix(id, "bounds")+"coarse", k.stay, stay
		return k
	}
	return []kept{
		coarser("apiserver-sli-bounds", 0.05, 0.4, 1, 5, 30, 60),
		coarser("apiserver-flowcontrol-bounds", 0, 0.005, 0.05, 0.5, 1, 5, 30),
		coarser("workqueue-bounds", queueBounds[6:]...),
		{
			id:         "kubelet-runtime-bounds",
			histograms: []string{"kubelet_runtime_operations_duration_seconds"},
			bounds:     runtimeBounds,
			stay:       []float64{runtimeBounds[0], runtimeBounds[2], runtimeBounds[4], runtimeBounds[6], runtimeBounds[8], runtimeBounds[10], runtimeBounds[12], runtimeBounds[13]},
			per:        "kind of runtime operation and node",
		},
	}
}

// thinnedRules are the rules that leave these bounds.
func thinnedRules(all []kept) []Rule {
	var rules []Rule
	for _, k := range all {
		rules = append(rules, k.rule())
	}
	return rules
}
