// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"context"
	"unsafe"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promguard/reads"
	"github.com/prometheus/prometheus/storage"
)

// What exemplars take in the result of a selection, without their labels, which
// are the storage's own.
const (
	exemplarSeriesBytes = int64(unsafe.Sizeof(exemplar.QueryResult{}))
	exemplarBytes       = int64(unsafe.Sizeof(exemplar.Exemplar{}))
)

// querierWithin returns a querier that ends with the context of a limited read
// request, and ce itself for all others.
//
// Upstream matches and sorts all series while it holds the storage's lock,
// which every scrape with exemplars waits for.
func (ce *CircularExemplarStorage) querierWithin(ctx context.Context) storage.ExemplarQuerier {
	r := reads.FromContext(ctx)
	if r == nil {
		return ce
	}
	return &exemplarQuerier{storage: ce, ctx: ctx, read: r}
}

// exemplarQuerier selects from the series that have exemplars when it begins.
// It looks at a few of them at a time: each has its exemplars of one moment, but
// not all have those of the same one.
type exemplarQuerier struct {
	storage *CircularExemplarStorage
	ctx     context.Context
	read    *reads.Read
}

func (q *exemplarQuerier) Select(start, end int64, matchers ...[]*labels.Matcher) ([]exemplar.QueryResult, error) {
	series, err := q.matching(matchers)
	if err != nil {
		return nil, err
	}
	if err := reads.SortFunc(q.ctx, series, labels.Compare); err != nil {
		return nil, err
	}
	results := make([]exemplar.QueryResult, 0)
	for len(series) > 0 {
		n := min(len(series), checkPostingsEvery)
		selected := len(results)
		results = q.storage.appendExemplars(results, start, end, series[:n])
		series = series[n:]
		if err := q.account(results[selected:]); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// matching returns the labels of the series that match one of the sets.
func (q *exemplarQuerier) matching(matchers [][]*labels.Matcher) ([]labels.Labels, error) {
	all := q.storage.series()
	if err := q.read.Reserve(q.ctx, int64(len(all))*int64(unsafe.Sizeof(labels.Labels{}))); err != nil {
		return nil, err
	}
	matching := all[:0]
	for i, lset := range all {
		if i%checkPostingsEvery == 0 {
			if err := reads.Yield(q.ctx); err != nil {
				return nil, err
			}
		}
		if matchesSomeMatcherSet(lset, matchers) {
			matching = append(matching, lset)
		}
	}
	return matching, nil
}

// account accounts for results, and waits for the read's turn to go on.
func (q *exemplarQuerier) account(results []exemplar.QueryResult) error {
	size := int64(len(results)) * exemplarSeriesBytes
	for _, r := range results {
		size += int64(cap(r.Exemplars)) * exemplarBytes
	}
	if err := q.read.Reserve(q.ctx, size); err != nil {
		return err
	}
	return reads.Yield(q.ctx)
}

// series returns the labels of all series that have exemplars, in no order.
func (ce *CircularExemplarStorage) series() []labels.Labels {
	ce.lock.RLock()
	defer ce.lock.RUnlock()
	series := make([]labels.Labels, 0, len(ce.index))
	for _, idx := range ce.index {
		series = append(series, idx.seriesLabels)
	}
	return series
}

// appendExemplars appends the exemplars of the series that are from start to
// end, as Select has them. Series that have lost their last one in the meantime
// are left out.
func (ce *CircularExemplarStorage) appendExemplars(results []exemplar.QueryResult, start, end int64, series []labels.Labels) []exemplar.QueryResult {
	var buf [1024]byte
	ce.lock.RLock()
	defer ce.lock.RUnlock()
	for _, lset := range series {
		idx, ok := ce.index[string(lset.Bytes(buf[:]))]
		if !ok || ce.exemplars[idx.newest].exemplar.Ts < start {
			continue
		}
		var found []exemplar.Exemplar
		for i := idx.oldest; i != noExemplar; i = ce.exemplars[i].next {
			e := &ce.exemplars[i].exemplar
			if e.Ts > end {
				break
			}
			if e.Ts >= start {
				found = append(found, *e)
			}
		}
		if len(found) > 0 {
			results = append(results, exemplar.QueryResult{SeriesLabels: idx.seriesLabels, Exemplars: found})
		}
	}
	return results
}
