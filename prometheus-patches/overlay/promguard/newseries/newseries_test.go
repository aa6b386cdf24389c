// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package newseries

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/promslog"
	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"github.com/prometheus/prometheus/promguard/ingest"
)

// seeded returns a tracker whose sample is always the same.
func seeded(seed uint64) *Tracker {
	t := New()
	t.rng = rand.New(rand.NewPCG(seed, 1))
	return t
}

// app is the series of one metric, with a new value of a label each.
func app(job, namespace, metric, label string, i int) labels.Labels {
	return labels.FromStrings(labels.MetricName, metric, "job", job, "namespace", namespace, "instance", "10.0.0.1:80", label, "v"+strconv.Itoa(i))
}

func TestTheMetricAndTheLabelThatExplodeAreNamed(t *testing.T) {
	tracker := seeded(1)
	for i := range 50_000 {
		tracker.NewSeries(app("churn", "ns"+strconv.Itoa(i%40), "metric"+strconv.Itoa(i%90), "pod", i), false)
		tracker.NewSeries(app("api", "shop", "http_requests_total", "request_id", i), i%2 == 0)
	}
	r := tracker.Report()
	require.EqualValues(t, 75_000, r.Created)
	require.EqualValues(t, 25_000, r.Refused)
	c := r.Culprits[0]
	require.InDelta(t, 0.5, c.Share, 0.08)
	require.InDelta(t, 25_000, float64(c.Refused), 8000)
	require.InDelta(t, 25_000, float64(c.Created), 8000)
	if c.Job != "api" { // Both have half.
		c = r.Culprits[1]
	}
	require.Equal(t, []string{"api", "shop", "http_requests_total", "request_id"}, []string{c.Job, c.Namespace, c.Metric, c.Labels[0].Name})
	require.Equal(t, c.Labels[0].Series, c.Labels[0].Values)
	require.Equal(t, `metric_relabel_configs: [{source_labels: [job, namespace, __name__, request_id], regex: api;shop;http_requests_total;.+, action: drop}]`, c.Relabel)
	require.Regexp(t, `^job="api", namespace="shop", __name__="http_requests_total", and (\d+) values of request_id in (\d+) series$`, c.String())
	require.Subset(t, r.Log(), []any{"new_series", uint64(100_000), "to_drop_them"})
}

func TestWhoMakesUpTheCulpritIsToldApartOnlyAsFarAsItsSeriesAgree(t *testing.T) {
	for _, c := range []struct {
		name   string
		series func(i int) labels.Labels
		want   Culprit // but for numbers
		label  string
		rule   string
	}{
		{
			"a metric of many jobs",
			func(i int) labels.Labels {
				return app("job"+strconv.Itoa(i%200), "ns"+strconv.Itoa(i%200), "rpc_total", "peer", i)
			},
			Culprit{Metric: "rpc_total"}, "peer", "[__name__, peer], regex: rpc_total;.+,",
		},
		{
			"a label of many metrics of one job",
			func(i int) labels.Labels {
				return app("node", "", "m"+strconv.Itoa(i%200), "device", i)
			},
			Culprit{Job: "node"}, "device", "[job, device], regex: node;.+,",
		},
		{
			"a namespace of many jobs",
			func(i int) labels.Labels {
				return app("job"+strconv.Itoa(i%200), "team-a", "m"+strconv.Itoa(i%200), "user", i)
			},
			Culprit{Namespace: "team-a"}, "user", "[namespace, user], regex: team-a;.+,",
		},
		{
			"names of metrics that are ever new: a rule would drop the whole job",
			func(i int) labels.Labels { return app("gen", "", "m_"+strconv.Itoa(i)+"_total", "x", i%7) },
			Culprit{Job: "gen"}, labels.MetricName, "",
		},
		{
			"many targets: no label is to blame",
			func(i int) labels.Labels { return app("node", "", "m"+strconv.Itoa(i%200), "instance2", i%90) },
			Culprit{Job: "node"}, labels.MetricName, "",
		},
		{
			"values that regular expressions and YAML read otherwise",
			func(i int) labels.Labels { return app(`a;b|"*'`, ": #", "m.{}", "l", i) },
			Culprit{Job: `a;b|"*'`, Namespace: ": #", Metric: "m.{}"}, "l", "",
		},
		{
			"a metric among many of a job, in a cluster of one namespace",
			func(i int) labels.Labels {
				if i%10 < 3 {
					return app("pods", "all", "q_total", "path", i)
				}
				return app("pods", "all", "m"+strconv.Itoa(i%200), "pod", i%50)
			},
			Culprit{Job: "pods", Namespace: "all", Metric: "q_total"}, "path", "[job, namespace, __name__, path], regex: pods;all;q_total;.+",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			tracker := seeded(2)
			for i := range 20_000 {
				tracker.NewSeries(c.series(i), false)
			}
			r := tracker.Report()
			got := r.Culprits[0]
			require.Equal(t, c.want, Culprit{Job: got.Job, Namespace: got.Namespace, Metric: got.Metric})
			require.Equal(t, c.label, got.Labels[0].Name)
			if c.rule != "" {
				require.Contains(t, got.Relabel, c.rule)
			}
		})
	}
}

