// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !slicelabels && !dedupelabels

package tsdb

import (
	"cmp"
	"fmt"
	"math/rand"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/util/compression"
)

// label is one of labels.Labels in any order, as an appender may get it.
func inAnyOrder(pairs ...string) labels.Labels {
	b := labels.NewScratchBuilder(len(pairs) / 2)
	for i := 0; i < len(pairs); i += 2 {
		b.Add(pairs[i], pairs[i+1])
	}
	return b.Labels()
}

var packedSets = []labels.Labels{
	labels.EmptyLabels(),
	labels.FromStrings("a", ""),
	labels.FromStrings("a", "1"),
	labels.FromStrings("a", "1", "b", "2"),
	labels.FromStrings("a", "2", "b", "2"),
	labels.FromStrings("b", "2"),
	labels.FromStrings("b", "2", "c", "3"),
	labels.FromStrings("a", "1", "c", "3"),
	labels.FromStrings("a", "12", "b", "2", "c", "3"),
	labels.FromStrings("aa", "1"),
	labels.FromStrings("a", strings.Repeat("x", 253), "b", "2"),
	labels.FromStrings("a", strings.Repeat("x", 254), "b", "2"),
	labels.FromStrings("a", strings.Repeat("x", 255), "b", "2"),
	labels.FromStrings("a", strings.Repeat("x", 255), "b", strings.Repeat("y", 70_000)),
	labels.FromStrings("a", strings.Repeat("x", 255), "b", "2", strings.Repeat("n", 300), "3"),
	labels.FromStrings(strings.Repeat("n", 300), "3", "z", strings.Repeat("y", 70_000)),
	inAnyOrder("b", "2", "a", "1"),
	inAnyOrder("b", "2", "a", "1", "a", "1", "c", "3"),
	labels.FromStrings(manyPairs(200, "x")...),
	labels.FromStrings(manyPairs(200, "y")...),
	labels.FromStrings(manyPairs(199, "x")...),
}

func manyPairs(n int, value string) (pairs []string) {
	for i := range n {
		pairs = append(pairs, fmt.Sprintf("label_%03d", i), value)
	}
	return pairs
}

// packedOn packs labels on a base, however long the edits are.
func packedOn(t testing.TB, base, lset labels.Labels) packedLabels {
	edits, ok := appendEdits(nil, asData(base), asData(lset), 1<<30)
	require.True(t, ok)
	return packedLabels{newText(asData(base)), newText(string(edits))}
}

func TestLabelsOnAnyBaseAreWhatTheyWere(t *testing.T) {
	for _, base := range packedSets {
		for _, lset := range packedSets {
			requireLabels(t, lset, packedOn(t, base, lset))
		}
	}
}

func requireLabels(t testing.TB, want labels.Labels, p packedLabels) {
	requireLabelsAsTheyAre(t, want, p)
	p.storeEdits(newText("\x03" + asData(want)))
	requireLabelsAsTheyAre(t, want, p)
}

func requireLabelsAsTheyAre(t testing.TB, want labels.Labels, p packedLabels) {
	require.Equal(t, want, p.Labels())
	require.Equal(t, want.Hash(), p.Hash())
	require.Equal(t, want.String(), p.String())
	require.True(t, p.equal(want))
	require.False(t, p.equal(asLabels(asData(want)+"\x01x\x011")))
	require.Equal(t, listOf(want.Range), listOf(p.Range))
	require.Equal(t, listOf(want.Range), p.appendLabels(nil))
}

func listOf(each func(func(labels.Label))) (ls []labels.Label) {
	each(func(l labels.Label) { ls = append(ls, l) })
	return ls
}

func TestPackedLabelsAreOrderedAsLabelsAre(t *testing.T) {
	for _, base := range packedSets {
		for _, a := range packedSets {
			for _, b := range packedSets {
				packedA := &memSeries{lset: packedOn(t, base, a)}
				for _, packedB := range []*memSeries{{lset: packedOn(t, base, b)}, {lset: packedOn(t, b, b)}} {
					require.Equal(t, cmp.Compare(labels.Compare(a, b), 0), cmp.Compare(compareLabels(packedA, packedB), 0), "%s and %s", a, b)
					require.Equal(t, labels.Equal(a, b), packedA.sameLabels(packedB))
					require.Equal(t, labels.Equal(a, b), packedA.hasLabels(b))
				}
			}
		}
	}
}

