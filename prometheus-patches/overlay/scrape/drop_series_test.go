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
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/stretchr/testify/require"
	"go.uber.org/atomic"

	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/util/teststorage"
)

// A scrape pool of two targets that expose what DropSeries may drop.
func TestDropSeriesSeesEachSeriesOnceAfterThePoolsOwnRelabelling(t *testing.T) {
	var scrapes atomic.Int64
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		scrapes.Add(1)
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		fmt.Fprint(w, "kept 1\nunwanted 2\nown_drop 3\n")
	}))
	defer target.Close()

	var seen, sawOwnDrop atomic.Int64
	options := &Options{DropSeries: func(l labels.Labels) labels.Labels {
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
	manager, err := NewManager(options, nil, nil, store, nil, prometheus.NewRegistry())
	require.NoError(t, err)
	defer manager.Stop()
	cfg, err := config.Load(`
global: {scrape_interval: 500ms, scrape_timeout: 500ms}
scrape_configs:
- job_name: test
  metric_relabel_configs:
  - {source_labels: [__name__], regex: own_drop, action: drop}
`, promslog.NewNopLogger())
	require.NoError(t, err)
	require.NoError(t, manager.ApplyConfig(cfg))
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

	require.Eventually(t, func() bool { return scrapes.Load() >= 6 }, 20*time.Second, 10*time.Millisecond)
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
}