type headOf map[string]int

func (h headOf) SeriesWith(name, value string) int { return h[name+"="+value] }

func TestTheLimitThatIsToldIsWhatTheJobHas(t *testing.T) {
	for _, c := range []struct{ job, namespace, want string }{
		{"api", "shop", "limits: [{label: job, value: api, max_series: 700, mode: enforce}]"},
		{"", "shop", "limits: [{label: namespace, value: shop, max_series: 80, mode: enforce}]"},
		{"", "", "limits: [{label: __name__, value: m, max_series: 9, mode: enforce}]"},
		{"1e3", "", "limits: [{label: job, value: \"1e3\", max_series: 1, mode: enforce}]"},
		{strings.Repeat("x", maxValue+1), "", ""},
	} {
		tracker := seeded(9)
		tracker.SetHead(headOf{"job=api": 700, "namespace=shop": 80, "__name__=m": 9})
		for i := range few {
			tracker.NewSeries(app(c.job, c.namespace, "m", "l", i), true)
		}
		got := tracker.Report().Culprits[0].Limit
		require.Equal(t, c.want, got)
		if got != "" {
			limits, err := ingest.ParseLimits([]byte(got))
			require.NoError(t, err)
			require.Len(t, limits, 1)
			require.Equal(t, ingest.Enforce, limits[0].Mode)
		}
	}
}

func TestFewNewSeriesAreNobodysFault(t *testing.T) {
	tracker := seeded(3)
	require.Equal(t, []Culprit{}, tracker.Report().Culprits)
	for i := range few - 1 {
		tracker.NewSeries(app("api", "shop", "m", "l", i), false)
	}
	r := tracker.Report()
	require.Empty(t, r.Culprits)
	require.Empty(t, r.Log())
	require.Equal(t, []Share{{"api", few - 1, 1}}, r.Jobs)
	tracker.NewSeries(labels.EmptyLabels(), true)
	require.Len(t, tracker.Report().Culprits, 1)
}

func TestSeriesOfLongAgoAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracker := seeded(4)
		add := func(job string) {
			for i := range 5000 {
				tracker.NewSeries(app(job, "", "m", "l", i), false)
			}
		}
		add("old")
		time.Sleep((panes - 2) * pane)
		add("new")
		r := tracker.Report()
		require.EqualValues(t, 10_000, r.Created)
		require.Len(t, r.Jobs, 2)
		require.WithinRange(t, r.From, time.Now().Add(-panes*pane), time.Now().Add(-(panes-1)*pane))
		time.Sleep(2 * pane)
		require.Equal(t, []Share{{"new", 5000, 1}}, tracker.Report().Jobs)
		time.Sleep(panes * pane)
		require.Empty(t, tracker.Report().Jobs)
		add("again")
		require.EqualValues(t, 5000, tracker.Report().Created)
	})
}

// TestSharesAreWithinTheirBound compares with exact counts over streams of any
// kind: who comes when, and who has how much.
func TestSharesAreWithinTheirBound(t *testing.T) {
	const bound = 0.08
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 7))
		tracker, exact := seeded(seed), map[string]int{}
		jobs, total := 2+rng.IntN(30), 3000+rng.IntN(30_000)
		skew := rng.ExpFloat64()
		for i := range total {
			at := int(float64(jobs) * pow(rng.Float64(), 1+3*skew))
			if seed%3 == 0 { // One after the other.
				at = i * jobs / total
			}
			name := "job" + strconv.Itoa(at)
			exact[name]++
			tracker.NewSeries(app(name, "", "m"+strconv.Itoa(i%13), "l", i), rng.IntN(2) == 0)
		}
		got := map[string]float64{}
		r := tracker.Report()
		require.EqualValues(t, total, r.Created+r.Refused)
		for _, s := range r.Jobs {
			got[s.Name] = s.Share
		}
		for name, n := range exact {
			share := float64(n) / float64(total)
			if share >= 0.1 {
				require.Contains(t, got, name, "seed %d: %f", seed, share)
			}
			if est, ok := got[name]; ok {
				require.InDelta(t, share, est, bound, "seed %d", seed)
			}
		}
		require.NotEmpty(t, r.Culprits)
	}
}

