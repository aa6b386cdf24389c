// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package scrape

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/stretchr/testify/require"
	"go.uber.org/atomic"

	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/util/teststorage"
)

// fakeDropRules have one function for all targets that do not say off.
type fakeDropRules struct {
	drop       func(labels.Labels) labels.Labels
	generation atomic.Int64
	forgotten  atomic.String
}

func (r *fakeDropRules) InForce() config.DropRules {
	return config.DropRules{Profile: "fake", Generation: int(r.generation.Load())}
}

func (r *fakeDropRules) Pool(_, profile string) func(labels.Labels) labels.Labels {
	if profile != "fake" {
		return nil
	}
	return r.drop
}

func (r *fakeDropRules) Forget(scrapeJob string) { r.forgotten.Store(scrapeJob) }

// A scrape pool of two targets that expose what the rules may drop.
func TestDropRulesSeeEachSeriesOnceAfterThePoolsOwnRelabelling(t *testing.T) {
	var scrapes atomic.Int64
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		scrapes.Add(1)
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		fmt.Fprint(w, "kept 1\nunwanted 2\nown_drop 3\n")
	}))
	defer target.Close()

	var seen, sawOwnDrop atomic.Int64
	rules := &fakeDropRules{drop: func(l labels.Labels) labels.Labels {
		switch l.Get(labels.MetricName) {
		case "unwanted":
			require.Equal(t, "test", l.Get("job"), "target labels are there")
			seen.Add(1)
			return labels.EmptyLabels()
		case "own_drop":
			sawOwnDrop.Add(1)
		}
		return l
	}}
	store := teststorage.New(t)
	manager, err := NewManager(&Options{DropRules: rules}, nil, nil, store, nil, prometheus.NewRegistry())
	require.NoError(t, err)
	defer manager.Stop()
	apply := func(text string) {
		cfg, err := config.Load("global: {scrape_interval: 500ms, scrape_timeout: 500ms}\n"+text, promslog.NewNopLogger())
		require.NoError(t, err)
		require.NoError(t, manager.ApplyConfig(cfg))
	}
	const pool = `
scrape_configs:
- job_name: test
  metric_relabel_configs:
  - {source_labels: [__name__], regex: own_drop, action: drop}
`
	apply(pool)
	address, err := url.Parse(target.URL)
	require.NoError(t, err)
	groups := make(chan map[string][]*targetgroup.Group, 1)
	groups <- map[string][]*targetgroup.Group{"test": {{
		Targets: []model.LabelSet{
			{model.AddressLabel: model.LabelValue(address.Host)},
			{model.AddressLabel: model.LabelValue(address.Host), "instance": "left alone", dropRulesLabel: "off"},
		},
	}}}
	go func() { _ = manager.Run(groups) }()

	require.Eventually(t, func() bool { return scrapes.Load() >= 6 }, time.Minute, 10*time.Millisecond)
	require.EqualValues(t, 1, seen.Load(), "a dropped series is remembered, not judged again")
	require.Zero(t, sawOwnDrop.Load(), "what the pool itself drops never gets here")

	q, err := store.Querier(0, time.Now().UnixMilli()+1000)
	require.NoError(t, err)
	defer q.Close()
	names, _, err := q.LabelValues(t.Context(), labels.MetricName, nil)
	require.NoError(t, err)
	require.Contains(t, names, "kept")
	require.NotContains(t, names, "own_drop")
	instances, _, err := q.LabelValues(t.Context(), "instance", nil, labels.MustNewMatcher(labels.MatchEqual, labels.MetricName, "unwanted"))
	require.NoError(t, err)
	require.Equal(t, []string{"left alone"}, instances, "a target can say that the rules are not for it")
	all, _, err := q.LabelNames(t.Context(), nil)
	require.NoError(t, err)
	require.NotContains(t, all, dropRulesLabel)

	active := manager.TargetsActive()["test"]
	require.Len(t, active, 2)
	shown := []string{}
	for _, target := range active {
		shown = append(shown, target.DiscoveredLabels(labels.NewBuilder(labels.EmptyLabels())).Get(dropRulesLabel))
	}
	require.ElementsMatch(t, []string{"fake", "off"}, shown)

	apply(pool)
	scraped := scrapes.Load()
	require.Eventually(t, func() bool { return scrapes.Load() >= scraped+4 }, time.Minute, 10*time.Millisecond)
	require.EqualValues(t, 1, seen.Load(), "a reload that changes nothing judges nothing again")
	rules.generation.Add(1)
	apply(pool)
	require.Eventually(t, func() bool { return seen.Load() == 2 }, time.Minute, 10*time.Millisecond,
		"known series are judged by rules that have changed")
	require.Empty(t, rules.forgotten.Load())
	apply("")
	require.Equal(t, "test", rules.forgotten.Load())
}

// Who embeds the manager may apply a configuration that it has applied before.
func TestDropRulesThatChangeReloadAPoolOfTheSameConfiguration(t *testing.T) {
	cfg, err := config.Load("scrape_configs:\n- job_name: test\n", promslog.NewNopLogger())
	require.NoError(t, err)
	rules := &fakeDropRules{}
	registry := prometheus.NewRegistry()
	manager, err := NewManager(&Options{DropRules: rules}, promslog.NewNopLogger(), nil, teststorage.New(t), nil, registry)
	require.NoError(t, err)
	defer manager.Stop()
	require.NoError(t, manager.ApplyConfig(cfg))
	manager.updateTsets(map[string][]*targetgroup.Group{"test": {{Source: "s", Targets: []model.LabelSet{{model.AddressLabel: "127.0.0.1:1"}}}}})
	manager.reload()

	reloads := func() float64 { return testutil.ToFloat64(manager.metrics.targetScrapePoolReloads) }
	require.NoError(t, manager.ApplyConfig(cfg))
	require.Zero(t, reloads())
	rules.generation.Add(1)
	require.NoError(t, manager.ApplyConfig(cfg))
	require.EqualValues(t, 1, reloads())
	require.Zero(t, cfg.ScrapeConfigs[0].DropRules, "the caller's configuration is not written to")

	synced := make(chan struct{})
	go func() { // Reads the pool's configuration, for the race detector to see.
		defer close(synced)
		manager.reload()
	}()
	rules.generation.Add(1)
	require.NoError(t, manager.ApplyConfig(cfg))
	<-synced
}
