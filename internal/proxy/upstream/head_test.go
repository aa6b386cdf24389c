// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/querylimit"
)

const (
	statusTSDB = "/api/v1/status/tsdb"
	tsdbLists  = `{"headStats":{"numSeries":50,"numLabelPairs":4,"minTime":1700000000000},
"seriesCountByMetricName":[{"name":"a","value":40},{"name":"up","value":10}],
"labelValueCountByLabelName":[{"name":"job","value":2}],
"seriesCountByLabelValuePair":[{"name":"job=api=1","value":30},{"name":"__name__=a","value":39}]}`
	serverMetrics = `process_resident_memory_bytes 1e+08
go_gc_gomemlimit_bytes 9.223372036854776e+18
prometheus_tsdb_lowest_timestamp_seconds 1.6e+09
prometheus_target_interval_length_seconds_count{interval="30s"} 7
prometheus_target_interval_length_seconds_count{interval="10s"} 7
`
)

func TestSeriesOfTheServerAreAskedForOnceAMinuteAndKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPool(t, KindPrometheus, ProbeRequire, "http://a")
		told := 0
		p.OnHead(func(*querylimit.Head) { told++ })
		p.serve("a", healthy(10))
		require.NoError(t, p.Check(t.Context()))
		require.Nil(t, p.Head(), "it does not tell")
		p.serve("a", with(healthy(10), statusTSDB, success(tsdbLists), "/metrics", serverMetrics))
		p.run(t)
		time.Sleep(lookEvery + time.Second)
		h := p.Head()
		require.Equal(t, &querylimit.Head{
			Series: 50, Since: time.UnixMilli(1_700_000_000_000), Oldest: time.Unix(1_600_000_000, 0),
			Counts: map[string]map[string]int{"__name__": {"a": 40, "up": 10}, "job": {"api=1": 30}},
			Values: map[string]int{"job": 2}, Interval: 10 * time.Second, Memory: 250_000_000, Resident: 100_000_000,
		}, h)
		asked := p.count("a" + statusTSDB)
		time.Sleep(10 * time.Minute)
		require.InDelta(t, 10, p.count("a"+statusTSDB)-asked, 1)
		require.InDelta(t, 11, told, 1)
		p.serve("a", nil)
		time.Sleep(10 * time.Minute)
		require.NotNil(t, p.Head(), "what was known is better than nothing")
	})
}

func TestSeriesAreNotAskedForWhereNobodyTellsThemAsPrometheusDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, p := range []*testPool{newTestPool(t, KindMimir, ProbeRequire, "http://a"), newTestPool(t, KindPrometheus, ProbeOff, "http://a")} {
			p.serve("a", with(healthy(10), statusTSDB, success(tsdbLists), "/metrics", serverMetrics))
			_ = p.Check(t.Context())
			require.Nil(t, p.Head())
			require.Zero(t, p.count("a"+statusTSDB))
		}
	})
}
