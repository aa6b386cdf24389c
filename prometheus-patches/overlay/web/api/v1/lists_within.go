// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"context"

	"github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/storage"
)

// Memory of an element while a list is built, in bytes.
const (
	// nameInSetBytes is a name in a set, and in the list that is made of the set.
	nameInSetBytes = 56
	// metricBytes is a metric with one type, help and unit: a map of its own, and a slice.
	metricBytes = 600
	// targetMetricBytes is a metric of a target in a list that grows.
	targetMetricBytes = 160
)

// addWithin returns list, whose elements are about to be added to a set, and counts those
// that the set lacks in the account of the read. If the account refuses, the read ends and
// addWithin returns nil: the incomplete set is never sent.
func addWithin[V, T any](ctx context.Context, set map[string]V, list []T, name func(*T) string, bytes int64) []T {
	account := storage.ReadAccountFrom(ctx)
	if account == nil {
		return list
	}
	added := int64(0)
	for i := range list {
		if _, ok := set[name(&list[i])]; !ok {
			added++
		}
	}
	if account.Use(added*bytes) != nil || account.Yield(ctx) != nil {
		return nil
	}
	return list
}

func addNames(ctx context.Context, set map[string]struct{}, names []string) []string {
	return addWithin(ctx, set, names, func(s *string) string { return *s }, nameInSetBytes)
}

// addMetrics is addWithin for the metadata of a target. With a nil set, all of it counts.
func addMetrics[V any](ctx context.Context, set map[string]V, list []scrape.MetricMetadata, bytes int64) []scrape.MetricMetadata {
	return addWithin(ctx, set, list, func(m *scrape.MetricMetadata) string { return m.MetricFamily }, bytes)
}
