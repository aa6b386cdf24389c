// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !slicelabels && !dedupelabels

package labels

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v2"
)

// label is one of Labels in any order, as an appender may get it.
func inAnyOrder(pairs ...string) Labels {
	b := NewScratchBuilder(len(pairs) / 2)
	for i := 0; i < len(pairs); i += 2 {
		b.Add(pairs[i], pairs[i+1])
	}
	return b.Labels()
}

var packedSets = []Labels{
	EmptyLabels(),
	FromStrings("a", ""),
	FromStrings("a", "1"),
	FromStrings("a", "1", "b", "2"),
	FromStrings("a", "2", "b", "2"),
	FromStrings("b", "2"),
	FromStrings("b", "2", "c", "3"),
	FromStrings("a", "1", "c", "3"),
	FromStrings("a", "12", "b", "2", "c", "3"),
	FromStrings("aa", "1"),
	FromStrings("__name__", "m"),
	FromStrings("__name__", "o", "__type__", "t"),
	FromStrings("__name__", "m", "b", "2"),
	FromStrings("__name__", "m", "__type__", "t", "b", "2"),
	FromStrings("A", "1", "__name__", "m", "b", "2"),
	FromStrings("a", strings.Repeat("x", 253), "b", "2"),
	FromStrings("a", strings.Repeat("x", 254), "b", "2"),
	FromStrings("a", strings.Repeat("x", 255), "b", "2"),
	FromStrings("a", strings.Repeat("x", 255), "b", strings.Repeat("y", 17_000)),
	FromStrings("a", strings.Repeat("x", 255), "b", "2", strings.Repeat("n", 300), "3"),
	FromStrings(strings.Repeat("n", 300), "3", "z", strings.Repeat("y", 17_000)),
	inAnyOrder("b", "2", "a", "1"),
	inAnyOrder("b", "2", "a", "1", "a", "1", "c", "3"),
	FromStrings(packedMark, strings.Repeat("x", sizeOfPacked-6)),
	FromStrings(manyPairs(40, "x")...),
	FromStrings(manyPairs(40, "y")...),
	FromStrings(manyPairs(39, "x")...),
}

func manyPairs(n int, value string) (pairs []string) {
	for i := range n {
		pairs = append(pairs, fmt.Sprintf("label_%03d", i), value)
	}
	return pairs
}

// packedOn packs labels on a base, however long the edits are.
func packedOn(t testing.TB, base, lset Labels) *Packed {
	edits, ok := appendEdits(nil, base.data, lset.data, 1<<30)
	require.True(t, ok)
	packed := newPacked(base.data, newText(edits))
	return &packed
}

func TestLabelsOnAnyBaseAreWhatTheyWere(t *testing.T) {
	for i, base := range packedSets {
		for j, lset := range packedSets {
			requireLabels(t, lset, packedOn(t, base, lset), someNames[(i+j)%len(someNames)])
		}
	}
}

// answers are what labels are asked, and all of it must be as it is of labels that are not packed.
var answers = map[string]func(ls Labels, names []string) any{
	"ByteSize": func(ls Labels, _ []string) any { return ls.ByteSize() },
	"Bytes":    func(ls Labels, _ []string) any { return string(ls.Bytes(make([]byte, 3))) },
	"BytesWithLabels": func(ls Labels, names []string) any {
		return string(ls.BytesWithLabels(nil, names...))
	},
	"BytesWithoutLabels": func(ls Labels, names []string) any {
		return string(ls.BytesWithoutLabels(nil, names...))
	},
	"HasDuplicateLabelNames": func(ls Labels, _ []string) any { return fmt.Sprint(ls.HasDuplicateLabelNames()) },
	"Hash":                   func(ls Labels, _ []string) any { return ls.Hash() },
	"HashForLabels":          func(ls Labels, names []string) any { return fmt.Sprint(ls.HashForLabels(nil, names...)) },
	"HashWithoutLabels":      func(ls Labels, names []string) any { return fmt.Sprint(ls.HashWithoutLabels(nil, names...)) },
	"IsEmpty":                func(ls Labels, _ []string) any { return ls.IsEmpty() },
	"IsValid":                func(ls Labels, _ []string) any { return ls.IsValid(model.LegacyValidation) },
	"IsZero":                 func(ls Labels, _ []string) any { return ls.IsZero() },
	"Len":                    func(ls Labels, _ []string) any { return ls.Len() },
	"Map":                    func(ls Labels, _ []string) any { return ls.Map() },
	"MarshalJSON":            func(ls Labels, _ []string) any { b, err := ls.MarshalJSON(); return fmt.Sprint(string(b), err) },
	"MarshalYAML":            func(ls Labels, _ []string) any { m, err := ls.MarshalYAML(); return fmt.Sprint(m, err) },
	"Range":                  func(ls Labels, _ []string) any { return listOf(ls.Range) },
	"StableHash":             func(ls Labels, _ []string) any { return StableHash(ls) },
	"String":                 func(ls Labels, _ []string) any { return ls.String() },
	"StringNoSpace":          func(ls Labels, _ []string) any { return ls.StringNoSpace() },
	"Validate": func(ls Labels, names []string) any {
		var until []Label
		err := ls.Validate(func(l Label) error {
			until = append(until, l)
			if slices.Contains(names, l.Name) {
				return errors.New(l.Name)
			}
			return nil
		})
		return fmt.Sprint(until, err)
	},
}

