// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/querylimit"
)

// What Thanos Query 0.42 answers, behind a Query Frontend, of two servers and a bucket. Label
// values are counted in a list of another name.
const (
	thanosTSDB = `{"headStats":{"numSeries":50,"numLabelPairs":4,"chunkCount":0,"minTime":1700000000000,"maxTime":1700000600000},
"seriesCountByMetricName":[{"name":"a","value":40},{"name":"up","value":10}],
"labelValueCountByLabelName":[],
"memoryInBytesByLabelName":[{"name":"__name__","value":4},{"name":"job","value":4}],
"seriesCountByLabelValuePair":[{"name":"__name__=a","value":40},{"name":"job=api","value":30},{"name":"job=db","value":20},{"name":"__name__=up","value":10}]}`
	thanosStoresList = `{"sidecar":[
{"name":"10.0.0.1:10901","lastCheck":"2025-11-24T06:00:00Z","lastError":null,"labelSets":[{"prometheus":"monitoring/k8s","prometheus_replica":"k8s-0"}],"minTime":1700000000000,"maxTime":9223372036854775807},
{"name":"10.0.0.2:10901","lastCheck":"2025-11-24T06:00:00Z","lastError":null,"labelSets":[{"prometheus":"monitoring/k8s","prometheus_replica":"k8s-1"}],"minTime":1700000000000,"maxTime":9223372036854775807}],
"store":[{"name":"10.0.0.3:10901","lastCheck":"2025-11-24T06:00:00Z","lastError":null,"labelSets":[{"prometheus":"monitoring/k8s","prometheus_replica":"k8s-0"},{"prometheus":"monitoring/k8s","prometheus_replica":"k8s-1"}],"minTime":1600000000000,"maxTime":1700000000000}]}`
	thanosRuntime = `{"startTime":"2025-11-24T05:00:00Z","CWD":"/","goroutineCount":70,"GOMAXPROCS":2,"GOGC":"","GODEBUG":"","GOMEMLIMIT":3865470566}`
)

// thanosBuild is of a release.
const thanosBuild = `{"version":"0.42.4","revision":"7c60b2b52","branch":"HEAD","buildUser":"","buildDate":"","goVersion":"go1.26.0"}`

func thanosQuery(tsdb string) map[string]string {
	return map[string]string{
		"/-/ready": "", "/api/v1/status/buildinfo": success(thanosBuild),
		statusTSDB: tsdb, "/api/v1/stores": success(thanosStoresList), "/api/v1/status/runtimeinfo": success(thanosRuntime),
	}
}

func TestThanosQueryTellsTheSeriesOfAllServersAndItsMemory(t *testing.T) {
	want := &querylimit.Head{
		Series: 50, Since: time.UnixMilli(1_700_000_000_000), Oldest: time.UnixMilli(1_600_000_000_000),
		Counts: map[string]map[string]int{"__name__": {"a": 40, "up": 10}, "job": {"api": 30, "db": 20}},
		Values: map[string]int{"__name__": 2, "job": 2}, Interval: 15 * time.Second, Memory: 3_865_470_566,
	}
	for _, kind := range []Kind{KindThanos, KindPrometheus} { // As explain takes it for, which goes on.
		p := newTestPool(t, kind, ProbeWarn, "http://a")
		p.serve("a", thanosQuery(success(thanosTSDB)))
		require.NoError(t, p.Check(t.Context()))
		require.Equal(t, want, p.Head())
	}
}

func TestStatisticsWithoutAServerDoNotReplaceThoseWithAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		partial := `{"status":"success","data":{"headStats":{"numSeries":20}},"warnings":["fetching tsdb statistics from status client: not ready"]}`
		p := newTestPool(t, KindThanos, ProbeRequire, "http://a")
		p.serve("a", thanosQuery(partial))
		require.NoError(t, p.Check(t.Context()))
		require.Equal(t, 20, p.Head().Series, "better than nothing")
		p.run(t)
		for _, c := range []struct {
			answer string
			series int
		}{{success(thanosTSDB), 50}, {partial, 50}, {success(`{"headStats":{"numSeries":0}}`), 50}, {success(`{"headStats":{"numSeries":60}}`), 60}} {
			p.serve("a", thanosQuery(c.answer))
			time.Sleep(2 * headEvery)
			require.Equal(t, c.series, p.Head().Series, c.answer)
		}
	})
}

// TestSumsOfListsThatAreCutBoundWhatThereIs adds up what three servers list, as Thanos does.
func TestSumsOfListsThatAreCutBoundWhatThereIs(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, labelValues := range []bool{true, false} {
		const servers = 3
		truth, listed, most := map[string]int{}, map[string]int{}, 0
		perServer := headEntries + 2_000
		for range servers {
			own := map[string]int{}
			for range perServer {
				own[fmt.Sprintf("pod=%d", r.IntN(2*perServer))] += 1 + r.IntN(50)
			}
			most = max(most, len(own))
			for pair, n := range own {
				truth[pair] += n
			}
			for _, pair := range largest(own) {
				listed[pair] += own[pair]
			}
		}
		status := map[string]any{
			"headStats":                map[string]int{"numSeries": 1_000_000},
			"memoryInBytesByLabelName": entries([]string{"pod"}, map[string]int{"pod": 9 * len(truth)}),
		}
		if labelValues {
			status["labelValueCountByLabelName"] = entries([]string{"pod"}, map[string]int{"pod": most})
		}
		status["seriesCountByLabelValuePair"] = entries(largest(listed), listed)
		text, err := json.Marshal(status)
		require.NoError(t, err)
		var told tsdbStatus
		require.NoError(t, json.Unmarshal(text, &told))
		h := told.merged(servers)
		require.GreaterOrEqual(t, h.Values["pod"], len(truth))
		for pair, n := range truth {
			got, ok := h.Counts["pod"][pair[len("pod="):]]
			if !ok {
				got = h.UnlistedValue
			}
			require.GreaterOrEqual(t, got, n, pair)
		}
		require.NotContains(t, h.Counts, labels.MetricName)
	}
}

// largest returns what a list of a server, or of Thanos Query, holds.
func largest(of map[string]int) []string {
	names := slices.SortedFunc(maps.Keys(of), func(a, b string) int { return cmp.Or(of[b]-of[a], cmp.Compare(a, b)) })
	return names[:min(len(names), headEntries)]
}

func entries(names []string, of map[string]int) (list []map[string]any) {
	for _, name := range names {
		list = append(list, map[string]any{"name": name, "value": of[name]})
	}
	return list
}