func pow(x, y float64) float64 {
	for ; y >= 2; y-- {
		x *= x
	}
	return x
}

func TestMemoryIsBoundedWhateverLabelsArrive(t *testing.T) {
	tracker := seeded(5)
	huge := strings.Repeat("v", 1<<20)
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for i := range sampleSize {
		own := huge[:1<<12] + strconv.Itoa(i)
		b := labels.NewScratchBuilder(100)
		for j := range 100 {
			b.Add(fmt.Sprintf("%d_%d_%s", i, j, strings.Repeat("n", maxName)), strconv.Itoa(i))
		}
		b.Add("job", own)
		b.Add("namespace", own)
		b.Add("large", huge[:1<<16])
		b.Add(labels.MetricName, huge[:1<<16])
		b.Sort()
		tracker.NewSeries(b.Labels(), false)
	}
	require.Less(t, heap()-before, uint64(2500<<10), "a pane")
	r := tracker.Report()
	require.Len(t, r.Culprits, 1)
	require.Len(t, r.Culprits[0].Metric, maxValue+len("...#01234567"))
	require.Equal(t, others, r.Culprits[0].Labels[0].Name)
	require.Empty(t, r.Culprits[0].Relabel, "of what is cut, no rule can say what is dropped")
	runtime.KeepAlive(tracker)
}

// drops parses what is to be pasted as Prometheus does and applies it.
func drops(tb testing.TB, text string, lset labels.Labels) bool {
	tb.Helper()
	require.NotContains(tb, text, "\n")
	c, err := config.Load("scrape_configs:\n- job_name: somebody\n  "+text+"\n", promslog.NewNopLogger())
	require.NoError(tb, err, "%q", text)
	require.Len(tb, c.ScrapeConfigs[0].MetricRelabelConfigs, 1)
	return !relabel.ProcessBuilder(labels.NewBuilder(lset), c.ScrapeConfigs[0].MetricRelabelConfigs...)
}

// FuzzTheRuleDropsTheCulpritAndNothingElse has a job that explodes, and others that
// differ from it in one label.
func FuzzTheRuleDropsTheCulpritAndNothingElse(f *testing.F) {
	f.Add("api", "shop", "http_requests_total", "request_id")
	f.Add("a;b", "", "m", "l")
	f.Add("a;b|\t\n", "-", "yes", "null")
	f.Add("1", "2", "3e5", "\u2028")
	f.Add("$1", "(.*)", "[", "{}")
	f.Add(" a", "b ", "\x00", "\x7f\u0085")
	f.Add(strings.Repeat("x", maxValue+1), "ü", "0x1", "~")
	f.Fuzz(func(t *testing.T, job, namespace, metric, label string) {
		if job == "" || metric == "" || label == "" || label == labels.MetricName || label == "job" || label == "namespace" || label == "instance" {
			t.Skip()
		}
		tracker := seeded(6)
		for i := range few {
			tracker.NewSeries(app(job, namespace, metric, label, i), i%3 == 0)
		}
		c := tracker.Report().Culprits[0]
		if c.Relabel == "" {
			return
		}
		culprit := app(job, namespace, metric, label, few+1)
		require.True(t, drops(t, c.Relabel, culprit), "%q", c.Relabel)
		others := []labels.Labels{
			app(job+"x", namespace, metric, label, 1), app("x"+job, namespace, metric, label, 1),
			app(job, namespace, metric+"x", label, 1), app(job, namespace, "x"+metric, label, 1),
			labels.NewBuilder(culprit).Del("job").Labels(),
			labels.NewBuilder(culprit).Del(labels.MetricName).Labels(),
		}
		if len(label) <= maxName && utf8.ValidString(label) { // Else it is among others.
			others = append(others, labels.NewBuilder(culprit).Del(label).Labels())
		}
		if namespace != "" { // Else none is named.
			others = append(others, app(job, namespace+"x", metric, label, 1), app(job, "x"+namespace, metric, label, 1), app(job, "", metric, label, 1))
		}
		for _, other := range others {
			require.False(t, drops(t, c.Relabel, other), "%q drops %v", c.Relabel, other)
		}
	})
}