func TestSeriesAreSortedAsTheirLabelsAre(t *testing.T) {
	var sets []labels.Labels
	for i := range 3000 {
		sets = append(sets, container(i%7, i/7), bucket(i%11, i/11), pod(i%3, i/3))
	}
	sets = append(sets, packedSets...)
	sets = append(sets, labels.FromStrings("A", "1", "__name__", "container_metric_1_total"), labels.FromStrings("__name__", "container_metric_1_total"))
	rand.New(rand.NewSource(1)).Shuffle(len(sets), func(i, j int) { sets[i], sets[j] = sets[j], sets[i] })
	sets = slices.DeleteFunc(sets, func(ls labels.Labels) bool { // Those in no order have none.
		return !slices.IsSortedFunc(listOf(ls.Range), func(a, b labels.Label) int { return strings.Compare(a.Name, b.Name) })
	})
	var packer labelsPacker
	var series []*memSeries
	for _, lset := range sets {
		series = append(series, &memSeries{lset: packer.pack(asData(lset))})
	}
	slices.SortFunc(sets, labels.Compare)
	sortByLabels(series, func() bool { return false })
	for i, s := range series {
		require.Equal(t, sets[i], s.labels())
	}

	asked := 0
	rand.New(rand.NewSource(2)).Shuffle(len(series), func(i, j int) { series[i], series[j] = series[j], series[i] })
	sortByLabels(series, func() bool { asked++; return asked > 100 })
	require.Less(t, asked, 100+3*len(series), "it ends soon")
	slices.SortFunc(series, compareLabels)
	for i, s := range series {
		require.Equal(t, sets[i], s.labels(), "none is lost")
	}
}

func FuzzPackedLabels(f *testing.F) {
	f.Add("a", "1", "b", "2", "c", "3", uint8(0))
	f.Add("a", "1", "a", "", "c", strings.Repeat("x", 300), uint8(7))
	f.Fuzz(func(t *testing.T, n1, v1, n2, v2, n3, v3 string, order uint8) {
		pairs := [][2]string{{n1, v1}, {n2, v2}, {n3, v3}}
		var sets []labels.Labels
		for take := range 8 {
			b := labels.NewScratchBuilder(3)
			for i := range pairs {
				if i = (i + int(order)) % 3; take&(1<<i) != 0 {
					b.Add(pairs[i][0], pairs[(i+int(order/3))%3][1])
				}
			}
			if order%2 == 0 {
				b.Sort()
			}
			sets = append(sets, b.Labels())
		}
		var packer labelsPacker
		for _, lset := range sets {
			requireLabels(t, lset, packer.pack(asData(lset)))
			for _, base := range sets {
				requireLabels(t, lset, packedOn(t, base, lset))
			}
		}
	})
}

// container returns the labels of a metric of a container, as cAdvisor has them.
func container(metric, i int) labels.Labels {
	return labels.FromStrings(
		"__name__", fmt.Sprintf("container_metric_%d_total", metric), "container", fmt.Sprintf("app-%d", i%20),
		"id", fmt.Sprintf("/kubepods.slice/kubepods-burstable-pod%032x.slice/cri-containerd-%064x.scope", i, i),
		"image", fmt.Sprintf("registry.example.org/team-%d/app@sha256:%064x", i%40, i%400), "name", fmt.Sprintf("%064x", i),
		"namespace", fmt.Sprintf("namespace-%d", i%200), "pod", fmt.Sprintf("some-deployment-%010x-%05x", i/10, i),
		"instance", fmt.Sprintf("10.0.%d.17:10250", i/100), "job", "kubelet", "metrics_path", "/metrics/cadvisor",
	)
}

// bucket returns those of a bucket of a histogram of an API server.
func bucket(le, i int) labels.Labels {
	return labels.FromStrings(
		"__name__", "apiserver_request_duration_seconds_bucket", "component", "apiserver", "endpoint", "https-metrics",
		"group", fmt.Sprintf("group-%d.example.org", i/20), "instance", "10.0.0.1:6443", "job", "apiserver", "le", strconv.Itoa(le),
		"namespace", "default", "resource", fmt.Sprintf("resources%d", i), "scope", "cluster", "service", "kubernetes", "verb", "LIST", "version", "v1",
	)
}

// pod returns those of a metric of a pod, as kube-state-metrics has them.
func pod(metric, i int) labels.Labels {
	return labels.FromStrings(
		"__name__", fmt.Sprintf("kube_pod_metric_%d", metric), "container", "kube-rbac-proxy-main", "endpoint", "https-main",
		"instance", "10.0.0.3:8443", "job", "kube-state-metrics", "namespace", fmt.Sprintf("namespace-%d", i%200),
		"phase", []string{"Running", "Pending", "Failed"}[metric%3],
		"pod", fmt.Sprintf("some-deployment-%010x-%05x", i/10, i), "service", "kube-state-metrics", "uid", fmt.Sprintf("%08x-1234-4567-89ab-%012x", i, 31*i),
	)
}

// own returns those of a series that has a long value of its own.
func own(_, i int) labels.Labels {
	rnd := rand.New(rand.NewSource(int64(i)))
	return labels.FromStrings("__name__", "requests_total", "instance", "10.0.0.5:80", "job", "gateway", "trace", fmt.Sprintf("%0128x%0128x", rnd.Uint64(), i))
}

// half returns those of a series that has a value of its own of half its length.
func half(_, i int) labels.Labels {
	return labels.FromStrings("__name__", "requests_total", "instance", "10.0.0.5:80", "job", "gateway", "path", fmt.Sprintf("/api/%0100x", i), "region", strings.Repeat("r", 80))
}

func short(_, i int) labels.Labels { return labels.FromStrings("a", strconv.Itoa(i)) }

