// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/accounttest"
	"github.com/prometheus/prometheus/tsdb/index"
	"github.com/prometheus/prometheus/util/annotations"
)

func refs(n int) []storage.SeriesRef {
	out := make([]storage.SeriesRef, n)
	for i := range out {
		out[i] = storage.SeriesRef(i + 1)
	}
	return out
}

// counted returns the context of a read that is counted.
func counted(t *testing.T, bounds storage.ReadBounds) (*accounttest.Account, context.Context) {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return accounttest.New(ctx, bounds)
}

// bound returns the postings as a selection of a read returns them.
func bound(ctx context.Context, p index.Postings) index.Postings {
	return (&boundIndex{ctx: ctx, account: storage.ReadAccountFrom(ctx), selections: storage.CountSelection(ctx)}).selected(p)
}

// manySeries returns a database of n series.
func manySeries(t *testing.T, n int) *DB {
	db := newTestDB(t)
	app := db.Appender(t.Context())
	for i := range n {
		_, err := app.Append(0, labels.FromStrings("__name__", "m", "i", strconv.Itoa(i*7919%n)), 1000, 1)
		require.NoError(t, err)
	}
	require.NoError(t, app.Commit())
	return db
}

// selectAll returns how many series a selection has, and its error.
func selectAll(ctx context.Context, t *testing.T, db *DB, sorted bool, hints *storage.SelectHints) (int, error) {
	q, err := db.Querier(0, 2000)
	require.NoError(t, err)
	defer q.Close()
	set := q.Select(ctx, sorted, hints, labels.MustNewMatcher(labels.MatchRegexp, "i", ".+"))
	n := 0
	for set.Next() {
		n++
	}
	return n, set.Err()
}

func TestPostingsWithinGivesTheSamePostings(t *testing.T) {
	_, ctx := counted(t, storage.ReadBounds{})
	for _, n := range []int{0, 1, checkPostingsEvery, 3*checkPostingsEvery + 1} {
		got, err := index.ExpandPostings(bound(ctx, index.NewListPostings(refs(n))))
		require.NoError(t, err)
		require.Len(t, got, n)
		for i, ref := range got {
			require.EqualValues(t, i+1, ref)
		}
	}
	p := bound(ctx, index.NewListPostings(refs(10)))
	require.True(t, p.Seek(7))
	require.EqualValues(t, 7, p.At())
}

func TestPostingsWithinEndSoonAfterTheClientHasLeft(t *testing.T) {
	for name, next := range map[string]func(index.Postings, int) bool{
		"next": func(p index.Postings, _ int) bool { return p.Next() },
		"seek": func(p index.Postings, i int) bool { return p.Seek(storage.SeriesRef(i)) },
	} {
		t.Run(name, func(t *testing.T) {
			account, ctx := counted(t, storage.ReadBounds{})
			p := bound(ctx, index.NewListPostings(refs(100*checkPostingsEvery)))
			require.True(t, next(p, 1))
			account.Stop(errStopped)
			i := 2
			for next(p, i) {
				i++
			}
			require.LessOrEqual(t, i, checkPostingsEvery+2)
			require.ErrorIs(t, p.Err(), errStopped)
			require.False(t, next(p, i+1), "ended postings stay ended")
		})
	}
}

var errStopped = errors.New("stopped")

func TestSelectionsOfAReadAreThoseOfUpstream(t *testing.T) {
	db := manySeries(t, 3000)
	for _, seriesBytes := range []int64{0, 100} {
		for _, hints := range []*storage.SelectHints{nil, {Start: 0, End: 2000}, {Start: 0, End: 2000, Func: "series"}} {
			_, ctx := counted(t, storage.ReadBounds{SeriesBytes: seriesBytes})
			for _, sorted := range []bool{false, true} {
				q, err := db.Querier(0, 2000)
				require.NoError(t, err)
				all := labels.MustNewMatcher(labels.MatchRegexp, "i", ".+")
				want := labelsOf(t, q.Select(t.Context(), sorted, hints, all))
				require.Len(t, want, 3000)
				require.Equal(t, want, labelsOf(t, q.Select(ctx, sorted, hints, all)))
				require.NoError(t, q.Close())
			}
		}
	}
}

