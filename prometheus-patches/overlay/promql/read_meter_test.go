// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package promql_test

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/accounttest"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
	"github.com/prometheus/prometheus/util/teststorage"
)

const meterSeries = 100

func meterStorage(t testing.TB) *teststorage.TestStorage {
	s := teststorage.New(t)
	app := s.Appender(t.Context())
	for i := range meterSeries {
		for n := range int64(40) {
			_, err := app.Append(0, labels.FromStrings("__name__", "m", "i", fmt.Sprintf("%010d", i)), n*15_000, float64(n))
			require.NoError(t, err)
			_, err = app.AppendHistogram(0, labels.FromStrings("__name__", "h", "i", fmt.Sprintf("%010d", i)), n*15_000, tsdbutil.GenerateTestHistogram(n), nil)
			require.NoError(t, err)
		}
	}
	require.NoError(t, app.Commit())
	return s
}

func meterQuery(ctx context.Context, t testing.TB, s storage.Queryable, maxSamples int, expr string, step time.Duration) *promql.Result {
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: maxSamples, Timeout: time.Hour, LookbackDelta: 5 * time.Minute, EnableAtModifier: true})
	q, err := engine.NewRangeQuery(ctx, s, nil, expr, time.Unix(0, 0), time.Unix(600, 0), step)
	require.NoError(t, err)
	t.Cleanup(q.Close)
	return q.Exec(ctx)
}

var meterExprs = []string{
	`m`, `h`, `m + m`, `sum(m)`, `sum by (i) (m)`, `topk(3, m)`, `rate(m[1m])`, `rate(h[1m])`, `max_over_time(m[2m:15s])`, `m @ 300`, `h @ 300`, `count(m @ 300 + time())`,
	`label_replace(m, "x", "$1", "i", "(.*)")`, `label_join(m, "x", "-", "i", "i")`, `count_values("v", m)`, `quantile(0.5, m)`, `timestamp(m)`, `sort(m)`, `m and m`, `histogram_quantile(0.9, h)`, `1`, `-m`,
}

func TestMeterChangesNeitherResultsNorTheLimitOfSamples(t *testing.T) {
	s := meterStorage(t)
	for _, expr := range meterExprs {
		for _, most := range []int{1, 40_000, 50_000_000} {
			want := meterQuery(t.Context(), t, s, most, expr, time.Second)
			_, ctx := accounttest.New(t.Context(), storage.ReadBounds{SeriesBytes: 1})
			got := meterQuery(ctx, t, s, most, expr, time.Second)
			require.Equal(t, want.Err, got.Err, "%s %d", expr, most)
			require.Equal(t, want.String(), got.String(), "%s %d", expr, most)
		}
	}
}

func TestMeterKeepsTheLimitOfSamplesWhereManyAreAddedAtOnce(t *testing.T) {
	const series = 20_000
	s := teststorage.New(t)
	app := s.Appender(t.Context())
	for i := range series {
		_, err := app.Append(0, labels.FromStrings("__name__", "m", "i", strconv.Itoa(i)), 0, 1)
		require.NoError(t, err)
	}
	require.NoError(t, app.Commit())
	tooFew := sort.Search(10*series, func(n int) bool { return meterQuery(t.Context(), t, s, n, `m + m`, time.Hour).Err == nil }) - 1
	_, ctx := accounttest.New(t.Context(), storage.ReadBounds{SeriesBytes: 1})
	require.ErrorAs(t, meterQuery(ctx, t, s, tooFew, `m + m`, time.Hour).Err, new(promql.ErrTooManySamples))
	require.NoError(t, meterQuery(ctx, t, s, tooFew+1, `m + m`, time.Hour).Err)
}

func TestMeterTellsWhatStepInvariantCopiesTake(t *testing.T) {
	account, ctx := accounttest.New(t.Context(), storage.ReadBounds{})
	require.NoError(t, meterQuery(ctx, t, meterStorage(t), 50_000_000, `count(m @ 300 + time())`, 100*time.Millisecond).Err)
	require.Greater(t, account.Peak, int64(meterSeries*6000*16))
	require.Less(t, account.Used, int64(1<<20), "what is left is the result")
}