// answersInOrder are answers of labels whose names are in order, each there once.
var answersInOrder = map[string]func(ls Labels, names []string) any{
	"Get":         func(ls Labels, names []string) any { return each(ls, names, ls.Get) },
	"Has":         func(ls Labels, names []string) any { return each(ls, names, ls.Has) },
	"Builder.Get": func(ls Labels, names []string) any { return each(ls, names, NewBuilder(ls).Set("new", "1").Get) },
}

// derived are labels that are made of others.
var derived = map[string]func(ls Labels, names []string) Labels{
	"Copy":     func(ls Labels, _ []string) Labels { return ls.Copy() },
	"CopyFrom": func(ls Labels, _ []string) Labels { to := FromStrings("x", "1"); to.CopyFrom(ls); return to },
	"InternStrings": func(ls Labels, _ []string) Labels {
		ls.InternStrings(strings.Clone)
		return ls
	},
	"MatchLabels":          func(ls Labels, names []string) Labels { return ls.MatchLabels(true, names...) },
	"MatchLabels/ignoring": func(ls Labels, names []string) Labels { return ls.MatchLabels(false, names...) },
	"Pack":                 func(ls Labels, _ []string) Labels { p := ls.Pack(); return p.Labels() },
	"PackCopy":             func(ls Labels, _ []string) Labels { p := ls.PackCopy(); return p.Labels() },
	"ReleaseStrings":       func(ls Labels, _ []string) Labels { ls.ReleaseStrings(func(string) {}); return ls },
	"UnmarshalJSON": func(ls Labels, _ []string) Labels {
		if b, err := ls.MarshalJSON(); err != nil || ls.UnmarshalJSON(b) != nil {
			return EmptyLabels()
		}
		return ls
	},
	"UnmarshalYAML": func(ls Labels, _ []string) Labels {
		if b, err := yaml.Marshal(ls); err != nil || yaml.Unmarshal(b, &ls) != nil {
			return EmptyLabels()
		}
		return ls
	},
	"Whole":        func(ls Labels, _ []string) Labels { ls, _ = ls.Whole(); return ls },
	"WithoutEmpty": func(ls Labels, _ []string) Labels { return ls.WithoutEmpty() },
	"Builder": func(ls Labels, names []string) Labels {
		b := NewBuilder(ls)
		for _, name := range names {
			b.Set(name, "other")
		}
		return b.Del("b").Set("new", "1").Labels()
	},
	"Builder.Keep": func(ls Labels, names []string) Labels { return NewBuilder(ls).Keep(names...).Labels() },
	"ScratchBuilder.Assign": func(ls Labels, _ []string) Labels {
		b := NewScratchBuilder(0)
		b.Assign(ls)
		return b.Labels()
	},
	"ScratchBuilder.Overwrite": func(ls Labels, _ []string) Labels {
		b := NewScratchBuilder(1)
		b.Add("x", "1")
		b.Overwrite(&ls)
		return ls
	},
}

// derivedOfNames are labels that are made of others without an empty name.
var derivedOfNames = map[string]func(ls Labels, names []string) Labels{
	"DropMetricName": func(ls Labels, _ []string) Labels { return ls.DropMetricName() },
	"DropReserved": func(ls Labels, names []string) Labels {
		return ls.DropReserved(func(name string) bool { return slices.Contains(names, name) })
	},
	"DropReserved/all": func(ls Labels, _ []string) Labels { return ls.DropReserved(func(string) bool { return true }) },
	"DropReserved/type": func(ls Labels, _ []string) Labels {
		return ls.DropReserved(func(n string) bool { return n == "__type__" })
	},
}

