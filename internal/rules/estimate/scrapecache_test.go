// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package estimate

import (
	"net/http/httptest"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/kubelike"
)

// TestModelScrapeCacheIsThatOfARealScrape scrapes a modelled cluster once, with all
// series stored and with all dropped, and compares what the scrape loops remember of
// a series with what estimates count with.
func TestModelScrapeCacheIsThatOfARealScrape(t *testing.T) {
	dropped := scrapedHeap(t, "metric_relabel_configs: [{source_labels: [__name__], regex: '.*', action: drop}]")
	stored := scrapedHeap(t, "")
	t.Logf("%.0f bytes of heap per dropped series, %.0f per stored one", dropped, stored)
	want := builtWith()
	require.InEpsilon(t, want.DroppedBytesPerSeries, dropped, 0.2)
	// It depends on how full the maps are.
	require.InEpsilon(t, want.ScrapeCacheBytesPerSeries, stored, 0.25)
}

// scrapedHeap returns the heap in use that the scrape loops hold per series.
func scrapedHeap(t *testing.T, more string) float64 {
	t.Helper()
	const series = 10_000
	cluster, err := kubelike.New(kubelike.Config{Series: series, Seed: 1, Start: time.Unix(1_700_000_000, 0)})
	require.NoError(t, err)
	server := httptest.NewServer(kubelike.NewHandler(cluster))
	defer server.Close()
	at, err := url.Parse(server.URL)
	require.NoError(t, err)

	groups := map[string][]*targetgroup.Group{"all": nil}
	for i, target := range cluster.Targets() {
		lset := model.LabelSet{model.AddressLabel: model.LabelValue(at.Host), model.MetricsPathLabel: model.LabelValue("/metrics/" + target.Pool + "/" + target.Labels.Get("instance"))}
		target.Labels.Range(func(l labels.Label) { lset[model.LabelName(l.Name)] = model.LabelValue(l.Value) })
		groups["all"] = append(groups["all"], &targetgroup.Group{Source: strconv.Itoa(i), Targets: []model.LabelSet{lset}})
	}
	cfg, err := config.Load("scrape_configs: [{job_name: all, scrape_interval: 1s, scrape_timeout: 1s, honor_labels: true, "+more+"}]", nil)
	require.NoError(t, err)

	db, err := tsdb.Open(t.TempDir(), nil, nil, tsdb.DefaultOptions(), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	m, err := scrape.NewManager(&scrape.Options{DiscoveryReloadInterval: model.Duration(50 * time.Millisecond)}, nil, nil, db, nil, prometheus.NewRegistry())
	require.NoError(t, err)
	require.NoError(t, m.ApplyConfig(cfg))
	updates := make(chan map[string][]*targetgroup.Group)
	done := make(chan error)
	go func() { done <- m.Run(updates) }()
	updates <- groups
	// From the second scrape on a loop holds the series of two.
	scrapes := map[string]map[time.Time]bool{}
	require.Eventually(t, func() bool {
		done := 0
		for _, target := range m.TargetsActive()["all"] {
			key := target.URL().String()
			if scrapes[key] == nil {
				scrapes[key] = map[time.Time]bool{}
			}
			if at := target.LastScrape(); !at.IsZero() && target.LastError() == nil { // A busy machine may have no time for one.
				scrapes[key][at] = true
			}
			if len(scrapes[key]) > 2 {
				done++
			}
		}
		return done == len(cluster.Targets())
	}, time.Minute, 50*time.Millisecond)
	// The least of several, since a scrape that runs has buffers.
	with := heapInUse()
	for range 10 {
		time.Sleep(70 * time.Millisecond)
		with = min(with, heapInUse())
	}
	m.Stop()
	require.NoError(t, <-done)
	return float64(with-heapInUse()) / series
}
