// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package size

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/promguard/promguard/internal/kubelike"
	"github.com/promguard/promguard/internal/promapi"
	"github.com/promguard/promguard/internal/promapi/promtest"
	"github.com/promguard/promguard/internal/relabel"
)

var update = flag.Bool("update", false, "rewrite the golden file")

func profile(t *testing.T, name string) relabel.Profile {
	t.Helper()
	p, err := relabel.ProfileByName(name)
	require.NoError(t, err)
	return p
}

func modelOf(t *testing.T, nodes int) Load {
	t.Helper()
	l, err := Model(profile(t, "recommended"), Cluster{Nodes: nodes, PodsPerNode: 30, Interval: 30 * time.Second, Churn: 0.1})
	require.NoError(t, err)
	return l
}

func plan(t *testing.T, l Load, memory float64) *Plan {
	t.Helper()
	p, err := New(l, Limits{ShardMemory: memory, Replicas: 2, Retention: 15 * 24 * time.Hour})
	require.NoError(t, err)
	return p
}

// TestModelIsThatOfTheModelledTargets counts a whole modelled cluster, which Model puts
// together from a small one.
func TestModelIsThatOfTheModelledTargets(t *testing.T) {
	c, err := kubelike.New(kubelike.Config{Series: 500_000, Start: time.Unix(0, 0)})
	require.NoError(t, err)
	series, nodes := map[string]float64{}, 0
	for _, target := range c.Targets() {
		for _, g := range target.Groups() {
			series[target.Labels.Get("job")] += float64(g.Len())
		}
		if target.Pool == "node-exporter" {
			nodes++
		}
	}
	l, err := Model(profile(t, "off"), Cluster{Nodes: nodes, PodsPerNode: 30, Interval: time.Minute})
	require.NoError(t, err)
	for _, p := range l.Parts {
		if p.Job == "etcd" {
			continue // There is one in the modelled cluster.
		}
		require.InEpsilon(t, series[p.Job], p.Series, 0.02, p.Job)
		require.Zero(t, p.Dropped)
	}
}

// TestModelIsOffByWhatItSays compares the model with the expositions of two real
// clusters of a node.
func TestModelIsOffByWhatItSays(t *testing.T) {
	dirs, err := filepath.Glob("../../../shared/expositions/*/ksm.prom")
	require.NoError(t, err)
	if len(dirs) == 0 {
		t.Skip("no expositions beside the repository")
	}
	of, err := units(profile(t, "off"))
	require.NoError(t, err)
	for _, ksm := range dirs {
		count := func(file, prefix string) float64 {
			text, err := os.ReadFile(filepath.Join(filepath.Dir(ksm), file))
			require.NoError(t, err)
			n := 0.0
			for line := range strings.Lines(string(text)) {
				if !strings.HasPrefix(line, "#") && strings.HasPrefix(line, prefix) {
					n++
				}
			}
			return n
		}
		pods := count("ksm.prom", "kube_pod_info{")
		off := func(pool, file string) float64 {
			return (of[unit{pool, false}].series+pods*of[unit{pool, true}].series)/count(file, "") - 1
		}
		t.Logf("%s: cadvisor %.2f, ksm %.2f, apiserver %.2f", ksm, off("cadvisor", "cadvisor.prom"), off("kube-state-metrics", "ksm.prom"), off("apiserver", "api-server.prom"))
		require.InDelta(t, -0.12, off("cadvisor", "cadvisor.prom"), 0.015)
		require.InDelta(t, -0.29, off("kube-state-metrics", "ksm.prom"), 0.025)
		require.InDelta(t, 0.22, off("apiserver", "api-server.prom"), 0.01)
	}
}

func TestSmallClusterNeedsOneShardAndNoBucket(t *testing.T) {
	p := plan(t, modelOf(t, 100), 64*gib)
	require.Equal(t, 1, p.Shards)
	require.Zero(t, p.Unevenness)
	require.Zero(t, p.BucketGiB)
	require.Empty(t, p.Split)
	require.Equal(t, float64(15*daySeconds), p.RetentionSeconds)
	require.InEpsilon(t, p.Series*1.5, p.HeadSeries, 0.2)
}

