// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package relabel

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	promrelabel "github.com/prometheus/prometheus/model/relabel"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/stretchr/testify/require"
)

// chain is the profile as a Prometheus without this package would apply it.
func chain(t testing.TB, p Profile) []*promrelabel.Config {
	t.Helper()
	cfgs := make([]*promrelabel.Config, 0, len(p.Rules))
	for _, r := range p.Rules {
		cfg, err := r.RelabelConfig()
		require.NoError(t, err)
		cfgs = append(cfgs, cfg)
	}
	return cfgs
}

// dropByChain asks Prometheus's relabelling which rule drops the series.
func dropByChain(cfgs []*promrelabel.Config, lset labels.Labels) (int, bool) {
	lb := labels.NewBuilder(lset)
	for i, cfg := range cfgs {
		if !promrelabel.ProcessBuilder(lb, cfg) {
			return i, true
		}
	}
	return -1, false
}

// requireSameAsChain fails for the first series on which the two forms differ.
// It returns how many series each rule drops.
func requireSameAsChain(t testing.TB, d *Dropper, cfgs []*promrelabel.Config, series []labels.Labels) []int {
	t.Helper()
	perRule := make([]int, len(d.Profile().Rules))
	for _, lset := range series {
		wantRule, wantDrop := dropByChain(cfgs, lset)
		rule, drop := d.Drop(lset)
		if rule != wantRule || drop != wantDrop {
			t.Fatalf("%s: dropped by rule %d (%t), relabelling says %d (%t)", lset, rule, drop, wantRule, wantDrop)
		}
		if drop {
			perRule[rule]++
		}
	}
	return perRule
}

func mustCompile(t testing.TB, p Profile) *Dropper {
	t.Helper()
	d, err := Compile(p)
	require.NoError(t, err)
	return d
}

func mustProfile(t testing.TB, name string) Profile {
	t.Helper()
	p, err := ProfileByName(name)
	require.NoError(t, err)
	return p
}

// syntheticNames are the names the rules list, their neighbours, and names that
// are nobody's, some of them only legal as UTF-8 names.
func syntheticNames(t testing.TB) []string {
	t.Helper()
	names := []string{
		"", "up", "process_start_time_seconds", "go_goroutines", "container_memory_swap", "a", "A", "a;b", ";", "Ünï",
		"go_godebug_non_default_behavior_http2client_events_total",
		"go_godebug_non_default_behavior__events_total",
		"go_godebug_non_default_behavior_a;b_events_total",
		"container_cpu_usage_seconds_total", "apiserver_request_sli_duration_seconds_bucket",
	}
	// The shares make sure that a few ten thousand series reach every rule.
	names = slices.Repeat(names, 8)
	d := mustCompile(t, mustProfile(t, ProfileMinimal))
	var listed []string
	for _, c := range d.rules {
		listed = append(listed, c.parts[0].SetMatches()...)
	}
	slices.Sort(listed)
	for _, n := range slices.Compact(listed) {
		names = append(names, slices.Repeat([]string{n}, 5)...)
		names = append(names, n+"x", "x"+n, n[:len(n)-1], strings.ToUpper(n), n+";", n+";kubelet", n+"\n")
	}
	return names
}

// syntheticSeries returns n series put together at random, with a fixed seed,
// from values that the rules look at and values that resemble them.
func syntheticSeries(t testing.TB, n int) []labels.Labels {
	t.Helper()
	values := map[string][]string{
		"__name__": syntheticNames(t),
		"job": {
			"", "kubelet", "kubelet2", "apiserver", "kube-scheduler", "cadvisor", "etcd", "node-exporter",
			"integrations/kubernetes/cadvisor", "kubelet;kubelet", "Kubelet", "kubelet\n",
		},
		"le":    {"", "1", "1.0", "30", "30.0", "+Inf", "0.005", "1;0", "3e+01"},
		"scope": {"", "hierarchy", "container", "hierarchy;kubelet", ";"},
		"id": {
			"", "/", "/kubepods", "/kubepods.slice", "/kubepodsxslice", "/kubepods/burstable", "/kubepods/guaranteed",
			"/kubepods.slice/kubepods-besteffort.slice", "/system.slice", "/system.slice/containerd.service",
			"/system.slice/docker-0123456789abcdef.scope", "/system.slice/a;b.service",
			"/kubepods/burstable/pod4aa017de-86c6-41cd-b4ad-21b66575685c",
		},
		"container": {"", "", "", "app", ";"},
		"pod":       {"", "", "", "app-0", "a;b"},
	}
	names := []string{"__name__", "container", "id", "job", "le", "pod", "scope"}
	rnd := rand.New(rand.NewPCG(1, 2))
	series := make([]labels.Labels, 0, n)
	b := labels.NewScratchBuilder(len(names))
	for range n {
		b.Reset()
		for _, l := range names {
			if v := values[l][rnd.IntN(len(values[l]))]; v != "" {
				b.Add(l, v)
			}
		}
		series = append(series, b.Labels())
	}
	return series
}

// sharedDir holds real data that is not part of the repository.
const sharedDir = "../../../shared"

// expositionJobs gives each kind of exposition the job that kube-prometheus
// scrapes it with.
var expositionJobs = map[string]string{
	"api-server.prom":         "apiserver",
	"cadvisor.prom":           "kubelet",
	"controller-manager.prom": "kube-controller-manager",
	"etcd.prom":               "etcd",
	"ksm.prom":                "kube-state-metrics",
	"scheduler.prom":          "kube-scheduler",
	"node_exporter-e2e.prom":  "node-exporter",
}

// realExpositions returns the series of every real exposition by its path. The
// test is skipped where there are none.
func realExpositions(t testing.TB) map[string][]labels.Labels {
	t.Helper()
	out := map[string][]labels.Labels{}
	for _, pattern := range []string{"*.prom", "*/*.prom"} {
		paths, err := filepath.Glob(filepath.Join(sharedDir, "expositions", pattern))
		require.NoError(t, err)
		for _, path := range paths {
			job, ok := expositionJobs[filepath.Base(path)]
			require.True(t, ok, "no job known for %s", path)
			name, err := filepath.Rel(filepath.Join(sharedDir, "expositions"), path)
			require.NoError(t, err)
			out[name] = parseExposition(t, path, job)
		}
	}
	if len(out) == 0 {
		t.Skip("no real expositions beside the repository")
	}
	return out
}

// parseExposition reads a text exposition as a scrape would and adds the labels
// of a target.
func parseExposition(t testing.TB, path, job string) []labels.Labels {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	p, err := textparse.New(text, "text/plain", nil, textparse.ParserOptions{})
	require.NoError(t, err)
	var series []labels.Labels
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return series
		}
		require.NoError(t, err)
		if entry != textparse.EntrySeries {
			continue
		}
		var lset labels.Labels
		p.Labels(&lset)
		b := labels.NewBuilder(lset)
		for _, target := range []labels.Label{
			{Name: "job", Value: job},
			{Name: "instance", Value: "192.0.2.1:8443"},
		} {
			if lset.Get(target.Name) == "" {
				b.Set(target.Name, target.Value)
			}
		}
		series = append(series, b.Labels())
	}
}
