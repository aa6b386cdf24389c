// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promguard/reads"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/index"
)

func refs(n int) []storage.SeriesRef {
	out := make([]storage.SeriesRef, n)
	for i := range out {
		out[i] = storage.SeriesRef(i + 1)
	}
	return out
}

// limited returns the context of a limited read request.
func limited(t *testing.T, limits reads.Limits) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.Context())
	_, ctx, remove := reads.NewTable(reads.NewBudget(4<<20)).Add(ctx, reads.Info{}, limits)
	t.Cleanup(remove)
	return ctx, cancel
}

// selected returns the postings of a selection of n series.
func selected(ctx context.Context, n int, hints *storage.SelectHints) index.Postings {
	p := selectWithin(ctx, index.NewListPostings(refs(n)), hints, nil, nil)
	p.(*boundPostings).again = func() (index.Postings, error) { return index.NewListPostings(refs(n)), nil }
	return p
}

func TestPostingsWithinGivesTheSamePostings(t *testing.T) {
	ctx, cancel := limited(t, reads.Limits{})
	defer cancel()
	for _, n := range []int{0, 1, checkPostingsEvery, 3*checkPostingsEvery + 1} {
		got, err := index.ExpandPostings(postingsWithin(ctx, index.NewListPostings(refs(n))))
		require.NoError(t, err)
		require.Len(t, got, n)
		for i, ref := range got {
			require.EqualValues(t, i+1, ref)
		}
	}
	p := postingsWithin(ctx, index.NewListPostings(refs(10)))
	require.True(t, p.Seek(7))
	require.EqualValues(t, 7, p.At())
}

func TestPostingsWithinEndSoonAfterTheClientHasLeft(t *testing.T) {
	for name, next := range map[string]func(index.Postings, int) bool{
		"next": func(p index.Postings, _ int) bool { return p.Next() },
		"seek": func(p index.Postings, i int) bool { return p.Seek(storage.SeriesRef(i)) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := limited(t, reads.Limits{})
			p := postingsWithin(ctx, index.NewListPostings(refs(100*checkPostingsEvery)))
			require.True(t, next(p, 1))
			cancel()
			i := 2
			for next(p, i) {
				i++
			}
			require.LessOrEqual(t, i, checkPostingsEvery+2)
			require.ErrorIs(t, p.Err(), context.Canceled)
			require.False(t, next(p, i+1), "ended postings stay ended")
		})
	}
}

func TestSortWithinStopsAfterTheClientHasLeft(t *testing.T) {
	ctx, cancel := limited(t, reads.Limits{})
	defer cancel()
	series := make([]*memSeries, 0, 50000)
	for i := range cap(series) {
		series = append(series, &memSeries{lset: labels.FromStrings("i", strconv.Itoa((i*7919)%cap(series)))})
	}
	want := slices.Clone(series)
	slices.SortFunc(want, compareLabels)

	got := slices.Clone(series)
	require.NoError(t, sortWithin(postingsWithin(ctx, index.EmptyPostings()), got))
	require.Equal(t, want, got)
	got = slices.Clone(series)
	require.NoError(t, sortWithin(index.EmptyPostings(), got))
	require.Equal(t, want, got)

	cancel()
	p := postingsWithin(ctx, index.EmptyPostings())
	require.ErrorIs(t, sortWithin(p, slices.Clone(series)), context.Canceled)
}

func TestSelectionThatWillNotFitIsRefusedBeforeItIsRead(t *testing.T) {
	for _, tc := range []struct {
		n    int
		fits bool
	}{{n: countAfter, fits: true}, {n: countAfter + 1, fits: true}, {n: 4096 * 30 / 5, fits: true}, {n: 1 << 20}} {
		ctx, cancel := limited(t, reads.Limits{SeriesBytes: 64}) // Half of 4 MiB holds 26,214 of 80 bytes.
		defer cancel()
		p := selected(ctx, tc.n, nil)
		read := 0
		for p.Next() {
			read++
		}
		if tc.fits {
			require.NoError(t, p.Err())
			require.Equal(t, tc.n, read)
			continue
		}
		require.Equal(t, countAfter, read)
		require.Equal(t, reads.ReasonTooLarge, reads.Stopped(ctx).Reason)
	}
}

func TestSortValuesWithinSortsUntilTheClientHasLeft(t *testing.T) {
	values := make([]string, 50000)
	for i := range values {
		values[i] = strconv.Itoa((i * 7919) % len(values))
	}
	want := slices.Sorted(slices.Values(values))
	ctx, cancel := limited(t, reads.Limits{})
	for _, ctx := range []context.Context{ctx, t.Context()} {
		got := slices.Clone(values)
		require.NoError(t, sortValuesWithin(ctx, got))
		require.Equal(t, want, got)
	}
	cancel()
	require.ErrorIs(t, sortValuesWithin(ctx, values), context.Canceled)
}

