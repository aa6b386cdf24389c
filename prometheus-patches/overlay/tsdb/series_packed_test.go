// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !slicelabels && !dedupelabels

package tsdb

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/compression"
)

// containerMetric returns the labels of a metric of a container, as cAdvisor has them.
func containerMetric(metric, i int) labels.Labels {
	return labels.FromStrings(
		"__name__", fmt.Sprintf("container_metric_%d_total", metric), "container", fmt.Sprintf("app-%d", i%20),
		"id", fmt.Sprintf("/kubepods.slice/kubepods-burstable-pod%032x.slice/cri-containerd-%064x.scope", i, i),
		"image", fmt.Sprintf("registry.example.org/team-%d/app@sha256:%064x", i%40, i%400), "name", fmt.Sprintf("%064x", i),
		"namespace", fmt.Sprintf("namespace-%d", i%200), "pod", fmt.Sprintf("some-deployment-%010x-%05x", i/10, i),
		"instance", fmt.Sprintf("10.0.%d.17:10250", i/100), "job", "kubelet", "metrics_path", "/metrics/cadvisor",
	)
}

// headOfContainers returns a head of so many series.
func headOfContainers(t testing.TB, n int) *Head {
	h, _ := newTestHead(t, 1000, compression.None, false)
	addContainers(t, h, 0, n)
	return h
}

func addContainers(t testing.TB, h *Head, from, n int) {
	app := h.Appender(t.Context())
	for i := from; i < from+n; i++ {
		_, err := app.Append(0, containerMetric(i%60, i/60), 100, 1)
		require.NoError(t, err)
	}
	require.NoError(t, app.Commit())
}

// Nobody keeps the labels that series were made from: neither the postings nor what is
// left of the appender.
func TestAHeadKeepsNoWholeLabels(t *testing.T) {
	const n = 60_000
	h := headOfContainers(t, n) // Buffers grow.
	before := liveHeap()
	addContainers(t, h, n, n)
	perSeries := float64(liveHeap()-before) / n
	t.Logf("%.0f bytes", perSeries)
	require.Less(t, perSeries, 800.0) // Of which whole labels would be 420.
	runtime.KeepAlive(h)
}

func BenchmarkReadsOfAHead(b *testing.B) {
	const n = 60_000
	h := headOfContainers(b, n)
	for _, bm := range []struct {
		name   string
		hints  storage.SelectHints
		sorted bool
		read   func(labels.Labels) int
	}{
		{name: "select", read: func(ls labels.Labels) int { return ls.Len() }},
		{name: "select-sorted", sorted: true, read: func(ls labels.Labels) int { return ls.Len() }},
		{name: "group", read: func(ls labels.Labels) int { return len(ls.BytesWithLabels(nil, "pod")) }},
		{name: "rate", read: func(ls labels.Labels) int {
			return ls.DropReserved(func(n string) bool { return n == "__name__" }).Len()
		}},
		{name: "series", hints: storage.SelectHints{Func: "series"}, read: func(ls labels.Labels) (size int) {
			ls.Range(func(l labels.Label) { size += len(l.Value) })
			return size
		}},
	} {
		for _, metric := range []string{"container_metric_7_total", ".+"} {
			b.Run(bm.name+"/name="+metric, func(b *testing.B) {
				hints := bm.hints
				hints.Start, hints.End = 0, 1000
				b.ReportAllocs()
				for b.Loop() {
					q, err := NewBlockQuerier(NewRangeHead(h, 0, 1000), 0, 1000)
					require.NoError(b, err)
					set := q.Select(b.Context(), bm.sorted, &hints, labels.MustNewMatcher(labels.MatchRegexp, "__name__", metric))
					read := 0
					for set.Next() {
						read += bm.read(set.At().Labels())
					}
					require.NotZero(b, read)
					require.NoError(b, q.Close())
				}
			})
		}
	}
}

func BenchmarkCompactionOfContainers(b *testing.B) {
	h := headOfContainers(b, 120_000)
	b.ReportAllocs()
	for b.Loop() {
		createBlockFromHead(b, b.TempDir(), h)
	}
}