func BenchmarkNewSeries(b *testing.B) {
	series := make([]labels.Labels, 1000)
	for i := range series {
		lb := labels.NewBuilder(app("kubelet", "kube-system", "container_memory_usage_bytes", "id", i))
		for j := range 12 {
			lb.Set("label_"+strconv.Itoa(j), strings.Repeat("x", 30)+strconv.Itoa(i))
		}
		series[i] = lb.Labels()
	}
	b.Run("one after the other", func(b *testing.B) {
		tracker := New()
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			tracker.NewSeries(series[i%len(series)], false)
		}
	})
	b.Run("all of them kept", func(b *testing.B) {
		tracker := New()
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if i%sampleSize == 0 {
				clear(tracker.panes[:])
			}
			tracker.NewSeries(series[i%len(series)], false)
		}
	})
}

func BenchmarkReport(b *testing.B) {
	tracker := New()
	last := time.Now().UnixNano() / int64(pane)
	for n := range int64(panes) {
		r := &tracker.panes[(last-n)%panes]
		*r = reservoir{number: last - n, names: map[string]*string{}, created: 100_000}
		for i := range sampleSize {
			r.series = append(r.series, tracker.keep(r, app("job"+strconv.Itoa(i%9), "ns"+strconv.Itoa(i%99), "m"+strconv.Itoa(i%999), "l", i), false))
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		tracker.Report()
	}
}

func TestAReportIsTheSameForASecondHoweverManyAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracker := seeded(10)
		first := tracker.Recent()
		tracker.NewSeries(app("api", "", "m", "l", 1), false)
		require.Same(t, first, tracker.Recent())
		time.Sleep(fresh + time.Millisecond)
		require.EqualValues(t, 1, tracker.Recent().Created)
	})
}

func TestMetricsAreFewAndCanBeScrapedWhateverTheNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracker := seeded(8)
		reg := prometheus.NewPedanticRegistry()
		reg.MustRegister(tracker)
		names := map[string]struct{}{}
		for minute := range 24 { // Every two minutes new names, three at a time.
			for i := range 6000 {
				tracker.NewSeries(app(fmt.Sprintf("\xff%s%d-%d", strings.Repeat("x", maxValue), minute/2, i%3), "\xc3", "m", "l", i), i%2 == 0)
			}
			time.Sleep(time.Minute)
			families, err := reg.Gather()
			require.NoError(t, err)
			for _, family := range families {
				require.LessOrEqual(t, len(family.GetMetric()), most)
				for _, m := range family.GetMetric() {
					names[m.GetLabel()[0].GetValue()] = struct{}{}
				}
			}
		}
		require.Greater(t, len(names), 3)
		require.LessOrEqual(t, len(names), 12*3)
	})
}

// TestWhoHasMoreThanATenthIsNamed hides an explosion among other new series.
func TestWhoHasMoreThanATenthIsNamed(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 9))
		tracker := seeded(seed)
		share := 0.1 + 0.5*rng.Float64()
		jobs, metrics, namespaces := 1+rng.IntN(50), 1+rng.IntN(300), 1+rng.IntN(20)
		for i := range 30_000 {
			lset := app("job"+strconv.Itoa(rng.IntN(jobs)), "ns"+strconv.Itoa(rng.IntN(namespaces)), "m"+strconv.Itoa(rng.IntN(metrics)), "pod", rng.IntN(100))
			if rng.Float64() < share {
				lset = app("job0", "ns0", "exploding", "id", i)
			}
			tracker.NewSeries(lset, false)
		}
		var names []string
		for _, c := range tracker.Report().Culprits {
			if c.Metric == "exploding" {
				require.Equal(t, "id", c.Labels[0].Name)
				require.InDelta(t, share, c.Share, 0.08)
				require.Contains(t, c.Relabel, "exploding")
			}
			names = append(names, c.Metric)
		}
		require.Contains(t, names, "exploding", "seed %d: %.2f of the new series, beside %d jobs, %d metrics, %d namespaces", seed, share, jobs, metrics, namespaces)
	}
}