func TestMeterCountsAHistogramOnceThatStepsShare(t *testing.T) {
	const histogramBytes, steps, samples = 600, 601, 40 // Of two copies of each.
	s := meterStorage(t)
	for expr, results := range map[string]int64{`h`: 1, `h and h`: 3, `h or h`: 3, `h unless on (j) m{i="x"}`: 2, `h @ 300`: 1, `topk(1, m) or h`: 3} {
		account, ctx := accounttest.New(t.Context(), storage.ReadBounds{})
		require.NoError(t, meterQuery(ctx, t, s, 50_000_000, expr, time.Second).Err)
		once := int64(meterSeries * (steps*16 + samples*histogramBytes + 1000))
		require.Less(t, account.Peak, results*once, expr)
		require.Greater(t, account.Peak, int64(meterSeries*steps*16), expr)
	}
}

func TestMeterStopsAnEvaluationWhereItTakesTooMuch(t *testing.T) {
	s := meterStorage(t)
	for _, expr := range []string{`m`, `m @ 300`, `h @ 300`, `sum by (i) (m)`, `m + m`, `timestamp(m)`, `max_over_time(m[10m:100ms])`} {
		account, ctx := accounttest.New(t.Context(), storage.ReadBounds{})
		account.MaxUsed = 2 << 20
		require.ErrorIs(t, meterQuery(ctx, t, s, 50_000_000, expr, 100*time.Millisecond).Err, accounttest.ErrRefused, expr)
		require.Less(t, account.Peak, int64(3<<20), expr)
	}
}

func TestMeterEndsStepInvariantCopiesWithTheirContext(t *testing.T) {
	account, ctx := accounttest.New(t.Context(), storage.ReadBounds{})
	account.OnYield = func() {
		if account.Used > 4<<20 {
			account.Stop(errors.New("stopped"))
		}
	}
	require.Error(t, meterQuery(ctx, t, meterStorage(t), 50_000_000, `m @ 300`, 100*time.Millisecond).Err)
	require.Less(t, account.Peak, int64(5<<20))
}

func TestMeterRefusesLabelsThatGrowWithoutBound(t *testing.T) {
	s := meterStorage(t)
	nested := `m`
	from := "i"
	for range 6 {
		nested = fmt.Sprintf(`label_replace(%s, "a", "%s", "%s", "(.*)")`, nested, strings.Repeat("$1", 10), from)
		from = "a"
	}
	joined := fmt.Sprintf(`label_join(m, "a", "%s", "i", "i")`, strings.Repeat("x", 100_000))
	name := strings.Repeat("x", 100_000)
	for _, expr := range []string{
		nested, joined, fmt.Sprintf(`label_replace(m, "%s", "x", "i", ".*")`, name), fmt.Sprintf(`label_join(m, "%s", "", "i")`, name),
		fmt.Sprintf(`count_values("%s", m)`, name), fmt.Sprintf(`count_values("%s", h)`, name),
	} {
		account, ctx := accounttest.New(t.Context(), storage.ReadBounds{})
		err := meterQuery(ctx, t, s, 50_000_000, expr, 10*time.Minute).Err
		require.ErrorContains(t, err, "Build shorter labels")
		require.Less(t, account.Peak, int64(16<<20))
	}
	_, ctx := accounttest.New(t.Context(), storage.ReadBounds{})
	require.NoError(t, meterQuery(ctx, t, s, 50_000_000, `label_replace(m, "a", "$1$1$1$1$1$1$1$1$1$1", "i", "(.*)")`, time.Minute).Err)
}

