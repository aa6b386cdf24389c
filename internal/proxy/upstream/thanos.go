// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promguard/promguard/internal/querylimit"
)

// thanosStores is what Thanos Query says of those behind it, by what they are.
type thanosStores map[string][]struct {
	LabelSets []map[string]string
	MinTime   int64 // of what it has, in milliseconds
}

// servers is how many servers tell their series. Each has its labels; a bucket, which has
// those of many, tells none.
func (s thanosStores) servers() (n int) {
	for component, list := range s {
		for _, store := range list {
			if component != "store" {
				n += len(store.LabelSets)
			}
		}
	}
	return max(n, 1)
}

// oldest is the first sample that any of them has; zero if one does not tell.
func (s thanosStores) oldest() time.Time {
	oldest := int64(math.MaxInt64)
	for _, list := range s {
		for _, store := range list {
			oldest = min(oldest, store.MinTime)
		}
	}
	if oldest <= 0 || oldest >= maxSeconds*1000 {
		return time.Time{}
	}
	return time.UnixMilli(oldest)
}

// askThanos asks Thanos Query for the series of all servers behind it, which is what a query
// reads: those of each replica count. A query is in the memory of Thanos Query.
func (p *Pool) askThanos(ctx context.Context, s *Server) (*querylimit.Head, error) {
	status, err := ask[tsdbStatus](ctx, p, s, "status/tsdb", "limit="+strconv.Itoa(headEntries))
	switch {
	case err != nil:
		return nil, err
	case status.Data.HeadStats.NumSeries == 0:
		return nil, errors.New("no server behind it tells its series")
	case len(status.Warnings) > 0 && p.Head() != nil: // Who is away comes back, and is read then.
		return nil, fmt.Errorf("not all behind it tell their series: %s", status.Warnings[0])
	}
	stores, err := ask[thanosStores](ctx, p, s, "stores", "")
	if err != nil {
		return nil, err
	}
	runtime, err := ask[struct{ GOMEMLIMIT int64 }](ctx, p, s, "status/runtimeinfo", "")
	if err != nil {
		return nil, err
	}
	h := status.Data.merged(stores.Data.servers())
	h.Oldest, h.Interval = stores.Data.oldest(), min(usualInterval, p.Assumed().SubqueryStep)
	if limit := runtime.Data.GOMEMLIMIT; limit < math.MaxInt64 {
		h.Memory = limit
	}
	return h, nil
}

// merged is head of lists that Thanos Query adds up, of so many servers. Each may have left
// out what is smaller than its last, which is no more than the last of the sum: this is also
// missing where others list the value. How many values a label has, Thanos does not add up:
// it is the most that one server has, or nothing. What stands for the bytes of a label is
// added, and is their number at least.
func (t *tsdbStatus) merged(servers int) *querylimit.Head {
	h := t.head()
	full := h.UnlistedValue > 0
	for label, values := range h.Counts {
		last := h.UnlistedValue
		if label == labels.MetricName {
			last = h.UnlistedMetric
		}
		for value := range values {
			values[value] += last * (servers - 1)
		}
		if !full {
			h.Values[label] = len(values)
		}
	}
	h.UnlistedMetric, h.UnlistedValue = servers*h.UnlistedMetric, servers*h.UnlistedValue
	if full {
		for _, label := range t.MemoryInBytesByLabelName {
			if n := h.Values[label.Name] * servers; n == 0 || label.Value < n {
				h.Values[label.Name] = label.Value
			} else {
				h.Values[label.Name] = n
			}
		}
	}
	return h
}
