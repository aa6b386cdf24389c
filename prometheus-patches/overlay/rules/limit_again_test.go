// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package rules

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/teststorage"
)

// BenchmarkARuleThatIsOverItsLimitAgain evaluates a group whose rule has more series than the
// limit allows.
func BenchmarkARuleThatIsOverItsLimitAgain(b *testing.B) {
	db := teststorage.New(b)
	now := time.Now()
	app := db.AppenderV2(context.Background())
	for i := range 5000 {
		_, err := app.Append(0, labels.FromStrings("__name__", "m", "pod", fmt.Sprint("p-", i)), 0, now.UnixMilli(), 1, nil, nil, storage.AOptions{})
		require.NoError(b, err)
	}
	require.NoError(b, app.Commit())
	engine := promqltest.NewTestEngine(b, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	expr, err := testParser.ParseExpr("m * 2")
	require.NoError(b, err)
	group := NewGroup(GroupOptions{
		Name: "g", Interval: time.Minute, Limit: 10,
		Rules: []Rule{NewRecordingRule("r", expr, labels.EmptyLabels())},
		Opts: &ManagerOptions{
			QueryFunc: EngineQueryFunc(engine, db), AppendableV2: db, Queryable: db, Context: context.Background(), Logger: promslog.NewNopLogger(),
		},
	})
	group.Eval(context.Background(), now)
	series := db.Head().NumSeries()
	var before, after syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &before))
	b.ReportAllocs()
	for b.Loop() {
		group.Eval(context.Background(), now)
	}
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &after))
	require.Equal(b, series, db.Head().NumSeries())
	used := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(used)/float64(b.N)/1e6, "cpu-ms/evaluation")
}