func TestSortStopsAfterTheClientHasLeft(t *testing.T) {
	db := manySeries(t, 20_000)
	account, ctx := counted(t, storage.ReadBounds{})
	stopAt := 0
	account.OnYield = func() {
		if account.Yields == stopAt {
			account.Stop(errStopped)
		}
	}
	n, err := selectAll(ctx, t, db, true, nil)
	require.NoError(t, err)
	require.Equal(t, 20_000, n)
	whole := account.Yields

	account, ctx = counted(t, storage.ReadBounds{})
	// The values are matched, and the series drained, in 157 pieces; then they are sorted.
	stopAt = 200
	account.OnYield = func() {
		if account.Yields == stopAt {
			account.Stop(errStopped)
		}
	}
	n, err = selectAll(ctx, t, db, true, nil)
	require.ErrorIs(t, err, errStopped)
	require.Zero(t, n)
	require.Less(t, account.Yields, stopAt+10)
	require.Greater(t, whole, 2*stopAt)
}

func TestSelectionIsExpectedBeforeItsFirstSeriesIsRead(t *testing.T) {
	const n = 3*checkPostingsEvery + 1
	db := manySeries(t, n)
	for _, sorted := range []bool{false, true} {
		account, ctx := counted(t, storage.ReadBounds{SeriesBytes: 84})
		q, err := db.Querier(0, 2000)
		require.NoError(t, err)
		all := labels.MustNewMatcher(labels.MatchRegexp, "i", ".+")
		first, second := q.Select(ctx, sorted, nil, all), q.Select(ctx, sorted, nil, all)
		require.EqualValues(t, 2*n*100, account.Expected)
		require.Zero(t, account.Begun)
		for _, set := range []storage.SeriesSet{first, second} {
			require.Len(t, labelsOf(t, set), n)
		}
		require.EqualValues(t, 2*n*100, account.ExpectedBegun)
		require.EqualValues(t, 2*n, account.Series, "to the last")
		require.GreaterOrEqual(t, account.Used, int64(2*n*84))
		require.Less(t, account.Used, int64(2*n*(84+4*refBytes)))
		require.NoError(t, q.Close())
	}
}

func TestSelectionThatIsTooLargeIsRefusedBeforeItIsRead(t *testing.T) {
	db := manySeries(t, 2000)
	account, ctx := counted(t, storage.ReadBounds{SeriesBytes: 84})
	account.MaxExpected = 2000*100 - 1
	n, err := selectAll(ctx, t, db, false, nil)
	require.ErrorIs(t, err, accounttest.ErrRefused)
	require.Zero(t, n)
}

func TestSelectionThatTakesTooMuchIsStopped(t *testing.T) {
	db := manySeries(t, 2000)
	for _, most := range []int64{1000, 2000*(listBytes+refBytes) + 500*1000} {
		account, ctx := counted(t, storage.ReadBounds{SeriesBytes: 1000})
		account.MaxUsed = most
		n, err := selectAll(ctx, t, db, false, nil)
		require.ErrorIs(t, err, accounttest.ErrRefused)
		require.Less(t, n, 2000)
	}
}

func TestSelectionOfAShardThatIsStoppedIsAnError(t *testing.T) {
	db := manySeries(t, 2000)
	account, ctx := counted(t, storage.ReadBounds{})
	account.MaxUsed = 1000
	_, err := selectAll(ctx, t, db, true, &storage.SelectHints{Start: 0, End: 2000, ShardCount: 2})
	require.ErrorIs(t, err, accounttest.ErrRefused)
}

func TestListsOfSeriesAreNotCounted(t *testing.T) {
	db := manySeries(t, 2000)
	account, ctx := counted(t, storage.ReadBounds{SeriesBytes: 84})
	n, err := selectAll(ctx, t, db, false, &storage.SelectHints{Start: 0, End: 2000, Func: "series"})
	require.NoError(t, err)
	require.Equal(t, 2000, n)
	require.Zero(t, account.Expected)
	require.EqualValues(t, 2000*listBytes, account.Used)
}

func TestSelectionOfAnyOtherContextIsUpstreams(t *testing.T) {
	head := manySeries(t, 3).Head()
	ir, err := head.Index()
	require.NoError(t, err)
	_, same, err := selectWithin(t.Context(), ir, nil, []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, "i", "1")})
	require.NoError(t, err)
	require.Same(t, ir, same)
}

func TestLabelValuesAreSortedUntilTheClientHasLeft(t *testing.T) {
	db := manySeries(t, 20_000)
	q, err := db.Querier(0, 2000)
	require.NoError(t, err)
	defer q.Close()
	want, _, err := q.LabelValues(t.Context(), "i", nil)
	require.NoError(t, err)
	account, ctx := counted(t, storage.ReadBounds{})
	got, _, err := q.LabelValues(ctx, "i", nil)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.EqualValues(t, 20_000*storage.ListElementBytes, account.Used)
	account.Stop(errStopped)
	_, _, err = q.LabelValues(ctx, "i", nil)
	require.ErrorIs(t, err, errStopped)
}

