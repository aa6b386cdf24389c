// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/tsdb/wlog"
	"github.com/prometheus/prometheus/util/compression"
	"github.com/stretchr/testify/require"
)

const (
	damagedSeries  = 50
	damagedScrapes = 500
)

// A server starts with a damaged log. It answers as upstream's would after the same
// repair; what that takes away lies in a directory, which the log and a metric name,
// which upstream's own tools read, and from which it comes back.
func TestWhatTheRepairOfADamagedLogRemovesIsKeptAndComesBack(t *testing.T) {
	t.Parallel()
	made, begin := damagedLog(t)
	stockData, data := copyOf(t, made), copyOf(t, made)
	count := func(s *server) int {
		t.Helper()
		at := begin.Add(damagedScrapes * 15 * time.Second).Unix()
		body := get(t, fmt.Sprintf("%s/api/v1/query?time=%d&query=%s", s.url, at, url.QueryEscape("sum(count_over_time({i=~'.+'}[1d]))"))).body
		found := regexp.MustCompile(`"(\d+)"\]`).FindStringSubmatch(body)
		require.NotNil(t, found, body)
		var n int
		_, err := fmt.Sscan(found[1], &n)
		require.NoError(t, err)
		return n
	}
	stock := startOn(t, "stock/prometheus", stockData)
	upstreams := count(stock)
	stock.stop(t)

	p := startOn(t, "prometheus", data)
	require.Equal(t, upstreams, count(p))
	require.Less(t, upstreams, damagedSeries*damagedScrapes/2)
	kept := keptIn(t, data)
	require.Len(t, kept, 1)
	require.Contains(t, p.out.String(), `msg="Kept what the repair removes from the log`)
	require.Contains(t, p.out.String(), "dir="+kept[0])
	require.Greater(t, metric(t, p.url, "prometheus_guard_wal_damaged_kept_bytes", nil), 100_000.0)
	require.Equal(t, 1.0, metric(t, p.url, "prometheus_tsdb_wal_corruptions_total", nil))

	// Snapshots leave it out.
	snapshot := post(t, p.url+"/api/v1/admin/tsdb/snapshot", "")
	require.Equal(t, http.StatusOK, snapshot.code, snapshot.body)
	snapshots, err := filepath.Glob(filepath.Join(data, "snapshots", "*", "*"))
	require.NoError(t, err)
	require.Len(t, snapshots, 1, "the block of the head and nothing else")
	p.stop(t)

	// Nor do upstream's server and tools see anything in the data directory that they did not.
	stock = startOn(t, "stock/prometheus", data)
	require.Equal(t, upstreams, count(stock))
	stock.stop(t)
	for _, args := range [][]string{{"list"}, {"dump"}} {
		want := command(t, "stock/promtool", stockData, "", append(append([]string{"tsdb"}, args...), stockData)...)
		got := command(t, "stock/promtool", data, "", append(append([]string{"tsdb"}, args...), data)...)
		require.Zero(t, got.code, got.out)
		require.Equal(t, sorted(want.out), sorted(got.out))
	}
	require.Equal(t, kept, keptIn(t, data))
	stock = startOn(t, "stock/prometheus", copyOf(t, kept[0]))
	readable := count(stock)
	require.Greater(t, readable, damagedSeries*damagedScrapes*3/4, "all but what was in the damaged segment itself")
	stock.stop(t)

	// The runbook's way back.
	dump := command(t, "stock/promtool", t.TempDir(), "", "tsdb", "dump-openmetrics", "--sandbox-dir-root="+t.TempDir(), kept[0])
	require.Zero(t, dump.code, dump.out)
	file := filepath.Join(t.TempDir(), "kept.om")
	require.NoError(t, os.WriteFile(file, []byte(dump.out), 0o600))
	blocks := command(t, "stock/promtool", t.TempDir(), "", "tsdb", "create-blocks-from", "openmetrics", file, data)
	require.Zero(t, blocks.code, blocks.out)
	p = startOn(t, "prometheus", data)
	t.Logf("of %d samples, %d are left by the repair, %d come back", damagedSeries*damagedScrapes, upstreams, count(p)-upstreams)
	require.Equal(t, readable, count(p))
	require.NoError(t, os.RemoveAll(kept[0]))
	require.Zero(t, metric(t, p.url, "prometheus_guard_wal_damaged_kept_bytes", nil))
}

func TestOffKeepsNothingOfADamagedLog(t *testing.T) {
	t.Parallel()
	data, _ := damagedLog(t)
	p := startOn(t, "prometheus", data, "--guard.wal-replay=off")
	require.Contains(t, p.out.String(), "Successfully repaired WAL")
	require.Empty(t, keptIn(t, data))
	require.NotContains(t, get(t, p.url+"/metrics").body, "wal_damaged")
}

func keptIn(t *testing.T, data string) []string {
	t.Helper()
	kept, err := filepath.Glob(filepath.Join(data, "wal-damaged-*"))
	require.NoError(t, err)
	return kept
}

func copyOf(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.CopyFS(to, os.DirFS(dir)))
	return to
}

// damagedLog returns a data directory with a WAL of many segments, one bit of an early
// one of which is flipped, and the time of its first sample.
func damagedLog(t *testing.T) (dir string, begin time.Time) {
	t.Helper()
	dir, begin = t.TempDir(), time.Now().Add(-10*time.Hour).Truncate(2*time.Hour)
	w, err := wlog.NewSize(promslog.NewNopLogger(), nil, filepath.Join(dir, "wal"), 32*1024, compression.None)
	require.NoError(t, err)
	var series []record.RefSeries
	for ref := range chunks.HeadSeriesRef(damagedSeries) {
		series = append(series, record.RefSeries{Ref: ref + 1, Labels: labels.FromStrings("__name__", "m", "i", fmt.Sprint(ref))})
	}
	var enc record.Encoder
	require.NoError(t, w.Log(enc.Series(series, nil)))
	for i := range int64(damagedScrapes) {
		var samples []record.RefSample
		for _, s := range series {
			samples = append(samples, record.RefSample{Ref: s.Ref, T: begin.UnixMilli() + i*15_000, V: 1 / float64(i+int64(s.Ref))})
		}
		require.NoError(t, w.Log(enc.Samples(samples, nil)))
	}
	require.NoError(t, w.Close())
	segment := wlog.SegmentName(filepath.Join(dir, "wal"), 2)
	text, err := os.ReadFile(segment)
	require.NoError(t, err)
	text[20_000] ^= 1
	require.NoError(t, os.WriteFile(segment, text, 0o600))
	return dir, begin
}
