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
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: maxSamples, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, EnableAtModifier: true})
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
	for _, expr := range []string{nested, joined} {
		account, ctx := accounttest.New(t.Context(), storage.ReadBounds{})
		err := meterQuery(ctx, t, s, 50_000_000, expr, 10*time.Minute).Err
		require.ErrorContains(t, err, "Build shorter labels")
		require.Less(t, account.Peak, int64(16<<20))
	}
	_, ctx := accounttest.New(t.Context(), storage.ReadBounds{})
	require.NoError(t, meterQuery(ctx, t, s, 50_000_000, `label_replace(m, "a", "$1$1$1$1$1$1$1$1$1$1", "i", "(.*)")`, time.Minute).Err)
}
