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

func TestCountedCountsByTheFirstRuleThatMatches(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	c := NewCounted(mustCompile(t, twoRules()), reg)
	const help = "# HELP promguard_drop_rules_dropped_series_total Series dropped by the default drop rules, by the first rule that matches. " +
		"Counted when a target's scrapes meet a series for the first time, not at every scrape.\n" +
		"# TYPE promguard_drop_rules_dropped_series_total counter\n"
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(help+
		`promguard_drop_rules_dropped_series_total{profile="test",rule="first"} 0
promguard_drop_rules_dropped_series_total{profile="test",rule="second"} 0
`)))
	for _, name := range []string{"a", "b", "c", "d"} {
		c.Apply(labels.FromStrings("__name__", name))
	}
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(help+
		`promguard_drop_rules_dropped_series_total{profile="test",rule="first"} 2
promguard_drop_rules_dropped_series_total{profile="test",rule="second"} 1
`)))
}

func TestApplyEmptiesDroppedSeriesAndLeavesTheOthersAlone(t *testing.T) {
	c := NewCounted(mustCompile(t, twoRules()), nil)
	require.True(t, c.Apply(labels.FromStrings("__name__", "a", "x", "y")).IsEmpty())
	kept := labels.FromStrings("__name__", "d", "x", "y")
	require.Equal(t, kept, c.Apply(kept))
}

func TestSeriesThatThePoolDroppedIsNotCounted(t *testing.T) {
	nameless := validRule()
	nameless.Regex = ".*"
	reg := prometheus.NewPedanticRegistry()
	c := NewCounted(mustCompile(t, Profile{Name: "test", Rules: []Rule{nameless}}), reg)
	require.True(t, c.Apply(labels.EmptyLabels()).IsEmpty())
	require.Zero(t, testutil.ToFloat64(c.current.Load().dropped[0]))
}

func TestNilCountedDropsNothing(t *testing.T) {
	var c *Counted
	lset := labels.FromStrings("__name__", "kube_pod_tolerations")
	require.Equal(t, lset, c.Apply(lset))
}

func TestApplyAllocatesNothing(t *testing.T) {
	c := NewCounted(mustCompile(t, mustProfile(t, ProfileMinimal)), prometheus.NewRegistry())
	lset := labels.FromStrings("__name__", "container_tasks_state", "job", "kubelet")
	require.Zero(t, testing.AllocsPerRun(100, func() { c.Apply(lset) }))
}

func TestReplacedRulesDropAndCountFromThenOn(t *testing.T) {
	rule := func(name string) *Dropper {
		d, err := Compile(Profile{Name: "own", Rules: []Rule{{
			ID: "drop-" + name, Class: ClassUnused, SourceLabels: []string{"__name__"}, Regex: name, Reason: "nobody reads it",
		}}})
		require.NoError(t, err)
		return d
	}
	c := NewCounted(rule("a"), nil)
	a, b := labels.FromStrings("__name__", "a"), labels.FromStrings("__name__", "b")
	require.True(t, c.Apply(a).IsEmpty())
	require.Equal(t, b, c.Apply(b))
	c.Replace(rule("b"))
	require.Equal(t, a, c.Apply(a))
	require.True(t, c.Apply(b).IsEmpty())
	for _, id := range []string{"drop-a", "drop-b"} {
		require.Equal(t, 1.0, testutil.ToFloat64(c.dropped.WithLabelValues("own", id)))
	}
}