func TestValuesAtTheLimitOfAnAnswerAreTheFirstInOrder(t *testing.T) {
	db := newTestDB(t)
	app := db.Appender(t.Context())
	for _, v := range []string{"z", "y", "x", "w", "c", "b", "a"} {
		_, err := app.Append(0, labels.FromStrings(labels.MetricName, "m", "v", v), 1000, 1)
		require.NoError(t, err)
	}
	require.NoError(t, app.Commit())
	ctx, cancel := limited(t, reads.Limits{MaxResults: 2})
	defer cancel()
	for _, matchers := range [][]*labels.Matcher{
		nil,
		{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, "m")},
		{labels.MustNewMatcher(labels.MatchRegexp, "v", ".+")},
	} {
		for _, tc := range []struct {
			ctx   context.Context
			limit int
			want  []string
		}{
			{ctx: ctx, limit: 3, want: []string{"a", "b", "c"}},
			{ctx: ctx, limit: 2, want: []string{"y", "z"}}, // The client's own: as upstream cuts.
			{ctx: t.Context(), limit: 3, want: []string{"x", "y", "z"}},
		} {
			q, err := db.Querier(0, 2000)
			require.NoError(t, err)
			got, _, err := q.LabelValues(tc.ctx, "v", &storage.LabelHints{Limit: tc.limit}, matchers...)
			require.NoError(t, err)
			require.Equal(t, tc.want, got, "%s %d", matchers, tc.limit)
			require.NoError(t, q.Close())
		}
	}
}

func TestPostingsWithinLeavesAllOtherContextsAlone(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	p := index.NewListPostings(refs(3))
	require.Same(t, p, postingsWithin(ctx, p))
}

func TestSelectWithinStopsAReadThatNeedsMoreMemoryThanItMayHave(t *testing.T) {
	const n = 10 * checkPostingsEvery
	for _, tc := range []struct {
		name   string
		limits reads.Limits
		hints  *storage.SelectHints
		stops  bool
	}{
		{name: "nothing is held", hints: &storage.SelectHints{Start: 0, End: 1e6, Step: 1}},
		{name: "instant", limits: reads.Limits{SeriesBytes: 1}, hints: &storage.SelectHints{}},
		{name: "many bytes per series", limits: reads.Limits{SeriesBytes: 4096}, stops: true},
		{name: "many points", limits: reads.Limits{SeriesBytes: 1}, hints: &storage.SelectHints{Start: 0, End: 10000, Step: 10}, stops: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx, cancel := limited(t, tc.limits)
			defer cancel()
			got, err := index.ExpandPostings(selected(ctx, n, tc.hints))
			if tc.stops {
				require.ErrorContains(t, err, reads.BudgetFlag)
				require.Equal(t, reads.ReasonTooLarge, reads.Stopped(ctx).Reason)
				return
			}
			require.NoError(t, err)
			require.Len(t, got, n)
		})
	}
}

func TestSelectionIsAccountedForToItsLastSeries(t *testing.T) {
	for _, n := range []int{1, checkPostingsEvery - 1, checkPostingsEvery, 3*checkPostingsEvery + 1} {
		table := reads.NewTable(reads.NewBudget(1 << 30))
		_, ctx, remove := table.Add(t.Context(), reads.Info{}, reads.Limits{SeriesBytes: 84})
		_, err := index.ExpandPostings(selected(ctx, n, nil))
		require.NoError(t, err)
		read := table.List()[0]
		require.EqualValues(t, n, read.Series)
		require.EqualValues(t, 100*n, read.ReservedBytes)
		remove()
	}
}

func TestSelectionsPointsAreThoseOfTheStepsOrOfARangeThatStandsAlone(t *testing.T) {
	db := newTestDB(t)
	app := db.Appender(t.Context())
	for _, ts := range []int64{0, 60_000} {
		_, err := app.Append(0, labels.FromStrings("__name__", "m"), ts, 1)
		require.NoError(t, err)
	}
	require.NoError(t, app.Commit())
	head, err := db.Head().Index()
	require.NoError(t, err)
	for _, tc := range []struct {
		name  string
		hints *storage.SelectHints
		index IndexReader
		want  int64
	}{
		{name: "no hints", want: 1},
		{name: "instant", hints: &storage.SelectHints{End: 1e6}, want: 1},
		{name: "steps", hints: &storage.SelectHints{End: 600_000, Step: 1000}, want: 601},
		{name: "steps in the head alone", hints: &storage.SelectHints{Start: -600_000, End: 600_000, Step: 1000}, index: head, want: 61},
		{name: "steps beside the head", hints: &storage.SelectHints{Start: 100_000, End: 600_000, Step: 1000}, index: head, want: 1},
		{name: "range selector", hints: &storage.SelectHints{End: 600_000, Range: 600_000}, want: 40},
		{name: "function over a range", hints: &storage.SelectHints{End: 600_000, Range: 600_000, Func: "rate"}, want: 1},
	} {
		require.Equal(t, tc.want, pointsOf(tc.hints, tc.index), tc.name)
	}
}
