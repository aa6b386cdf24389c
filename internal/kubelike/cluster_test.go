// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package kubelike

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/stretchr/testify/require"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newCluster(t *testing.T, cfg Config) *Cluster {
	t.Helper()
	cfg.Start = start
	c, err := New(cfg)
	require.NoError(t, err)
	return c
}

// stored returns the cluster's series at a time, with their values, by labels.
func stored(t *testing.T, c *Cluster, at time.Duration) map[string]float64 {
	t.Helper()
	series := map[string]float64{}
	for _, target := range c.Targets() {
		for _, g := range target.Groups() {
			generation := g.Generation(at)
			ls := g.AppendLabels(nil, generation)
			vs := g.AppendValues(nil, generation, at)
			require.Len(t, ls, g.Len())
			require.Len(t, vs, g.Len())
			for i := range ls {
				key := ls[i].String()
				if _, twice := series[key]; twice {
					require.Fail(t, "a series exists twice", key)
				}
				series[key] = vs[i]
			}
		}
	}
	return series
}

// scraped returns what Prometheus' own parser makes of a target's exposition,
// joined with the target's labels as a scrape does it.
func scraped(t *testing.T, c *Cluster, at time.Duration) map[string]float64 {
	t.Helper()
	series := map[string]float64{}
	for _, target := range c.Targets() {
		var text bytes.Buffer
		require.NoError(t, target.WriteText(&text, at))
		p, err := textparse.New(text.Bytes(), "text/plain", labels.NewSymbolTable(), textparse.ParserOptions{})
		require.NoError(t, err)
		for {
			entry, err := p.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			if entry != textparse.EntrySeries {
				continue
			}
			var ls labels.Labels
			p.Labels(&ls)
			_, ts, v := p.Series()
			require.Nil(t, ts)
			b := labels.NewBuilder(ls)
			target.Labels.Range(func(l labels.Label) {
				if ls.Has(l.Name) {
					require.True(t, target.HonorLabels, "%s collides with a label of its target", ls)
					return
				}
				b.Set(l.Name, l.Value)
			})
			series[b.Labels().String()] = v
		}
	}
	return series
}

func TestClusterHasExactlyTheSeriesAskedFor(t *testing.T) {
	for _, n := range []int{1, 7, 500, 1_000, 5_000, 20_000} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			c := newCluster(t, Config{Series: n, Churn: 2, Seed: 1})
			for _, at := range []time.Duration{0, 17 * time.Minute, 5 * time.Hour} {
				require.Len(t, stored(t, c, at), n)
			}
		})
	}
}

func TestStoredSeriesAreWhatPrometheusMakesOfTheExposition(t *testing.T) {
	c := newCluster(t, Config{Series: 10_000, Churn: 1, Seed: 3})
	for _, at := range []time.Duration{0, 90 * time.Minute} {
		require.Equal(t, scraped(t, c, at), stored(t, c, at))
	}
}

func TestExpositionNamesTypesOnceAndRight(t *testing.T) {
	c := newCluster(t, Config{Series: 10_000, Seed: 1})
	for _, target := range c.Targets() {
		var text bytes.Buffer
		require.NoError(t, target.WriteText(&text, time.Hour))
		types := map[string]string{}
		var current string
		for line := range strings.Lines(text.String()) {
			if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
				name, kind, _ := strings.Cut(strings.TrimSpace(rest), " ")
				require.NotContains(t, types, name, "family in two pieces")
				types[name], current = kind, name
				continue
			}
			if strings.HasPrefix(line, "#") {
				continue
			}
			name := line[:strings.IndexAny(line, "{ ")]
			if types[current] == "histogram" {
				name = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
			}
			require.Equal(t, current, name)
			require.Equal(t, strings.HasSuffix(name, "_total"), types[current] == "counter", name)
		}
	}
}