// A release of upstream may have a method that packed labels do not know.
func TestEveryMethodIsAskedOfPackedLabels(t *testing.T) {
	for m := range reflect.TypeFor[*Labels]().Methods() {
		found := answers[m.Name] != nil || answersInOrder[m.Name] != nil || derived[m.Name] != nil || derivedOfNames[m.Name] != nil
		require.True(t, found, m.Name)
	}
}

func each[T any](ls Labels, names []string, ask func(string) T) (all []T) {
	ls.Range(func(l Label) { all = append(all, ask(l.Name)) })
	for _, name := range append([]string{"", "aa", MetricName, "zz"}, names...) {
		all = append(all, ask(name))
	}
	return all
}

var someNames = [][]string{nil, {"a"}, {"a", "c"}, {MetricName, "b", "z"}, {"label_007", "label_038"}}

// requireLabels requires that packed labels are what others are, whatever they are asked.
func requireLabels(t testing.TB, want Labels, p *Packed, names []string) {
	require.Equal(t, want.Hash(), p.Hash())
	require.Equal(t, want.String(), p.String())
	require.Equal(t, listOf(want.Range), listOf(p.Range))
	if want.IsEmpty() {
		return // They are never packed.
	}
	requireAlike(t, want, p.Labels(), names)
	requireDerived(t, derived, want, p.Labels(), names)
	if !hasEmptyName(want) {
		requireDerived(t, derivedOfNames, want, p.Labels(), names)
	}
}

func requireDerived(t testing.TB, of map[string]func(Labels, []string) Labels, want, got Labels, names []string) {
	for how, f := range of {
		w, g := f(want, names), f(got, names)
		require.True(t, Equal(w, g), how)
		if g.isPacked() {
			requireAlike(t, w, g, names)
		}
	}
}

func requireAlike(t testing.TB, want, got Labels, names []string) {
	for what, ask := range answers {
		require.Equal(t, ask(want, names), ask(got, names), what)
	}
	if isSorted(want) {
		for what, ask := range answersInOrder {
			require.Equal(t, ask(want, names), ask(got, names), what)
		}
	}
	require.Equal(t, want.IsEmpty(), Equal(EmptyLabels(), got))
	require.True(t, Equal(want, got) && Equal(got, want) && Equal(got, got))
	other := Labels{data: want.data + "\x01x\x011"}
	require.False(t, Equal(other, got) || Equal(got, other))
}

// isSorted says whether the names are in order, and each there once.
func isSorted(ls Labels) bool {
	_, twice := ls.HasDuplicateLabelNames()
	return !twice && slices.IsSortedFunc(listOf(ls.Range), func(a, b Label) int { return strings.Compare(a.Name, b.Name) })
}

func hasEmptyName(ls Labels) bool {
	return slices.ContainsFunc(listOf(ls.Range), func(l Label) bool { return l.Name == "" })
}

func TestPackedLabelsAreOrderedAsLabelsAre(t *testing.T) {
	for _, base := range packedSets {
		other := base.Copy()
		for _, a := range packedSets {
			packedA := packedOn(t, base, a).Labels()
			for _, b := range packedSets {
				for _, packedB := range []Labels{b, packedOn(t, base, b).Labels(), packedOn(t, other, b).Labels(), packedOn(t, b, b).Labels()} {
					require.Equal(t, cmp.Compare(Compare(a, b), 0), cmp.Compare(Compare(packedA, packedB), 0), "%s and %s", a, b)
					require.Equal(t, Equal(a, b), Equal(packedA, packedB))
					require.Equal(t, Equal(a, b), Equal(packedB, packedA))
				}
			}
		}
	}
}

