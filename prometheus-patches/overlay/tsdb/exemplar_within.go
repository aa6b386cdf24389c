// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"context"
	"slices"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
)

// exemplarQuerier selects from the series that have exemplars when it begins, and
// ends with its context. It holds the storage's lock, which every scrape with
// exemplars waits for, for a few series at a time: each has its exemplars of one
// moment, but not all have those of the same one.
type exemplarQuerier struct {
	storage *CircularExemplarStorage
	ctx     context.Context
}

// exemplarSeriesEvery is for how many series the lock is held, and how many are
// looked at between two looks at the context.
const exemplarSeriesEvery = 256

func (q exemplarQuerier) Select(start, end int64, matchers ...[]*labels.Matcher) ([]exemplar.QueryResult, error) {
	series := q.matching(matchers)
	q.sort(series)
	results := make([]exemplar.QueryResult, 0)
	for chunk := range slices.Chunk(series, exemplarSeriesEvery) {
		if q.ctx.Err() != nil {
			break
		}
		results = q.storage.appendExemplars(results, start, end, chunk)
	}
	if q.ctx.Err() != nil {
		return nil, context.Cause(q.ctx)
	}
	return results, nil
}

// matching returns the labels of the series that match one of the sets, or of some
// if the context ends.
func (q exemplarQuerier) matching(matchers [][]*labels.Matcher) []labels.Labels {
	all := q.storage.series()
	matching := all[:0]
	for i, lset := range all {
		if i%exemplarSeriesEvery == 0 && q.ctx.Err() != nil {
			break
		}
		if matchesSomeMatcherSet(lset, matchers) {
			matching = append(matching, lset)
		}
	}
	return matching
}

// sort sorts the series until the context ends: then all are equal, which ends the
// sort in one pass.
func (q exemplarQuerier) sort(series []labels.Labels) {
	compared, ended := 0, false
	slices.SortFunc(series, func(a, b labels.Labels) int {
		if compared++; compared%exemplarSeriesEvery == 0 {
			ended = q.ctx.Err() != nil
		}
		if ended {
			return 0
		}
		return labels.Compare(a, b)
	})
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