// Upstream finds the labels of a join's results again by those of both its sides, and
// its operands' series by their labels, as texts that it keeps until the end of the join.
func TestMeterTellsOfLabelsThatJoinsAndCountsKeep(t *testing.T) {
	s := meterStorage(t)
	long := strings.Repeat("x", 50_000)
	for expr, least := range map[string]int64{
		fmt.Sprintf(`m * on () group_left (a) absent(n{a="%s"})`, long):                                            2 * 49_000 * meterSeries,
		fmt.Sprintf(`label_replace(m, "a", "%[1]s", "i", ".*") + label_replace(m, "a", "%[1]s", "i", ".*")`, long): 5 * 49_000 * meterSeries,
		fmt.Sprintf(`count_values without () ("v", m + on () group_left (a) absent(n{a="%s"}))`, long):             2 * 49_000 * meterSeries,
		fmt.Sprintf(`count_values without () ("%s", m)`, long):                                                     50_000 * meterSeries,
	} {
		account, ctx := accounttest.New(t.Context(), storage.ReadBounds{})
		require.NoError(t, meterQuery(ctx, t, s, 50_000_000, expr, time.Hour).Err, expr[:20])
		require.Greater(t, account.Peak, least, expr[:20])

		account, ctx = accounttest.New(t.Context(), storage.ReadBounds{})
		account.MaxUsed = 1 << 20
		require.ErrorIs(t, meterQuery(ctx, t, s, 50_000_000, expr, time.Hour).Err, accounttest.ErrRefused, expr[:20])
		require.Less(t, account.Peak, int64(2<<20), expr[:20])
	}
}

func TestAccountExpectsWhatAnEvaluationHolds(t *testing.T) {
	s := meterStorage(t)
	const copies = meterSeries * 6000 * 16 // Of a point at each step.
	for _, tc := range []struct {
		expr        string
		least, most int64
	}{
		{`m`, copies, copies},
		{`sum(m)`, copies, copies},
		{`sum(m) * 2`, copies, copies},
		{`label_replace(m, "a", "b", "i", ".*")`, copies, copies},
		{`rate(m[1m])`, copies, copies},
		{`rate(m[1m]) * 60`, 2 * copies, 2 * copies},
		{`m @ 300`, copies, copies},
		{`count((m @ 300) + time())`, 2 * copies, 2 * copies},
		{`count(m @ 300)`, 0, copies / 2},
		{`count(m @ 300) + time()`, 0, copies / 2},
		{`abs(m @ 300) > 1`, copies, copies},
		{`(m @ 300) + 1 > time()`, 2 * copies, 2 * copies},
		{`max_over_time(((m @ 300) + time())[600s:100ms])`, 2 * copies, 2 * copies},
		{`rate(m[5m] @ 300) > time()`, 2 * copies, 2 * copies},
	} {
		account, ctx := accounttest.New(t.Context(), storage.ReadBounds{SeriesBytes: 1})
		require.NoError(t, meterQuery(ctx, t, s, 50_000_000, tc.expr, 100*time.Millisecond).Err, tc.expr)
		require.GreaterOrEqual(t, account.ExpectedBegun, tc.least*9/10, tc.expr)
		require.LessOrEqual(t, account.ExpectedBegun, tc.most*11/10, tc.expr)
	}
}

// manyMeterSeries is more than are sorted without a look at the context.
const manyMeterSeries = 4000

// manyMeterStorage has series of few values, one sample each, in no order.
func manyMeterStorage(t testing.TB) *teststorage.TestStorage {
	s := teststorage.New(t)
	app := s.Appender(t.Context())
	for i := range manyMeterSeries {
		n := i * 7919 % manyMeterSeries
		lset := labels.FromStrings("__name__", "m", "i", strconv.Itoa(n), "g", strconv.Itoa(n%7), "instance", strconv.Itoa(n), "job", "j")
		_, err := app.Append(0, lset, 0, float64(n%13))
		require.NoError(t, err)
		_, err = app.Append(0, labels.FromStrings("__name__", "target_info", "instance", strconv.Itoa(n), "job", "j", "x", "y"), 0, 1)
		require.NoError(t, err)
	}
	require.NoError(t, app.Commit())
	return s
}

func instantMeterQuery(ctx context.Context, t testing.TB, s storage.Queryable, expr string) *promql.Result {
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 50_000_000, Timeout: time.Hour, LookbackDelta: 5 * time.Minute, Parser: parser.NewParser(parser.Options{EnableExperimentalFunctions: true}),
	})
	q, err := engine.NewInstantQuery(ctx, s, nil, expr, time.Unix(0, 0))
	require.NoError(t, err, expr)
	t.Cleanup(q.Close)
	return q.Exec(ctx)
}

