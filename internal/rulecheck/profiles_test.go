// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package rulecheck

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/relabel"
	"github.com/promguard/promguard/internal/rulecheck/source"
)

// factLines returns the lines of a file of facts of package relabel.
func factLines(t *testing.T, name string) []string {
	t.Helper()
	text, err := os.ReadFile("../relabel/testdata/" + name)
	require.NoError(t, err)
	var out []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	require.NotEmpty(t, out)
	return out
}

func builtIn(t *testing.T, name string) relabel.Profile {
	t.Helper()
	p, err := relabel.ProfileByName(name)
	require.NoError(t, err)
	return p
}

// thinnedByRecommended are the histograms that are read and lose bounds.
var thinnedByRecommended = []string{
	"apiserver_request_sli_duration_seconds_bucket", "apiserver_request_slo_duration_seconds_bucket",
	"apiserver_request_duration_seconds_bucket", "workqueue_queue_duration_seconds_bucket",
}

func isThinned(selector string) bool {
	for _, name := range thinnedByRecommended {
		if selector == name || strings.HasPrefix(selector, name+"{") {
			return true
		}
	}
	return false
}

func TestRecommendedIsInvisibleToTheCoreSetButForBounds(t *testing.T) {
	for _, profile := range []string{relabel.ProfileMinimal, relabel.ProfileRecommended} {
		p := builtIn(t, profile)
		var exprs []source.Expression
		for _, line := range factLines(t, "core_selectors.txt") {
			exprs = append(exprs, expression(t, source.KindPanel, line))
		}
		thinned := 0
		for _, r := range check(t, p, exprs...) {
			want := Invisible
			if r.Verdict == Thinned && profile == relabel.ProfileRecommended && isThinned(r.Expression.Text) {
				want = Thinned
				thinned++
			}
			require.Equal(t, want, r.Verdict, "%s: %s: %+v", profile, r.Expression.Text, r.Findings)
		}
		require.Equal(t, profile == relabel.ProfileRecommended, thinned > 0)
	}
}

// What further boards read is known by name only, so a rule that tells cgroups of
// one name apart may touch it.
func TestRecommendedLeavesNamesThatFurtherBoardsRead(t *testing.T) {
	p := builtIn(t, relabel.ProfileRecommended)
	var exprs []source.Expression
	for _, name := range factLines(t, "wider_names.txt") {
		exprs = append(exprs, expression(t, source.KindPanel, name))
	}
	for _, r := range check(t, p, exprs...) {
		for _, f := range r.Findings {
			if f.Verdict == Thinned && isThinned(r.Expression.Text) {
				continue
			}
			require.Equal(t, "cadvisor-cgroups-above-containers", f.Rule, "%s: %s", r.Expression.Text, f.Why)
			require.Equal(t, Changed, f.Verdict, r.Expression.Text)
		}
	}
}

func TestRecommendedChangesNoClassThatItMustNot(t *testing.T) {
	for _, name := range []string{relabel.ProfileMinimal, relabel.ProfileRecommended} {
		for _, r := range builtIn(t, name).Rules {
			require.NotEqual(t, relabel.ClassValueChanging, r.Class, r.ID)
		}
	}
}

// Bounds that are read, by value: those of error budgets, those beside thresholds
// of alerts, and the largest finite ones.
func TestRecommendedKeepsTheBoundsThatAreRead(t *testing.T) {
	c, err := New(builtIn(t, relabel.ProfileRecommended), nil)
	require.NoError(t, err)
	for histogram, bounds := range map[string][]float64{
		"apiserver_request_sli_duration_seconds":          {1, 5, 30, 60},
		"apiserver_request_duration_seconds":              {0.1, 1, 5, 30, 60},
		"apiserver_client_certificate_expiration_seconds": {86400, 604800, 31104000},
		"etcd_disk_wal_fsync_duration_seconds":            {0.256, 0.512, 1.024, 8.192},
		"etcd_disk_backend_commit_duration_seconds":       {0.128, 0.256, 8.192},
		"etcd_network_peer_round_trip_time_seconds":       {0.1024, 0.2048},
		"grpc_server_handling_seconds":                    {0.1, 0.25},
		"coredns_dns_request_duration_seconds":            {4.096, 8.192},
		"coredns_forward_request_duration_seconds":        {4.096, 8.192},
		"kubelet_pleg_relist_duration_seconds":            {10},
		"kubelet_pod_worker_duration_seconds":             {60},
		"scheduler_scheduling_attempt_duration_seconds":   {0.001},
		"rest_client_request_duration_seconds":            {0.25, 2, 60},
		"storage_operation_duration_seconds":              {600},
	} {
		for _, b := range bounds {
			require.False(t, c.dropsBound(histogram, b), "%s le=%g", histogram, b)
		}
		for _, r := range c.rules {
			if r.name.Contains(histogram+bucketSuffix) && r.le == nil {
				t.Errorf("rule %s drops all of %s", r.ID, histogram)
			}
		}
	}
}

func TestNoThinnedBucketOfRecommendedThatIsReadSpansMoreThanAFactorOfThree(t *testing.T) {
	for _, r := range builtIn(t, relabel.ProfileRecommended).Rules {
		if r.Thinning == nil || r.ID == "apiserver-etcd-bounds" {
			continue
		}
		merged, ok := merge(r.Thinning.Bounds, func(b float64) bool { return slices.Contains(r.Thinning.Drop, b) })
		require.True(t, ok, r.ID)
		bound := boundOf(merged)
		require.LessOrEqual(t, bound.Relative, 2.0, r.ID)
		require.LessOrEqual(t, bound.Low, 1e-5, r.ID)
	}
}

func TestBuiltInRulesHaveNoNotes(t *testing.T) {
	for _, p := range relabel.Profiles() {
		c, err := New(p, nil)
		require.NoError(t, err)
		require.Empty(t, c.Notes(), p.Name)
	}
}
