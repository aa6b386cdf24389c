// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"context"
	"errors"
	"hash/maphash"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
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
// stream remembers which series it has sent: so the first byte need not wait for
// the sort, and the series come in the order of the sets. That an earlier set
// matches a series does not say that it was sent: remote storage may have failed
// for that set, and takes external labels off unless a selector names them.
func (api *API) streamSeries(ctx context.Context, q storage.Querier, hints *storage.SelectHints, matcherSets [][]*labels.Matcher, limit int) any {
	if storage.ReadAccountFrom(ctx) == nil || slices.ContainsFunc(api.codecs, func(c Codec) bool { return c != Codec(JSONCodec{}) }) {
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
	// Remote storage asks for all selections before the first is read.
	sets := make([]storage.SeriesSet, len(s.matcherSets))
	for i, matchers := range s.matcherSets {
		sets[i] = s.querier.Select(s.ctx, false, &s.hints, matchers...)
	}
	sent := sentSeries{seed: maphash.MakeSeed(), series: map[[2]uint64]struct{}{}}
	for i, set := range sets {
		more := true
		for more && set.Next() {
			l := set.At().Labels()
			if len(sets) > 1 {
				isNew, err := sent.add(s.ctx, l, i < len(sets)-1)
				if err != nil {
					return warnings, err
				}
				if !isNew {
					continue
				}
			}
			more = f(l)
		}
		warnings.Merge(set.Warnings())
		if err := set.Err(); err != nil || !more {
			return warnings, err
		}
	}
	return warnings, nil
}

// sentSeries knows series by two hashes of their labels. One has a seed that
// nobody knows, so that no labels can be made that collide in both; by chance, two
// of a million series do so once in 10^26 answers.
type sentSeries struct {
	seed   maphash.Seed
	series map[[2]uint64]struct{}
	told   int // Series that the account was told of.
	buf    []byte
}

const (
	// sentSeriesBytes is what a series takes in the map when it has just grown.
	sentSeriesBytes = 48
	// sentSeriesBatch is of how many series the account is told at a time.
	sentSeriesBatch = 1024
)

// add says whether the series is new, and remembers it if asked to. It fails if
// the request cannot have the memory.
func (s *sentSeries) add(ctx context.Context, l labels.Labels, remember bool) (isNew bool, err error) {
	s.buf = l.Bytes(s.buf)
	key := [2]uint64{l.Hash(), maphash.Bytes(s.seed, s.buf)}
	if _, ok := s.series[key]; ok || !remember {
		return !ok, nil
	}
	if len(s.series) == s.told {
		if err := storage.ReadAccountFrom(ctx).Use(sentSeriesBatch * sentSeriesBytes); err != nil {
			return false, err
		}
		s.told += sentSeriesBatch
	}
	s.series[key] = struct{}{}
	return true, nil
}

// errLimit is upstream's warning about limit=.
var errLimit = errors.New("results truncated due to limit")

// series encodes the series as they are selected.
func (e *streamEncoder) series(s *seriesStream) error {
	var selectErr error
	err := writeArray(e, func(yield func(int, labels.Labels) bool) {
		n := 0
		warnings, err := s.each(func(l labels.Labels) bool {
			if s.limit > 0 && n >= s.limit {
				e.warnings = append(e.warnings, errLimit.Error())
				return false
			}
			n++
			return yield(n-1, l)
		})
		warn, _ := warnings.AsStrings("", 10, 10)
		e.warnings = append(e.warnings, warn...)
		selectErr = err
	}, func(l labels.Labels) { marshalLabelsJSON(l, e.stream) })
	return errors.Join(err, selectErr)
}
