// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/promguard/promguard/internal/relabel"
	"github.com/promguard/promguard/internal/rules/source"
)

// factLines returns the lines of a file of facts of package relabel.
func factLines(t *testing.T, name string) []string {
	t.Helper()
	text, err := os.ReadFile("../../relabel/testdata/" + name)
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
func thinnedByRecommended(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, r := range builtIn(t, relabel.ProfileRecommended).Rules {
		if r.Thinning != nil {
			out = append(out, r.Thinning.Histograms...)
		}
	}
	return out
}

func TestRecommendedIsInvisibleToTheCoreSetButForBounds(t *testing.T) {
	requireInvisibleButForBounds(t, "core_selectors.txt")
}

func TestRecommendedIsInvisibleToWhatIsPublishedButForBounds(t *testing.T) {
	requireInvisibleButForBounds(t, "published_selectors.txt")
}

func TestRecommendedIsInvisibleToNamesThatFurtherBoardsReadButForBounds(t *testing.T) {
	requireInvisibleButForBounds(t, "wider_names.txt")
}

// lostOfTheWideSet are the names of which recommended takes something that a
// selector of the wide set reads, besides bounds. minimal takes the first.
// docs/drop-rules.md says who reads them.
var lostOfTheWideSet = []string{
	"kubernetes_feature_enabled",
	"container_ulimits_soft",
	"etcd_debugging_disk_backend_commit_write_duration_seconds_bucket",
	"go_gc_cycles_total_gc_cycles_total",
	"go_gc_pauses_seconds_bucket",
	"go_sched_latencies_seconds_bucket",
	"rest_client_rate_limiter_duration_seconds_bucket",
	"workqueue_longest_running_processor_seconds",
	"workqueue_unfinished_work_seconds",
}

func TestOfTheWideSetNothingIsLostButWhatIsNamed(t *testing.T) {
	var lost []string
	for _, r := range requireInvisibleButForBounds(t, "wide_selectors.txt", lostOfTheWideSet...) {
		name, _, _ := strings.Cut(r.Expression.Text, "{")
		lost = append(lost, name)
	}
	slices.Sort(lost)
	require.ElementsMatch(t, lostOfTheWideSet, slices.Compact(lost), "the list names what is not lost")
	docs, err := os.ReadFile("../../../docs/drop-rules.md")
	require.NoError(t, err)
	for _, name := range lostOfTheWideSet {
		require.Contains(t, string(docs), "`"+name+"`")
	}
}

// requireInvisibleButForBounds fails if minimal is visible to any of the selectors in
// a file of facts, or recommended by more than the bounds that it takes. Selectors of
// the names that may be lost are not held to that; those that lose are returned.
func requireInvisibleButForBounds(t *testing.T, facts string, mayBeLost ...string) (lost []Result) {
	t.Helper()
	mayBeThinned := thinnedByRecommended(t)
	for _, profile := range []string{relabel.ProfileMinimal, relabel.ProfileRecommended} {
		p := builtIn(t, profile)
		var exprs []source.Expression
		for _, line := range factLines(t, facts) {
			exprs = append(exprs, expression(t, source.KindPanel, line))
		}
		thinned := 0
		for _, r := range check(t, p, exprs...) {
			name, _, _ := strings.Cut(r.Expression.Text, "{")
			if slices.Contains(mayBeLost, name) {
				if r.Verdict != Invisible {
					lost = append(lost, r)
				}
				continue
			}
			want := Invisible
			if r.Verdict == Thinned && profile == relabel.ProfileRecommended && slices.Contains(mayBeThinned, strings.TrimSuffix(name, "_bucket")) {
				want = Thinned
				thinned++
			}
			require.Equal(t, want, r.Verdict, "%s: %s: %+v", profile, r.Expression.Text, r.Findings)
		}
		require.Equal(t, profile == relabel.ProfileRecommended, thinned > 0)
	}
	return lost
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
		"apiserver_request_sli_duration_seconds":                 {1, 5, 30, 60},
		"apiserver_request_duration_seconds":                     {0.1, 1, 3, 5, 30, 60},
		"apiserver_flowcontrol_request_wait_duration_seconds":    {0.5, 1, 5, 30},
		"apiserver_admission_webhook_admission_duration_seconds": {0.1, 0.5, 1, 2.5, 10, 25},
		"workqueue_work_duration_seconds":                        {0.1, 1, 10},
		"kubelet_pod_start_sli_duration_seconds":                 {1, 5, 60, 3600},
		"csi_operations_seconds":                                 {10, 600},
		"scheduler_framework_extension_point_duration_seconds":   {0.1024, 0.2048},
		"apiserver_client_certificate_expiration_seconds":        {86400, 604800, 31104000},
		"etcd_disk_wal_fsync_duration_seconds":                   {0.256, 0.512, 1.024, 8.192},
		"etcd_disk_backend_commit_duration_seconds":              {0.128, 0.256, 8.192},
		"etcd_network_peer_round_trip_time_seconds":              {0.1024, 0.2048},
		"grpc_server_handling_seconds":                           {0.1, 0.25},
		"coredns_dns_request_duration_seconds":                   {4.096, 8.192},
		"coredns_forward_request_duration_seconds":               {4.096, 8.192},
		"kubelet_pleg_relist_duration_seconds":                   {10},
		"kubelet_pod_worker_duration_seconds":                    {60},
		"scheduler_scheduling_attempt_duration_seconds":          {0.001},
		"rest_client_request_duration_seconds":                   {0.25, 2, 60},
		"storage_operation_duration_seconds":                     {600},
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

// promised is how far docs/drop-rules.md says that quantiles of a thinned histogram
// move at most.
var promised = map[string]Bound{
	"apiserver_request_sli_duration_seconds":               {Relative: 3},
	"apiserver_request_slo_duration_seconds":               {Relative: 3},
	"apiserver_request_duration_seconds":                   {Relative: 3},
	"etcd_request_duration_seconds":                        {Relative: 3},
	"apiserver_flowcontrol_request_wait_duration_seconds":  {Relative: 3},
	"apiserver_flowcontrol_request_execution_seconds":      {Relative: 3},
	"apiserver_flowcontrol_demand_seats":                   {Relative: 7. / 3},
	"apiserver_watch_cache_read_wait_seconds":              {Relative: 3},
	"apiserver_watch_events_sizes":                         {Relative: 3},
	"workqueue_queue_duration_seconds":                     {Low: 1e-6},
	"workqueue_work_duration_seconds":                      {Low: 1e-6},
	"scheduler_framework_extension_point_duration_seconds": {Relative: 3},
}

func TestEachThinnedHistogramKeepsItsPromise(t *testing.T) {
	const rounding = 1e-9
	seen := map[string]bool{}
	for _, r := range builtIn(t, relabel.ProfileRecommended).Rules {
		if r.Thinning == nil {
			continue
		}
		merged, ok := merge(r.Thinning.Bounds, func(b float64) bool { return slices.Contains(r.Thinning.Drop, b) })
		require.True(t, ok, r.ID)
		for _, h := range r.Thinning.Histograms {
			want, ok := promised[h]
			require.True(t, ok, "nothing is promised for %s", h)
			got := boundOf(merged)
			require.InDelta(t, want.Relative, got.Relative, rounding, h)
			require.InDelta(t, want.Low, got.Low, rounding, h)
			seen[h] = true
		}
	}
	require.Len(t, seen, len(promised))
}

// layoutsOfVersions are the finite bounds that Kubernetes versions gave the
// histograms that recommended thins: facts, in the order of the versions.
var layoutsOfVersions = []struct {
	versions   string
	histograms []string
	bounds     []float64
}{
	// These begin at 0.05, which goes: of versions before those that the rule is
	// for, quantiles below 0.1 are at most 0.1 off.
	{
		"1.19 to 1.22",
		[]string{"apiserver_request_duration_seconds"},
		[]float64{
			0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 4.5,
			5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60,
		},
	},
	{
		"1.23 to 1.35",
		[]string{"apiserver_request_duration_seconds"},
		[]float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60},
	},
	{
		"1.23 to 1.35",
		[]string{"apiserver_request_slo_duration_seconds", "apiserver_request_sli_duration_seconds"},
		[]float64{0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60},
	},
	{
		"to 1.23",
		[]string{"etcd_request_duration_seconds"},
		[]float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 15, 30, 60},
	},
	{
		"1.24 to 1.35",
		[]string{"etcd_request_duration_seconds"},
		[]float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60},
	},
	{
		"1.20 to 1.35",
		[]string{"apiserver_flowcontrol_request_wait_duration_seconds", "apiserver_flowcontrol_request_execution_seconds"},
		[]float64{0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30},
	},
	{
		"all",
		[]string{"workqueue_queue_duration_seconds", "workqueue_work_duration_seconds"},
		[]float64{1e-08, 1e-07, 1e-06, 9.999999999999999e-06, 9.999999999999999e-05, 0.001, 0.01, 0.1, 1, 10},
	},
	{
		"1.26 to 1.35",
		[]string{"apiserver_flowcontrol_demand_seats"},
		[]float64{0.2, 0.4, 0.6, 0.8, 1, 1.2, 1.4, 1.7, 2, 2.8, 4, 6},
	},
	{
		"1.28 to 1.35",
		[]string{"apiserver_watch_cache_read_wait_seconds"},
		[]float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3},
	},
	{
		"all",
		[]string{"apiserver_watch_events_sizes"},
		[]float64{1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072},
	},
	{
		"all",
		[]string{"scheduler_framework_extension_point_duration_seconds"},
		[]float64{0.0001, 0.0002, 0.0004, 0.0008, 0.0016, 0.0032, 0.0064, 0.0128, 0.0256, 0.0512, 0.1024, 0.2048},
	},
}