func TestPackedLabelsAreReadWithoutAllocations(t *testing.T) {
	var packer labelsPacker
	packer.pack(container(0, 7).data, strings.Clone)
	packed := packer.pack(container(1, 7).data, strings.Clone)
	require.True(t, packed.Labels().isPacked())
	value := strings.Repeat("y", 17_000)
	long := packedOn(t, FromStrings("a", "1", "b", value), FromStrings("a", "2", "b", value))
	buf := make([]byte, 0, 32_000)
	n := 0
	require.Zero(t, testing.AllocsPerRun(100, func() {
		ls := packed.Labels()
		ls.Range(func(l Label) { n += len(l.Value) })
		_ = ls.Validate(func(Label) error { n++; return nil })
		n += len(ls.Get("pod")) + ls.Len() + int(ls.Hash()) + len(ls.DropReserved(func(name string) bool { return name == MetricName }).Get("id"))

		ls = long.Labels()
		hash, b := ls.HashForLabels(buf, "a", "b")
		other, _ := ls.HashWithoutLabels(buf, "a", "b")
		n += int(ls.Hash()+hash+other) + len(b) + len(ls.BytesWithLabels(buf, "a")) + len(ls.BytesWithoutLabels(buf, "a"))
	}))
}

func listOf(each func(func(Label))) (ls []Label) {
	each(func(l Label) { ls = append(ls, l) })
	return ls
}

func FuzzPackedLabels(f *testing.F) {
	f.Add("a", "1", "b", "2", "c", "3", uint8(0))
	f.Add("a", "1", "a", "", "c", strings.Repeat("x", 300), uint8(7))
	f.Fuzz(func(t *testing.T, n1, v1, n2, v2, n3, v3 string, order uint8) {
		pairs := [][2]string{{n1, v1}, {n2, v2}, {n3, v3}}
		var sets []Labels
		for take := range 8 {
			b := NewScratchBuilder(3)
			for i := range pairs {
				if i = (i + int(order)) % 3; take&(1<<i) != 0 {
					b.Add(pairs[i][0], pairs[(i+take+int(order/3))%3][1])
				}
			}
			if order%2 == 0 {
				b.Sort()
			}
			sets = append(sets, b.Labels())
		}
		var packer labelsPacker
		names := slices.Sorted(slices.Values([]string{n1, v1, n2}))
		for i, lset := range sets {
			require.False(t, lset.isPacked())
			packed := packer.pack(lset.data, strings.Clone)
			require.True(t, Equal(lset, packed.Labels()))
			for j, base := range sets {
				p, other := packedOn(t, base, lset), sets[(i+j)%len(sets)]
				require.True(t, Equal(lset, p.Labels()))
				require.Equal(t, cmp.Compare(Compare(lset, other), 0), cmp.Compare(Compare(p.Labels(), packedOn(t, base, other).Labels()), 0))
			}
			requireLabels(t, lset, packedOn(t, sets[int(order)%len(sets)^i], lset), names)
		}
	})
}

// container returns the labels of a metric of a container, as cAdvisor has them.
func container(metric, i int) Labels {
	return FromStrings(
		"__name__", fmt.Sprintf("container_metric_%d_total", metric), "container", fmt.Sprintf("app-%d", i%20),
		"id", fmt.Sprintf("/kubepods.slice/kubepods-burstable-pod%032x.slice/cri-containerd-%064x.scope", i, i),
		"image", fmt.Sprintf("registry.example.org/team-%d/app@sha256:%064x", i%40, i%400), "name", fmt.Sprintf("%064x", i),
		"namespace", fmt.Sprintf("namespace-%d", i%200), "pod", fmt.Sprintf("some-deployment-%010x-%05x", i/10, i),
		"instance", fmt.Sprintf("10.0.%d.17:10250", i/100), "job", "kubelet", "metrics_path", "/metrics/cadvisor",
	)
}

// bucket returns those of a bucket of a histogram of an API server.
func bucket(le, i int) Labels {
	return FromStrings(
		"__name__", "apiserver_request_duration_seconds_bucket", "component", "apiserver", "endpoint", "https-metrics",
		"group", fmt.Sprintf("group-%d.example.org", i/20), "instance", "10.0.0.1:6443", "job", "apiserver", "le", strconv.Itoa(le),
		"namespace", "default", "resource", fmt.Sprintf("resources%d", i), "scope", "cluster", "service", "kubernetes", "verb", "LIST", "version", "v1",
	)
}

// pod returns those of a metric of a pod, as kube-state-metrics has them.
func pod(metric, i int) Labels {
	return FromStrings(
		"__name__", fmt.Sprintf("kube_pod_metric_%d", metric), "container", "kube-rbac-proxy-main", "endpoint", "https-main",
		"instance", "10.0.0.3:8443", "job", "kube-state-metrics", "namespace", fmt.Sprintf("namespace-%d", i%200),
		"phase", []string{"Running", "Pending", "Failed"}[metric%3],
		"pod", fmt.Sprintf("some-deployment-%010x-%05x", i/10, i), "service", "kube-state-metrics", "uid", fmt.Sprintf("%08x-1234-4567-89ab-%012x", i, 31*i),
	)
}

