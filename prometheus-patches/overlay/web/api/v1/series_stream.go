// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"context"
	"errors"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promguard/reads"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// seriesStream is the data of an answer that lists series: it selects them when
// it is encoded.
type seriesStream struct {
	ctx         context.Context
	querier     storage.Querier
	hints       storage.SelectHints
	matcherSets [][]*labels.Matcher
	limit       int // 0: none.
}

// streamSeries returns the series of a limited read request, or nil for any
// other. The querier must stay open until the answer is encoded.
//
// With several matcher sets upstream sorts each selection to find duplicates. A
// stream does without, because a series is a duplicate if and only if an earlier
// set matches it: so the first byte need not wait for the sort, and the series
// come in the order of the sets.
func (api *API) streamSeries(ctx context.Context, q storage.Querier, hints *storage.SelectHints, matcherSets [][]*labels.Matcher, limit int) any {
	if reads.FromContext(ctx) == nil || slices.ContainsFunc(api.codecs, func(c Codec) bool { return c != Codec(JSONCodec{}) }) {
		return nil
	}
	s := &seriesStream{ctx: ctx, querier: q, hints: *hints, matcherSets: matcherSets, limit: limit}
	if len(matcherSets) > 1 {
		s.hints.Limit = 0 // The storage does not know which are duplicates.
	}
	return s
}

// each calls f for every series until it returns false.
func (s *seriesStream) each(f func(labels.Labels) bool) (warnings annotations.Annotations, err error) {
	for i, matchers := range s.matcherSets {
		set := s.querier.Select(s.ctx, false, &s.hints, matchers...)
		more := true
		for more && set.Next() {
			l := set.At().Labels()
			more = matchesAny(s.matcherSets[:i], l) || f(l)
		}
		warnings.Merge(set.Warnings())
		if err := set.Err(); err != nil || !more {
			return warnings, err
		}
	}
	return warnings, nil
}

// matchesAny says whether the labels match all matchers of one of the sets.
func matchesAny(matcherSets [][]*labels.Matcher, l labels.Labels) bool {
	return slices.ContainsFunc(matcherSets, func(matchers []*labels.Matcher) bool {
		return !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(l.Get(m.Name)) })
	})
}

// errLimit is upstream's warning about limit=.
var errLimit = errors.New("results truncated due to limit")

// series encodes the series as they are selected, as many as the limits allow.
func (e *streamEncoder) series(s *seriesStream) error {
	var selectErr error
	err := writeArray(e, func(yield func(int, labels.Labels) bool) {
		n := 0
		warnings, err := s.each(func(l labels.Labels) bool {
			if s.limit > 0 && n >= s.limit {
				e.warnings = append(e.warnings, errLimit.Error())
				return false
			}
			if e.full(n) || !yield(n, l) {
				return false
			}
			n++
			return true
		})
		warn, _ := warnings.AsStrings("", 10, 10)
		e.warnings = append(e.warnings, warn...)
		selectErr = err
	}, func(l labels.Labels) { marshalLabelsJSON(l, e.stream) })
	return errors.Join(err, selectErr)
}