func TestShardsHoldTheLoadWithinTheirMemory(t *testing.T) {
	for _, nodes := range []int{1000, 7500, 15000} {
		for _, memory := range []float64{16 * gib, 64 * gib} {
			l := modelOf(t, nodes)
			p := plan(t, l, memory)
			total := l.total()
			whole := headroom * l.heap(total.Series, total.Dropped)
			require.LessOrEqual(t, p.MemoryGiB*gib, memory, "%d nodes", nodes)
			require.LessOrEqual(t, p.HeapGiB, 0.6*0.9*p.MemoryGiB, "%d nodes: six tenths of GOMEMLIMIT live", nodes)
			require.GreaterOrEqual(t, p.MemoryGiB*gib*float64(p.Shards), whole, "%d nodes", nodes)
			require.Less(t, p.MemoryGiB*gib*float64(p.Shards), whole*(1.1+p.Unevenness)+float64(p.Shards)*gib, "%d nodes", nodes)
			require.Greater(t, p.MaxHeadSeries*float64(p.Shards), 1.05*p.HeadSeries*(1+p.Unevenness), "%d nodes: what is planned is within the limit", nodes)
			if p.Shards > 1 {
				require.Contains(t, p.Split, "kube-state-metrics", "%d nodes", nodes)
				require.InEpsilon(t, 15*p.BucketGiBPerDay, p.BucketGiB, 1e-9)
				// Blocks of two weeks of the largest server, and what they are made of.
				require.InDelta(t, 2*1.2*14*p.BucketGiBPerDay/2/float64(p.Shards)*(1+p.Unevenness), p.CompactorGiB, 1)
			}
		}
	}
}

