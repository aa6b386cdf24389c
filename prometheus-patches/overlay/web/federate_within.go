// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
)

// federatedSampleBytes is what a federated sample has at least around its
// labels: a value, a timestamp and a line break.
const federatedSampleBytes = int64(len("{} 0 1700000000000\n"))

// federatedWithin returns the samples in the order in which federation sorts them,
// or none if the read has ended or its answer would be too large: it is answered
// with the reason then. To sort them again takes one pass.
func federatedWithin(ctx context.Context, vec promql.Vector) promql.Vector {
	account := storage.ReadAccountFrom(ctx)
	if account == nil {
		return vec
	}
	size := int64(0)
	for i := range vec {
		size += federatedSampleBytes + int64(vec[i].Metric.ByteSize())
	}
	if account.CheckResponse(size) != nil || storage.SortRead(ctx, vec, compareNames) != nil {
		return nil
	}
	return vec
}

func compareNames(a, b promql.Sample) int {
	return strings.Compare(a.Metric.Get(labels.MetricName), b.Metric.Get(labels.MetricName))
}