func TestLabelsTakeLessThanTheyDid(t *testing.T) {
	for _, tc := range []struct {
		name        string
		of          func(kind, entity int) labels.Labels
		kinds, each int
		most        float64 // Of what labels take that are not packed.
	}{
		{"containers", container, 60, 1000, 0.1},
		{"buckets", bucket, 30, 1000, 0.2},
		{"pods", pod, 20, 2000, 0.35},
		{"a pod has one series", pod, 1, 20_000, 0.45},
		{"long values of their own", own, 1, 20_000, 1.05},
		{"values of half the length", half, 1, 20_000, 0.6},
		{"hardly any labels", short, 1, 50_000, 1.05},
		{"in no order", func(k, i int) labels.Labels { return container(k, i*7919%1000) }, 60, 1000, 0.1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sets := make([]labels.Labels, 0, tc.kinds*tc.each)
			for kind := range tc.kinds {
				for i := range tc.each {
					sets = append(sets, tc.of(kind, i))
				}
			}
			whole, packed := make([]labels.Labels, len(sets)), make([]packedLabels, len(sets))
			wholeBytes := grows(func() {
				for i, lset := range sets {
					whole[i] = lset.Copy()
				}
			})
			var packer labelsPacker
			packer.pack("") // What it has from the beginning is not counted.
			packedBytes := grows(func() {
				for i, lset := range sets {
					packed[i] = packer.pack(asData(lset))
				}
			})
			for i, lset := range sets {
				require.Equal(t, lset, packed[i].Labels())
			}
			n := float64(len(sets))
			t.Logf("%.0f bytes, packed %.0f", wholeBytes/n, packedBytes/n)
			require.LessOrEqual(t, packedBytes, tc.most*wholeBytes)
			runtime.KeepAlive(whole)
			runtime.KeepAlive(&packer)
		})
	}
}

// grows returns by how many bytes the live heap grows.
func grows(f func()) float64 {
	live := func() float64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	before := live()
	f()
	return live() - before
}

// What the packer has known is let go of, but for what series have.
func TestPackedLabelsAreFreedWithTheirSeries(t *testing.T) {
	var packer labelsPacker
	packer.pack("")
	var last packedLabels
	grown := grows(func() {
		for i := range 10_000 {
			last = packer.pack(asData(container(i%60, i/60)))
			last = packer.pack(asData(own(0, i)))
		}
		packer.forget()
		packer.pack("")
	})
	require.Less(t, grown, 64_000.0)
	require.Equal(t, own(0, 9999), last.Labels())
}

// Who packs at the same time gets what is right, whatever the others do.
func TestLabelsArePackedByManyAtATime(t *testing.T) {
	var packer labelsPacker
	done := make(chan string)
	for g := range 4 {
		go func() {
			for i := range 5000 {
				lset := container(i%7, (i*31+g)%300)
				if p := packer.pack(asData(lset)); !p.equal(lset) {
					done <- p.String()
					return
				}
				if i%10 == 0 {
					packer.forget()
				}
			}
			done <- ""
		}()
	}
	for range 4 {
		require.Empty(t, <-done)
	}
}

// Nobody keeps the labels that series were made from: neither the postings nor what is
// left of the appender.
func TestAHeadKeepsNoWholeLabels(t *testing.T) {
	h, _ := newTestHead(t, 1000, compression.None, false)
	const n = 60_000
	add := func(from int) {
		app := h.Appender(t.Context())
		for i := from; i < from+n; i++ {
			_, err := app.Append(0, container(i%60, i/60), 100, 1)
			require.NoError(t, err)
		}
		require.NoError(t, app.Commit())
	}
	add(0) // Buffers grow.
	perSeries := grows(func() { add(n) }) / n
	t.Logf("%.0f bytes", perSeries)
	require.Less(t, perSeries, 800.0) // Of which whole labels would be 420.
	runtime.KeepAlive(h)
}

func BenchmarkPackedLabels(b *testing.B) {
	for _, tc := range []struct {
		name string
		of   func(kind, entity int) labels.Labels
	}{{"containers", container}, {"buckets", bucket}, {"pods", pod}} {
		var sets []labels.Labels
		for i := range 20_000 {
			sets = append(sets, tc.of(i/1000, i%1000))
		}
		var packer labelsPacker
		packed := make([]packedLabels, len(sets))
		b.Run("pack/"+tc.name, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				packed[i%len(sets)] = packer.pack(asData(sets[i%len(sets)]))
			}
		})
		b.Run("labels/"+tc.name, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				_ = packed[i%len(sets)].Labels()
			}
		})
		b.Run("compare/"+tc.name, func(b *testing.B) {
			series := make([]*memSeries, len(sets))
			for i := range series {
				series[i] = &memSeries{lset: packed[i]}
			}
			for i := 0; b.Loop(); i++ {
				compareLabels(series[i%len(sets)], series[i*7919%len(sets)])
			}
		})
	}
}

// compareLabels is labels.Compare for the labels of two series.
func compareLabels(a, b *memSeries) int { return compareReaders(a.lset.reader(), b.lset.reader()) }