// A rule names bounds by value. Of a layout with other ones beside them, or without
// some, no more may go than what keeps the promise, and the largest must stay.
func TestThePromisesHoldForTheBoundsOfEveryVersion(t *testing.T) {
	c, err := New(builtIn(t, relabel.ProfileRecommended), nil)
	require.NoError(t, err)
	const rounding = 1 + 1e-9
	seen := map[string]bool{}
	for _, l := range layoutsOfVersions {
		for _, h := range l.histograms {
			merged, ok := merge(l.bounds, func(b float64) bool { return c.dropsBound(h, b) })
			require.True(t, ok, "%s of %s: the largest bound goes", h, l.versions)
			require.NotEmpty(t, merged, "%s of %s: nothing goes", h, l.versions)
			got := boundOf(merged)
			require.LessOrEqual(t, got.Relative, promised[h].Relative*rounding, "%s of %s", h, l.versions)
			low := max(promised[h].Low, l.bounds[0])
			if l.versions == "1.19 to 1.22" {
				low = 0.1
			}
			require.LessOrEqual(t, got.Low, low*rounding, "%s of %s", h, l.versions)
			seen[h] = true
		}
	}
	require.Len(t, seen, len(promised))
}

// Prometheus 2 stores a bound as the exporter writes it, Prometheus 3 as a float:
// both must lose the same ones.
func TestBothSpellingsOfABoundGoTogetherInEveryVersion(t *testing.T) {
	d, err := relabel.Compile(builtIn(t, relabel.ProfileRecommended))
	require.NoError(t, err)
	for _, l := range layoutsOfVersions {
		for _, h := range l.histograms {
			for _, b := range l.bounds {
				short, long := strconv.FormatFloat(b, 'g', -1, 64), labels.FormatOpenMetricsFloat(b)
				_, dropsShort := d.Drop(labels.FromStrings("__name__", h+"_bucket", "le", short))
				_, dropsLong := d.Drop(labels.FromStrings("__name__", h+"_bucket", "le", long))
				require.Equal(t, dropsShort, dropsLong, "%s le=%s and le=%s", h, short, long)
			}
			_, dropsAll := d.Drop(labels.FromStrings("__name__", h+"_bucket", "le", "+Inf"))
			require.False(t, dropsAll, h)
		}
	}
}

func TestBuiltInRulesHaveNoNotes(t *testing.T) {
	for _, p := range relabel.Profiles() {
		c, err := New(p, nil)
		require.NoError(t, err)
		require.Empty(t, c.Notes(), p.Name)
	}
}
