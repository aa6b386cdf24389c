// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package promql_test

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/teststorage"
)

// BenchmarkQueriesOfContainers queries series with the labels that a cluster's have.
func BenchmarkQueriesOfContainers(b *testing.B) {
	s := teststorage.New(b)
	var lsets []labels.Labels
	for i := range 1000 {
		for _, metric := range []string{"container_cpu_usage_seconds_total", "container_memory_working_set_bytes"} {
			lsets = append(lsets, labels.FromStrings(
				"__name__", metric, "container", fmt.Sprintf("app-%d", i%20), "endpoint", "https-metrics",
				"id", fmt.Sprintf("/kubepods.slice/kubepods-burstable-pod%032x.slice/cri-containerd-%064x.scope", i, i),
				"image", fmt.Sprintf("registry.example.org/team-%d/app@sha256:%064x", i%40, i%400), "instance", fmt.Sprintf("10.0.%d.17:10250", i/100),
				"job", "kubelet", "metrics_path", "/metrics/cadvisor", "name", fmt.Sprintf("%064x", i), "namespace", fmt.Sprintf("namespace-%d", i%20),
				"node", fmt.Sprintf("node-%d", i/100), "pod", fmt.Sprintf("some-deployment-%010x-%05x", i/10, i), "service", "kubelet"))
		}
	}
	for i := range 50 {
		for le := range 20 {
			lsets = append(lsets, labels.FromStrings(
				"__name__", "apiserver_request_duration_seconds_bucket", "component", "apiserver", "endpoint", "https-metrics",
				"group", fmt.Sprintf("group-%d.example.org", i/20), "instance", "10.0.0.1:6443", "job", "apiserver", "le", strconv.Itoa(le+1),
				"namespace", "default", "resource", fmt.Sprintf("resources%d", i), "scope", "cluster", "service", "kubernetes", "verb", "LIST", "version", "v1"))
		}
	}
	for i := range 200 { // As kube_pod_annotations has them.
		for _, metric := range []string{"kube_a", "kube_b"} {
			for _, size := range []int{50, 250} {
				b := labels.NewBuilder(labels.FromStrings("__name__", fmt.Sprintf("%s_%d", metric, 40*size), "pod", fmt.Sprintf("pod-%d", i)))
				for k := range 40 {
					b.Set(fmt.Sprintf("annotation_%02d", k), fmt.Sprintf("%d-%d-%s", i, k, strings.Repeat("x", size-20)))
				}
				lsets = append(lsets, b.Labels())
			}
		}
	}
	refs := make([]storage.SeriesRef, len(lsets))
	for at := range int64(120) {
		app := s.AppenderV2(b.Context())
		for i, lset := range lsets {
			var err error
			refs[i], err = app.Append(refs[i], lset, 0, at*15_000, float64(at*int64(i)), nil, nil, storage.AOptions{})
			require.NoError(b, err)
		}
		require.NoError(b, app.Commit())
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 50_000_000, Timeout: time.Minute})
	for _, expr := range []string{
		"container_memory_working_set_bytes",
		"sum by (namespace, pod) (container_memory_working_set_bytes)",
		"rate(container_cpu_usage_seconds_total[5m])",
		"sum by (pod) (rate(container_cpu_usage_seconds_total[5m]))",
		"histogram_quantile(0.99, sum by (le, resource) (rate(apiserver_request_duration_seconds_bucket[5m])))",
		"container_cpu_usage_seconds_total / on (namespace, pod, container, id) container_memory_working_set_bytes",
		`count({__name__=~".+"})`,
		"topk(5, container_memory_working_set_bytes)",
		"container_cpu_usage_seconds_total and container_memory_working_set_bytes",
		"container_cpu_usage_seconds_total or container_memory_working_set_bytes",
		"container_cpu_usage_seconds_total + ignoring(image) container_memory_working_set_bytes",
		`label_replace(container_memory_working_set_bytes, "x", "$1", "pod", "(.*)-.*")`,
		`label_join(container_memory_working_set_bytes, "x", "/", "namespace", "pod")`,
		"sort(kube_b_2000)", "kube_a_2000 or kube_b_2000", "kube_a_2000 and kube_b_2000", "kube_a_2000 + kube_b_2000", "sum without (pod) (kube_b_2000)",
		"sort(kube_b_10000)", "kube_a_10000 or kube_b_10000", "kube_a_10000 and kube_b_10000", "kube_a_10000 + kube_b_10000", "sum without (pod) (kube_b_10000)",
	} {
		for _, steps := range []int{1, 60} {
			b.Run(fmt.Sprintf("expr=%s/steps=%d", expr, steps), func(b *testing.B) {
				b.ReportAllocs()
				end, before := time.Unix(1785, 0), cpuTime(b)
				for b.Loop() {
					q, err := engine.NewRangeQuery(b.Context(), s, nil, expr, end.Add(-time.Duration(steps-1)*20*time.Second), end, 20*time.Second)
					require.NoError(b, err)
					require.NoError(b, q.Exec(b.Context()).Err)
					q.Close()
				}
				b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// cpuTime returns the processor time of the process, which other processes do not change.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