func TestBoundsAreWrittenAsClientsPrintThemAndStoredAsPrometheusDoes(t *testing.T) {
	c := newCluster(t, Config{Series: 5_000, Seed: 1})
	var text bytes.Buffer
	require.NoError(t, c.Targets()[0].WriteText(&text, 0))
	require.Contains(t, text.String(), `le="10"`)
	require.Contains(t, text.String(), `le="1.05e+06"`)
	require.Contains(t, text.String(), `le="+Inf"`)
	all := strings.Join(keys(stored(t, c, 0)), "\n")
	require.Contains(t, all, `le="10.0"`)
	require.Contains(t, all, `le="1.05e+06"`)
	require.Contains(t, all, `le="+Inf"`)
	require.NotContains(t, all, `le="10"`)
	require.NotContains(t, all, `=""`)
}

func keys(m map[string]float64) []string {
	ks := make([]string, 0, len(m))
	for k := range m {
		ks = append(ks, k)
	}
	return ks
}

func TestSameConfigGivesTheSameClusterAndAnotherSeedAnother(t *testing.T) {
	cfg := Config{Series: 5_000, Churn: 1, Seed: 9}
	a, b := stored(t, newCluster(t, cfg), time.Hour), stored(t, newCluster(t, cfg), time.Hour)
	require.Equal(t, a, b)
	cfg.Seed++
	require.NotEqual(t, a, stored(t, newCluster(t, cfg), time.Hour))
}

func TestCountersNeverFallAndSomeRiseAndSomeStandStill(t *testing.T) {
	c := newCluster(t, Config{Series: 4_000, Seed: 1})
	rising, still, gauges := 0, 0, 0
	before := stored(t, c, 0)
	for at := 5 * time.Second; at < 30*time.Minute; at += 147 * time.Second {
		after := stored(t, c, at)
		for ls, v := range after {
			name, _, _ := strings.Cut(strings.TrimPrefix(ls, "{__name__=\""), "\"")
			switch {
			case !strings.HasSuffix(name, "_total") && !strings.HasSuffix(name, "_bucket") && !strings.HasSuffix(name, "_count"):
				if v != before[ls] {
					gauges++
				}
			case v > before[ls]:
				rising++
			case v < before[ls]:
				require.Fail(t, "a counter fell", "%s: %v after %v", ls, v, before[ls])
			default:
				still++
			}
		}
		before = after
	}
	require.Positive(t, gauges)
	require.Positive(t, rising)
	require.Positive(t, still)
}

func TestBucketsAreCumulativeAndTheLastEqualsTheCount(t *testing.T) {
	l := newLayout(etcdFamilies, scopeTarget)
	previous := 0.0
	checked := 0
	for i := range l.templates {
		tmpl := &l.templates[i]
		v := tmpl.value(11, start, 0, time.Hour)
		switch tmpl.part {
		case bucket:
			require.GreaterOrEqual(t, v, previous, tmpl.name)
			previous = v
		case count:
			require.Equal(t, previous, v, tmpl.name)
			previous = 0
			checked++
		}
	}
	require.Positive(t, checked)
}

func TestChurnReplacesPodsAtAboutTheRateAskedFor(t *testing.T) {
	c := newCluster(t, Config{Series: 25_000, Churn: 1, Seed: 5})
	pods, replaced := map[*pod]bool{}, 0
	for _, target := range c.Targets() {
		for _, g := range target.Groups() {
			if g.pod == nil || g.pod.life == 0 || pods[g.pod] {
				continue
			}
			pods[g.pod] = true
			replaced += g.Generation(20*time.Hour) - g.Generation(10*time.Hour)
		}
	}
	require.Greater(t, len(pods), 40)
	require.InEpsilon(t, 10.0, float64(replaced)/float64(len(pods)), 0.15)

	old, young := stored(t, c, 0), stored(t, c, 30*time.Minute)
	gone := 0
	for ls := range old {
		if _, ok := young[ls]; !ok {
			gone++
		}
	}
	require.Positive(t, gone)
	require.Less(t, gone, len(old)/2)
}

