// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package datadir

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// Sampled is a series with its last values, the oldest first: one or more floats.
type Sampled struct {
	Labels labels.Labels
	Values []float64

	last int64 // when the last value was
}

// alive is how long before the end of the log a series must have had a sample.
const alive = 5 * time.Minute

// Sample returns one of so many series that are alive at the end of the log, with so many
// values each at most: always the same ones. Series of native histograms are left out.
func (d *Dir) Sample(ctx context.Context, every, values int) ([]Sampled, error) {
	segments, err := d.walSegments()
	if err != nil {
		return nil, err
	}
	s := sampler{every: uint64(max(1, every)), values: values, byHash: map[uint64]*Sampled{}, byRef: map[chunks.HeadSeriesRef]*Sampled{}}
	if _, err = read(ctx, segments, true, s.see); err != nil && ctx.Err() != nil {
		return nil, err
	}
	// Else the log is corrupt from there on, and its replay ends there, too.
	return s.alive(), nil
}

type sampler struct {
	every  uint64
	values int
	byHash map[uint64]*Sampled
	byRef  map[chunks.HeadSeriesRef]*Sampled
	end    int64
}

// see looks at a record.
func (s *sampler) see(r *reader) {
	for _, of := range r.series {
		hash := of.Labels.Hash()
		if hash%s.every != 0 {
			continue
		}
		if s.byHash[hash] == nil {
			s.byHash[hash] = &Sampled{Labels: of.Labels}
		}
		s.byRef[of.Ref] = s.byHash[hash] // After a restart it may have another one.
	}
	for _, of := range r.samples {
		s.end = max(s.end, of.T)
		series := s.byRef[of.Ref]
		if series == nil || of.T <= series.last {
			continue
		}
		if len(series.Values) == s.values {
			series.Values = slices.Delete(series.Values, 0, 1)
		}
		series.Values, series.last = append(series.Values, of.V), of.T
	}
}

func (s *sampler) alive() []Sampled {
	var all []Sampled
	for _, of := range s.byHash {
		if n := len(of.Values); n > 0 && of.last > s.end-alive.Milliseconds() && !value.IsStaleNaN(of.Values[n-1]) {
			of.Values = slices.DeleteFunc(of.Values, value.IsStaleNaN)
			all = append(all, *of)
		}
	}
	slices.SortFunc(all, func(a, b Sampled) int { return labels.Compare(a.Labels, b.Labels) })
	return all
}
