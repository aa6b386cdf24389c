// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package relabel

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
)

func twoRules() Profile {
	first, second := validRule(), validRule()
	first.ID, first.Regex = "first", "a|b"
	second.ID, second.Regex = "second", "b|c"
	return Profile{Name: "test", Rules: []Rule{first, second}}
}

func TestDroppedSeriesAreCountedByTheFirstRuleThatMatchesAndByPool(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	c := NewCounters(reg)
	d := mustCompile(t, twoRules())
	kubelet, node := c.Pool(d, "kubelet"), c.Pool(d, "node")
	for _, name := range []string{"a", "b", "c", "d"} {
		kubelet(labels.FromStrings("__name__", name))
	}
	node(labels.FromStrings("__name__", "a"))
	const help = "# HELP prometheus_guard_drop_rules_dropped_series_total Series dropped by the default drop rules, by the first rule that matches and by scrape pool. " +
		"Counted when a target's scrapes meet a series for the first time, not at every scrape.\n" +
		"# TYPE prometheus_guard_drop_rules_dropped_series_total counter\n"
	const ofNode = `prometheus_guard_drop_rules_dropped_series_total{profile="test",rule="first",scrape_job="node"} 1
`
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(help+
		`prometheus_guard_drop_rules_dropped_series_total{profile="test",rule="first",scrape_job="kubelet"} 2
prometheus_guard_drop_rules_dropped_series_total{profile="test",rule="second",scrape_job="kubelet"} 1
`+ofNode)))
	c.Forget("kubelet")
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(help+ofNode)))
}

func TestDroppedSamplesAreCountedByRuleAndByPath(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	d := mustCompile(t, twoRules())
	c := NewCounters(reg)
	drop := c.Received(d, "otlp")
	for range 2 {
		require.True(t, drop(labels.FromStrings("__name__", "b")))
		require.False(t, drop(labels.FromStrings("__name__", "d")))
	}
	require.True(t, c.Received(d, "remote-write")(labels.FromStrings("__name__", "c")))
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(
		`# HELP prometheus_guard_drop_rules_dropped_samples_total Samples dropped by the default drop rules that did not come by a scrape, by the first rule that matches and by how they came.
# TYPE prometheus_guard_drop_rules_dropped_samples_total counter
prometheus_guard_drop_rules_dropped_samples_total{path="otlp",profile="test",rule="first"} 2
prometheus_guard_drop_rules_dropped_samples_total{path="remote-write",profile="test",rule="second"} 1
`)))
}

func TestRulesInForceAreShownUntilTheyAreHidden(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	c := NewCounters(reg)
	other := twoRules()
	other.Name = "other"
	c.Show(twoRules())
	c.Show(other)
	c.Hide(other)
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(
		`# HELP prometheus_guard_drop_rule_info 1 for each default drop rule in force, with its class.
# TYPE prometheus_guard_drop_rule_info gauge
prometheus_guard_drop_rule_info{class="unused",profile="test",rule="first"} 1
prometheus_guard_drop_rule_info{class="unused",profile="test",rule="second"} 1
`)))
}

func TestPoolEmptiesDroppedSeriesAndLeavesTheOthersAlone(t *testing.T) {
	drop := NewCounters(nil).Pool(mustCompile(t, twoRules()), "pool")
	require.True(t, drop(labels.FromStrings("__name__", "a", "x", "y")).IsEmpty())
	kept := labels.FromStrings("__name__", "d", "x", "y")
	require.Equal(t, kept, drop(kept))
}

func TestSeriesThatThePoolDroppedIsNotCounted(t *testing.T) {
	nameless := validRule()
	nameless.Regex = ".*"
	c := NewCounters(nil)
	drop := c.Pool(mustCompile(t, Profile{Name: "test", Rules: []Rule{nameless}}), "pool")
	require.True(t, drop(labels.EmptyLabels()).IsEmpty())
	require.Zero(t, testutil.CollectAndCount(c.dropped))
}

func TestPoolAllocatesNothingForASeries(t *testing.T) {
	drop := NewCounters(prometheus.NewRegistry()).Pool(mustCompile(t, mustProfile(t, ProfileMinimal)), "kubelet")
	for _, name := range []string{"container_tasks_state", "container_memory_rss"} {
		lset := labels.FromStrings("__name__", name, "job", "kubelet")
		require.Zero(t, testing.AllocsPerRun(100, func() { drop(lset) }), name)
	}
}