func TestFamiliesThatTheDropRulesKnowArePresent(t *testing.T) {
	all := strings.Join(keys(stored(t, newCluster(t, Config{Series: 10_000, Seed: 1}), 0)), "\n")
	for _, name := range []string{
		"apiserver_request_duration_seconds_bucket", "apiserver_request_body_size_bytes_bucket", "etcd_request_duration_seconds_bucket",
		"container_tasks_state", "container_cpu_load_average_10s", "container_spec_memory_limit_bytes", "kubernetes_feature_enabled",
		"kube_pod_status_phase", "kube_pod_status_reason", "node_cpu_seconds_total", "kubelet_runtime_operations_duration_seconds_bucket",
	} {
		require.Contains(t, all, `"`+name+`"`)
	}
}

func TestConfigOutOfRangeIsRefused(t *testing.T) {
	for _, tc := range []struct {
		name string
		cfg  Config
		want string
	}{
		{"no series", Config{Start: start}, "a cluster needs at least 1 series, got 0"},
		{"negative churn", Config{Series: 1, Churn: -1, Start: start}, "churn must be from 0 to 3600 per hour, got -1"},
		{"churn is not a number", Config{Series: 1, Churn: math.NaN(), Start: start}, "churn must be from 0 to 3600 per hour, got NaN"},
		{"no start", Config{Series: 1}, "a cluster needs a start time"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := New(tc.cfg)
			require.EqualError(t, err, tc.want)
		})
	}
}

func TestHandlerServesEveryTargetThatDiscoveryNames(t *testing.T) {
	c, err := New(Config{Series: 10_000, Seed: 1, Start: time.Now()})
	require.NoError(t, err)
	s := httptest.NewServer(NewHandler(c))
	defer s.Close()
	lines := 0
	for _, pool := range []string{"apiserver", "etcd", "kube-state-metrics", "node-exporter", "kubelet", "cadvisor"} {
		var groups []targetGroup
		require.NoError(t, json.Unmarshal([]byte(get(t, s.URL+"/sd/"+pool, http.StatusOK)), &groups))
		require.NotEmpty(t, groups, pool)
		for _, g := range groups {
			require.NotEmpty(t, g.Labels["job"])
			require.NotEmpty(t, g.Labels["instance"])
			for line := range strings.Lines(get(t, "http://"+g.Targets[0]+g.Labels["__metrics_path__"], http.StatusOK)) {
				if !strings.HasPrefix(line, "#") {
					lines++
				}
			}
		}
	}
	require.Equal(t, 10_000, lines)
	get(t, s.URL+"/sd/nothing", http.StatusNotFound)
	get(t, s.URL+"/metrics/kubelet/nowhere", http.StatusNotFound)
}

func get(t *testing.T, url string, status int) string {
	t.Helper()
	res, err := http.Get(url)
	require.NoError(t, err)
	defer res.Body.Close()
	require.Equal(t, status, res.StatusCode)
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return string(body)
}

func BenchmarkWriteText(b *testing.B) {
	c, err := New(Config{Series: 50_000, Churn: 1, Seed: 1, Start: start})
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		for _, t := range c.Targets() {
			require.NoError(b, t.WriteText(io.Discard, time.Hour))
		}
	}
	b.ReportMetric(50_000*float64(b.N)/b.Elapsed().Seconds(), "series/s")
}

func BenchmarkAppendValues(b *testing.B) {
	c, err := New(Config{Series: 50_000, Churn: 1, Seed: 1, Start: start})
	require.NoError(b, err)
	var vs []float64
	for b.Loop() {
		for _, t := range c.Targets() {
			for _, g := range t.Groups() {
				vs = g.AppendValues(vs[:0], 0, time.Hour)
			}
		}
	}
	b.ReportMetric(50_000*float64(b.N)/b.Elapsed().Seconds(), "samples/s")
}