// TestThePatchIsWhatTheManifestsAreTestedWith: kustomize builds it where its library is.
func TestThePatchIsWhatTheManifestsAreTestedWith(t *testing.T) {
	const golden = "../../deploy/kubernetes/testdata/sharded/size.yaml"
	var out bytes.Buffer
	require.NoError(t, plan(t, modelOf(t, 15_000), 32*gib).Write(&out, "patch"))
	if *update {
		require.NoError(t, os.WriteFile(golden, out.Bytes(), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), out.String(), "run the test with -update and read the diff")
}

// TestUnevennessBoundsTheLargestShard shares targets at random.
func TestUnevennessBoundsTheLargestShard(t *testing.T) {
	l := Load{Parts: []Part{{Job: "a", Targets: 900, Series: 900_000, Interval: 30}, {Job: "b", Targets: 3, Series: 60_000, Interval: 30}}, HeadFactor: 1}
	l.Sizes.HeadBytesPerSeries = 1000
	p := plan(t, l, 500e6)
	require.Greater(t, p.Shards, 2)
	require.Contains(t, p.Split, "b")
	over := 0
	const draws = 1000
	for seed := range draws {
		shares := make([]float64, p.Shards)
		for _, part := range l.Parts {
			targets := part.Targets * max(1, p.Split[part.Job])
			for i := range int(targets) {
				h := labels.FromStrings("t", part.Job, "i", string(rune(i+1)), "s", string(rune(seed+1))).Hash()
				shares[h%uint64(p.Shards)] += part.Series / targets
			}
		}
		for _, s := range shares {
			if s > 960_000/float64(p.Shards)*(1+p.Unevenness) {
				over++
			}
		}
	}
	require.Less(t, float64(over)/float64(draws*p.Shards), 0.01)
}

func TestPlanIsLinearInNodes(t *testing.T) {
	one, eight := plan(t, modelOf(t, 1000), 640*gib), plan(t, modelOf(t, 8000), 640*gib)
	require.InEpsilon(t, 8, eight.Series/one.Series, 0.01)
	require.InEpsilon(t, 8, eight.HeapGiB/one.HeapGiB, 0.01)
	require.InEpsilon(t, 8, eight.SamplesPerSecond/one.SamplesPerSecond, 0.01)
}

func TestPatchIsOfTheOperatorsObject(t *testing.T) {
	var out bytes.Buffer
	p := plan(t, modelOf(t, 7500), 32*gib)
	require.NoError(t, p.Write(&out, "patch"))
	var object struct {
		Kind string
		Spec struct {
			Shards, Replicas int
			Retention        string
		}
	}
	require.NoError(t, yaml.Unmarshal(out.Bytes(), &object))
	require.Equal(t, "Prometheus", object.Kind)
	require.Equal(t, p.Shards, object.Spec.Shards)
	require.Equal(t, 2, object.Spec.Replicas)
	require.Equal(t, "1d", object.Spec.Retention)
}

func TestLoadOfAServerIsScaledByItsNodes(t *testing.T) {
	var series []labels.Labels
	for _, node := range []string{"a", "b"} {
		series = append(series,
			labels.FromStrings("__name__", "kube_node_info", "job", "ksm", "instance", "k", "node", node),
			labels.FromStrings("__name__", "up", "job", "kubelet", "instance", node),
			labels.FromStrings("__name__", "scrape_samples_post_metric_relabeling", "job", "kubelet", "instance", node),
		)
	}
	series = append(series,
		labels.FromStrings("__name__", "up", "job", "ksm", "instance", "k"),
		labels.FromStrings("__name__", "scrape_samples_post_metric_relabeling", "job", "ksm", "instance", "k"),
	)
	srv := promtest.New(t, time.Minute, series...)
	api := func() *promapi.Client {
		c, err := promapi.New(srv.URL, srv.Client().Transport, promapi.Budget{Requests: 500, Total: time.Minute, Timeout: time.Second, Series: 1000, Bytes: 1 << 20})
		require.NoError(t, err)
		t.Cleanup(c.Close)
		return c
	}
	l, err := Live(t.Context(), profile(t, "recommended"), api(), 20, 30*time.Second)
	require.NoError(t, err)
	require.Len(t, l.Parts, 2)
	for _, p := range l.Parts {
		want := Part{Job: "kubelet", Targets: 20, Series: 20, Interval: p.Interval}
		if p.Job == "ksm" {
			want = Part{Job: "ksm", Targets: 1, Series: 10, Interval: p.Interval}
		}
		require.Equal(t, want, p)
	}
	l, err = Live(t.Context(), profile(t, "recommended"), api(), 0, 30*time.Second)
	require.NoError(t, err)
	require.Equal(t, Part{Series: 3}, l.total())
}

func TestServerThatDoesNotSayWhatItScrapesIsRefused(t *testing.T) {
	srv := promtest.New(t, time.Minute, labels.FromStrings("__name__", "up", "job", "a"))
	ask := func(nodes int) error {
		c, err := promapi.New(srv.URL, srv.Client().Transport, promapi.Budget{Requests: 500, Total: time.Minute, Timeout: time.Second, Series: 1000, Bytes: 1 << 20})
		require.NoError(t, err)
		defer c.Close()
		_, err = Live(t.Context(), profile(t, "recommended"), c, nodes, 30*time.Second)
		return err
	}
	require.ErrorContains(t, ask(0), "has no scrape_samples_post_metric_relabeling")
	require.ErrorContains(t, ask(5), "give no --nodes")
}

func TestPlanThatCannotBeIsRefused(t *testing.T) {
	_, err := New(modelOf(t, 1), Limits{ShardMemory: 0, Replicas: 2, Retention: time.Hour})
	require.EqualError(t, err, "--shard-memory, --replicas and --retention must be above 0")
	_, err = New(modelOf(t, 7500), Limits{ShardMemory: 1e6, Replicas: 2, Retention: time.Hour})
	require.EqualError(t, err, "give more --shard-memory: 1000 shards are not enough")
	_, err = Model(profile(t, "recommended"), Cluster{Nodes: -1, Interval: time.Second})
	require.ErrorContains(t, err, "--nodes and --scrape-interval must be above 0")
}