// own returns those of a series that has a long value of its own.
func own(_, i int) Labels {
	rnd := rand.New(rand.NewSource(int64(i)))
	return FromStrings("__name__", "requests_total", "instance", "10.0.0.5:80", "job", "gateway", "trace", fmt.Sprintf("%0128x%0128x", rnd.Uint64(), i))
}

// half returns those of a series that has a value of its own of half its length.
func half(_, i int) Labels {
	return FromStrings("__name__", "requests_total", "instance", "10.0.0.5:80", "job", "gateway", "path", fmt.Sprintf("/api/%0100x", i), "region", strings.Repeat("r", 80))
}

func short(_, i int) Labels { return FromStrings("a", strconv.Itoa(i)) }

func TestLabelsTakeLessThanTheyDid(t *testing.T) {
	for _, tc := range []struct {
		name        string
		of          func(kind, entity int) Labels
		kinds, each int
		most        float64 // Of what labels take that are not packed.
	}{
		{"containers", container, 60, 1000, 0.1},
		{"buckets", bucket, 30, 1000, 0.25},
		{"pods", pod, 20, 2000, 0.35},
		{"a pod has one series", pod, 1, 20_000, 0.45},
		{"long values of their own", own, 1, 20_000, 1.1},
		{"values of half the length", half, 1, 20_000, 0.6},
		{"hardly any labels", short, 1, 50_000, 1.05},
		{"in no order", func(k, i int) Labels { return container(k, i*7919%1000) }, 60, 1000, 0.1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sets := make([]Labels, 0, tc.kinds*tc.each)
			for kind := range tc.kinds {
				for i := range tc.each {
					sets = append(sets, tc.of(kind, i))
				}
			}
			whole, packed := make([]Labels, len(sets)), make([]Packed, len(sets))
			wholeBytes := grows(func() {
				for i, lset := range sets {
					whole[i] = lset.Copy()
				}
			})
			var packer labelsPacker
			packer.pack(container(0, 0).data, strings.Clone) // The first tables are not counted.
			packedBytes := grows(func() {
				for i, lset := range sets {
					packed[i] = packer.pack(lset.data, strings.Clone)
				}
			})
			for i, lset := range sets {
				require.True(t, Equal(lset, packed[i].Labels()))
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

// The last series that has a base keeps it, and nothing else does.
func TestABaseIsFreedWithItsLastSeries(t *testing.T) {
	var packer labelsPacker
	packer.pack(container(0, 0).data, strings.Clone)
	var last Packed
	grown := grows(func() {
		for i := range 10_000 {
			last = packer.pack(container(i%60, i/60).data, strings.Clone)
			last = packer.pack(own(0, i).data, strings.Clone)
		}
	})
	bases, tables := packer.bytes()
	t.Logf("%.0f bytes, of which bases are %d and tables %d", grown, bases, tables)
	require.Less(t, bases, int64(2048))
	require.Less(t, grown, 64_000.0)
	require.True(t, Equal(own(0, 9999), last.Labels()))
}

// A target exposes a huge series for one scrape, and small ones for long.
func TestASmallSeriesKeepsNoHugeBase(t *testing.T) {
	const n = 600
	for _, size := range []int{1_000, 10_000, 256_000} {
		small := make([]Packed, n)
		var packer labelsPacker
		packer.pack(container(0, 0).data, strings.Clone)
		grown := grows(func() {
			for i := range small {
				packer.pack(FromStrings("__name__", "annotations", "annotation", fmt.Sprintf("%0*d", size, i), "instance", "10.0.0.3:8443").data, strings.Clone)
				small[i] = packer.pack(FromStrings("__name__", "created", "deployment", fmt.Sprintf("some-deployment-%032d", i), "instance", "10.0.0.3:8443").data, strings.Clone)
			}
		})
		whole := float64(n * len(small[0].Labels().Bytes(nil)))
		t.Logf("%d bytes: %.2f times the labels", size, grown/whole)
		require.Less(t, grown, 3*whole)
		runtime.KeepAlive(small)
	}
}

// Otherwise a server whose series come and go would look for bases in ever larger tables.
func TestTablesAreAsLargeAsTheSeriesThatThereAreNeed(t *testing.T) {
	var packer labelsPacker
	var kept [2000]Packed
	for i := range 12 * len(kept) {
		kept[i%len(kept)] = packer.pack(own(0, i).data, strings.Clone)
		if i%len(kept) == 0 {
			runtime.GC()
		}
	}
	bases, tables := packer.bytes()
	t.Logf("bases %d bytes, tables %d", bases, tables)
	require.LessOrEqual(t, len(packer.known.Load().bases), 8*len(kept))
	runtime.KeepAlive(&kept)
}

func TestLabelsAreWholeWherePackingIsOff(t *testing.T) {
	var packer labelsPacker
	packer.whole.Store(true)
	for i := range 3 {
		lset := container(i, 0)
		packed := packer.pack(lset.data, func(data string) string { return data })
		ls := packed.Labels()
		require.Equal(t, lset, ls)
		require.Equal(t, unsafe.StringData(lset.data), unsafe.StringData(ls.data), "the labels are copied")
	}
	require.Nil(t, packer.known.Load())
}

// The size of a base has 32 bits. The labels are never read, so they take no memory.
func TestLabelsOfFourGibibytesAreTooLong(t *testing.T) {
	size := uint64(1) << 32
	data := yoloString(make([]byte, size))
	require.PanicsWithValue(t, TooLongError{Length: size}, func() { newPacked(data, text{}) })
}

func TestACopyKeepsNothingOfTheLabels(t *testing.T) {
	for _, lset := range []Labels{short(0, 1), container(0, 1)} {
		buf := []byte(lset.data)
		packed := FromEncoded(yoloString(buf)).PackCopy()
		clear(buf)
		require.True(t, Equal(lset, packed.Labels()))
	}
}

// Labels are where they are packed, which lives as long as they do.
func TestLabelsOutliveTheSeriesThatPackedThem(t *testing.T) {
	var packer labelsPacker
	packer.pack(container(0, 0).data, strings.Clone)
	var read []Labels
	for i := range 1000 {
		packed := packer.pack(container(i%60, i/60).data, strings.Clone)
		read = append(read, packed.Labels().DropReserved(func(string) bool { return false }))
	}
	for range 3 {
		runtime.GC()
	}
	for i, ls := range read {
		require.True(t, Equal(container(i%60, i/60), ls))
	}
}

// So they do where they are packed on a stack, which moves.
func TestLabelsOutliveAMoveOfTheStack(t *testing.T) {
	for i := range 100 {
		p, equal := packedOn(t, container(0, i), container(1, i)), make(chan bool)
		go func() {
			packed := *p
			ls := packed.Labels()
			deep(64)
			runtime.GC()
			equal <- Equal(container(1, i), ls)
		}()
		require.True(t, <-equal)
	}
}

// deep takes so many KiB of the stack.
//
//go:noinline
func deep(n int) (sum byte) {
	var kib [1024]byte
	for i := range kib {
		kib[i] = 0xff
	}
	if n > 1 {
		sum = deep(n - 1)
	}
	return sum + kib[n]
}

// Otherwise who sends labels could say where the memory is that is read as theirs.
func TestNoLabelsFromOutsideAreTakenForPackedOnes(t *testing.T) {
	buf := make([]byte, len(packedMark))
	for size := range maxLength + 1 { // Of the first name.
		if string(buf[encodeSize(buf, len(buf), size):]) == packedMark {
			t.Fatal(size)
		}
	}
	require.Panics(t, func() { sizeWhenEncoded(maxLength + 1) })
	for _, lset := range packedSets {
		require.False(t, lset.isPacked())
	}
}

// A sample of the engine has labels: larger ones make every join slower.
func TestPackedLabelsAreNotLargerThanOthers(t *testing.T) {
	require.Equal(t, unsafe.Sizeof(""), unsafe.Sizeof(Labels{}))
}

// Who packs at the same time gets what is right, whatever the others do.
func TestLabelsArePackedByManyAtATime(t *testing.T) {
	var packer labelsPacker
	done := make(chan string)
	for g := range 4 {
		go func() {
			for i := range 5000 {
				lset := container(i%7, (i*31+g)%300)
				if p := packer.pack(lset.data, strings.Clone); !Equal(lset, p.Labels()) {
					done <- p.String()
					return
				}
				if i%100 == 0 {
					runtime.GC()
				}
			}
			done <- ""
		}()
	}
	for range 4 {
		require.Empty(t, <-done)
	}
}