func TestListsOfLabelsWithMatchersAreThoseOfUpstreamAndEndWithTheClient(t *testing.T) {
	const n = 20_000
	db := manySeries(t, n)
	q, err := db.Querier(0, 2000)
	require.NoError(t, err)
	defer q.Close()
	// Three matchers, of which one is left by the values of its own label.
	matchers := []*labels.Matcher{
		labels.MustNewMatcher(labels.MatchRegexp, "i", "1.*|2.*"), labels.MustNewMatcher(labels.MatchEqual, "__name__", "m"), labels.MustNewMatcher(labels.MatchNotEqual, "i", "11"),
	}
	for name, list := range map[string]func(ctx context.Context) ([]string, error){
		"names": func(ctx context.Context) ([]string, error) {
			l, _, err := q.LabelNames(ctx, nil, matchers...)
			return l, err
		},
		"values": func(ctx context.Context) ([]string, error) {
			l, _, err := q.LabelValues(ctx, "i", nil, matchers...)
			return l, err
		},
		"value": func(ctx context.Context) ([]string, error) {
			l, _, err := q.LabelValues(ctx, "__name__", nil, matchers...)
			return l, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			want, err := list(t.Context())
			require.NoError(t, err)
			require.NotEmpty(t, want)
			account, ctx := counted(t, storage.ReadBounds{})
			got, err := list(ctx)
			require.NoError(t, err)
			require.Equal(t, want, got)
			whole := account.Yields
			require.Greater(t, whole, n/2/checkPostingsEvery)

			for stopAt := range whole {
				account, ctx := counted(t, storage.ReadBounds{})
				account.OnYield = func() {
					if account.Yields == stopAt+1 {
						account.Stop(errStopped)
					}
				}
				_, err := list(ctx)
				require.ErrorIs(t, err, errStopped, stopAt)
				require.LessOrEqual(t, account.Yields, stopAt+2)
			}
		})
	}
}

// What is merged of many selections takes as many steps for each series.
func TestSelectionsThatAreMergedLookAtTheContextForAllOfThem(t *testing.T) {
	const selections = 64
	db := manySeries(t, 512)
	q, err := db.Querier(0, 2000)
	require.NoError(t, err)
	defer q.Close()
	account, ctx := counted(t, storage.ReadBounds{})
	sets := make([]storage.SeriesSet, selections)
	for i := range sets {
		sets[i] = q.Select(ctx, true, nil, labels.MustNewMatcher(labels.MatchRegexp, "i", ".+"))
	}
	set := storage.NewMergeSeriesSet(sets, 0, storage.ChainedSeriesMerge)
	for range 10 {
		require.True(t, set.Next())
	}
	account.Stop(errStopped)
	n := 0
	for set.Next() {
		n++
	}
	require.ErrorIs(t, set.Err(), errStopped)
	require.LessOrEqual(t, n, checkPostingsEvery/selections+1)
}

func TestListsOfNamesAndValuesAreWholeAndToldToTheAccount(t *testing.T) {
	db := newTestDB(t)
	app := db.Appender(t.Context())
	const n = 1000
	for i := range n {
		_, err := app.Append(0, labels.FromStrings(labels.MetricName, "m", fmt.Sprintf("name_%d", i), "x", "v", strconv.Itoa(i)), 1000, 1)
		require.NoError(t, err)
	}
	require.NoError(t, app.Commit())
	for _, matchers := range [][]*labels.Matcher{
		nil,
		{labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, "m")},
		{labels.MustNewMatcher(labels.MatchRegexp, "v", ".+")},
	} {
		for name, list := range map[string]func(context.Context, storage.Querier) ([]string, annotations.Annotations, error){
			"values": func(ctx context.Context, q storage.Querier) ([]string, annotations.Annotations, error) {
				return q.LabelValues(ctx, "v", nil, matchers...)
			},
			"names": func(ctx context.Context, q storage.Querier) ([]string, annotations.Annotations, error) {
				return q.LabelNames(ctx, nil, matchers...)
			},
		} {
			q, err := db.Querier(0, 2000)
			require.NoError(t, err)
			want, _, err := list(t.Context(), q)
			require.NoError(t, err)
			account, ctx := counted(t, storage.ReadBounds{})
			got, _, err := list(ctx, q)
			require.NoError(t, err)
			require.Equal(t, want, got)
			require.GreaterOrEqual(t, len(got), n)
			require.EqualValues(t, len(got)*storage.ListElementBytes, account.Used, "%s %s", name, matchers)

			account, ctx = counted(t, storage.ReadBounds{})
			account.MaxUsed = int64(len(got)*storage.ListElementBytes) - 1
			_, _, err = list(ctx, q)
			require.ErrorIs(t, err, accounttest.ErrRefused)
			require.NoError(t, q.Close())
		}
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