// Each of these goes through its series, or sorts them, at least once more than to
// select them.
var meterLoops = []string{
	`sort(m)`, `sort_desc(m)`, `sort_by_label(m, "g")`, `sort_by_label_desc(m, "g", "i")`, `topk(3000, m)`, `bottomk(3000, m)`, `quantile(0.5, m)`,
	`sum by (g) (m)`, `sum by (i) (m)`, `m + m`, `m and m`, `m or m`, `m unless on (g) m`, `m * on (g) group_left sum by (g) (m)`, `count_values("v", m)`,
	`timestamp(m)`, `abs(m)`, `-m`, `label_replace(m, "x", "$1", "i", "no(.*)")`, `label_join(m, "x", "-", "g", "i")`, `info(m)`, `last_over_time(m[5m])`, `m[5m]`,
}

func TestMeterKeepsTheOrderOfWhatIsSorted(t *testing.T) {
	s := manyMeterStorage(t)
	for _, expr := range meterLoops {
		_, ctx := accounttest.New(t.Context(), storage.ReadBounds{SeriesBytes: 1})
		want, got := instantMeterQuery(t.Context(), t, s, expr), instantMeterQuery(ctx, t, s, expr)
		if strings.Contains(expr, "sort") || strings.Contains(expr, "k(") {
			require.Equal(t, want.String(), got.String(), expr)
		}
		require.NoError(t, got.Err, expr)
	}
}

func TestMeterLooksAtTheContextInEachStepOfTimestamp(t *testing.T) {
	s := manyMeterStorage(t)
	yields := func(end int64) int {
		engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 50_000_000, Timeout: time.Hour, LookbackDelta: 5 * time.Minute})
		account, ctx := accounttest.New(t.Context(), storage.ReadBounds{SeriesBytes: 1})
		q, err := engine.NewRangeQuery(ctx, s, nil, `timestamp({__name__=~"m|target_info"})`, time.Unix(0, 0), time.Unix(end, 0), time.Second)
		require.NoError(t, err)
		t.Cleanup(q.Close)
		require.NoError(t, q.Exec(ctx).Err)
		return account.Yields
	}
	// In each step, of the results, and of the samples before them.
	require.GreaterOrEqual(t, yields(11)-yields(1), 10*(2*manyMeterSeries/256))
}

// A series with many steps, each of a wide window, takes as long as many series.
func TestMeterLooksAtTheContextWithinOneSeries(t *testing.T) {
	s := meterStorage(t)
	const one = `m{i="0000000000"}`
	for expr, windows := range map[string]int{
		`last_over_time(` + one + `[1m])`:              600_000,
		`sum_over_time(` + one + `[10m:1s])`:           600_000,
		`sum_over_time((` + one + ` @ 0)[2h:1s])`:      600_000,
		`rate(h{i="0000000000"}[10m])`:                 600_000,
		`max_over_time(rate(` + one + `[1m])[2h:1ms])`: 7_800_000,
	} {
		account, ctx := accounttest.New(t.Context(), storage.ReadBounds{})
		stopped := errors.New("stopped")
		account.OnYield = func() {
			if account.Yields > windows/1024 {
				account.Stop(stopped)
			}
		}
		require.ErrorIs(t, meterQuery(ctx, t, s, 50_000_000, expr, time.Millisecond).Err, stopped, expr)
	}
}

func TestMeterLooksAtTheContextInLoopsOverSeries(t *testing.T) {
	s := manyMeterStorage(t)
	yields := func(expr string) int {
		account, ctx := accounttest.New(t.Context(), storage.ReadBounds{SeriesBytes: 1})
		require.NoError(t, instantMeterQuery(ctx, t, s, expr).Err, expr)
		return account.Yields
	}
	selected := yields(`m`)
	for _, expr := range meterLoops {
		whole := yields(expr)
		require.Greater(t, whole, selected+manyMeterSeries/256/2, expr)
		for _, part := range []int{3, 2} {
			account, ctx := accounttest.New(t.Context(), storage.ReadBounds{SeriesBytes: 1})
			stopAt := selected + (whole-selected)/part
			account.OnYield = func() {
				if account.Yields == stopAt {
					account.Stop(errors.New("stopped"))
				}
			}
			require.Error(t, instantMeterQuery(ctx, t, s, expr).Err, expr)
			require.LessOrEqual(t, account.Yields, stopAt+2, expr)
		}
	}
}
