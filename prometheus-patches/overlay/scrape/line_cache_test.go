// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package scrape

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
)

// cached returns the entry of a line in the cache of a loop.
func cached(sl *scrapeLoop, line string) (*cacheEntry, bool) {
	lines := sl.cache.lines
	s := lines.find([]byte(line))
	if s == nowhere || s.dropped() {
		return nil, false
	}
	return lines.kept.at(s.n()), true
}

// mapCache is upstream's cache of 3.16.0, with maps by the whole line.
type mapCache struct {
	iter                  uint64
	successfulCount       int
	series                map[string]*cacheEntry
	droppedSeries         map[string]*uint64
	seriesCur, seriesPrev map[storage.SeriesRef]*cacheEntry
}

func (c *mapCache) iteration() uint32 { return uint32(c.iter) }

func newMapCache() *mapCache {
	return &mapCache{
		series: map[string]*cacheEntry{}, droppedSeries: map[string]*uint64{},
		seriesCur: map[storage.SeriesRef]*cacheEntry{}, seriesPrev: map[storage.SeriesRef]*cacheEntry{},
	}
}

func (c *mapCache) iterDone(flushCache bool) {
	count := len(c.series) + len(c.droppedSeries)
	switch {
	case flushCache:
		c.successfulCount = count
	case count > c.successfulCount*2+1000:
		flushCache = true
	}
	if flushCache {
		for s, e := range c.series {
			if c.iteration() != e.lastIter {
				delete(c.series, s)
			}
		}
		for s, iter := range c.droppedSeries {
			if c.iter != *iter {
				delete(c.droppedSeries, s)
			}
		}
	}
	c.seriesPrev, c.seriesCur = c.seriesCur, c.seriesPrev
	clear(c.seriesCur)
	c.iter++
}

func (c *mapCache) get(met []byte) (*cacheEntry, bool, bool) {
	e, ok := c.series[string(met)]
	if !ok {
		return nil, false, false
	}
	alreadyScraped := e.lastIter == c.iteration()
	e.lastIter = c.iteration()
	return e, true, alreadyScraped
}

func (c *mapCache) addRef(met []byte, ref storage.SeriesRef, lset labels.Labels) (ce *cacheEntry) {
	packed := lset.Pack()
	ce = &cacheEntry{ref: ref, lastIter: c.iteration(), lset: &packed}
	c.series[string(met)] = ce
	return ce
}

func (c *mapCache) addDropped(met []byte) {
	iter := c.iter
	c.droppedSeries[string(met)] = &iter
}

func (c *mapCache) getDropped(met []byte) bool {
	iterp, ok := c.droppedSeries[string(met)]
	if ok {
		*iterp = c.iter
	}
	return ok
}

func (c *mapCache) updateRef(ce *cacheEntry, ref storage.SeriesRef) {
	if ce.ref == ref {
		return
	}
	if ce.ref != 0 {
		for _, tracked := range []map[storage.SeriesRef]*cacheEntry{c.seriesPrev, c.seriesCur} {
			if tracked[ce.ref] == ce {
				delete(tracked, ce.ref)
				tracked[ref] = ce
			}
		}
	}
	ce.ref = ref
}

func (c *mapCache) trackStaleness(ref storage.SeriesRef, ce *cacheEntry) { c.seriesCur[ref] = ce }

func (c *mapCache) forEachStale(f func(storage.SeriesRef, labels.Labels) bool) {
	for ref, ce := range c.seriesPrev {
		if _, ok := c.seriesCur[ref]; !ok {
			if !f(ce.ref, ce.lset.Labels()) {
				break
			}
		}
	}
}

// lineCache is what a scrape asks of its cache.
type lineCache interface {
	get(met []byte) (*cacheEntry, bool, bool)
	addRef(met []byte, ref storage.SeriesRef, lset labels.Labels) *cacheEntry
	addDropped(met []byte)
	getDropped(met []byte) bool
	updateRef(ce *cacheEntry, ref storage.SeriesRef)
	trackStaleness(ref storage.SeriesRef, ce *cacheEntry)
	forEachStale(f func(storage.SeriesRef, labels.Labels) bool)
	iterDone(flushCache bool)
}

// line is a line of an exposition, and what becomes of it.
type line struct {
	text                              string
	series                            int // Two texts may be of one series.
	dropped, refused, timestamp, lost bool
}

// head gives references to series, and other ones when it has lost them.
type head struct {
	refs map[int]storage.SeriesRef
	last storage.SeriesRef
}

func (h *head) ref(series int, lost bool) storage.SeriesRef {
	if h.refs[series] == 0 || lost {
		h.last++
		h.refs[series] = h.last
	}
	return h.refs[series]
}

// scrapeInto asks the cache what scrapeLoopAppender.append does, and returns all that
// it learns. One buffer holds every line, as that of the protobuf parser does.
func scrapeInto(t testing.TB, c lineCache, h *head, lines []line, fails bool) (learnt []string) {
	buf := make([]byte, 0, 64)
	for _, l := range lines {
		buf = append(buf[:0], l.text...)
		met := buf
		if c.getDropped(met) {
			learnt = append(learnt, "dropped "+l.text)
			continue
		}
		ce, known, again := c.get(met)
		lset := labels.FromStrings("series", strconv.Itoa(l.series))
		if known {
			require.True(t, labels.Equal(lset, ce.lset.Labels()))
		}
		learnt = append(learnt, fmt.Sprint(l.text, known, again))
		if !known && l.dropped {
			c.addDropped(met)
			continue
		}
		if l.refused || again && !l.timestamp {
			continue
		}
		ref := h.ref(l.series, l.lost)
		if known {
			learnt = append(learnt, fmt.Sprint("from ", ce.ref))
			c.updateRef(ce, ref)
		} else {
			ce = c.addRef(met, ref, lset)
		}
		if !l.timestamp {
			c.trackStaleness(ce.ref, ce)
		}
	}
	if fails {
		lines = nil // It is told of as an empty one.
	}
	var stale []string
	c.forEachStale(func(ref storage.SeriesRef, lset labels.Labels) bool {
		stale = append(stale, fmt.Sprint("stale ", ref, lset))
		return true
	})
	slices.Sort(stale)
	c.iterDone(len(lines) > 0)
	return append(learnt, stale...)
}

// choices are taken from what a fuzzer gives.
type choices []byte

func (c *choices) below(n int) int {
	if len(*c) == 0 {
		return 0
	}
	b := (*c)[0]
	*c = (*c)[1:]
	return int(b) % n
}

// exposition is mostly that of before, with lines of at most 24 series. Those with an
// even number have two texts.
func (c *choices) exposition(before []line) []line {
	lines := slices.Clone(before)
	for range c.below(6) {
		text := c.below(36)
		l := line{text: fmt.Sprint("metric_", text), series: text, dropped: text%5 == 4}
		if text >= 24 {
			l.series = (text - 24) * 2
		}
		switch c.below(8) {
		case 0:
			l.refused = true
		case 1:
			l.timestamp = true
		case 2:
			// Two texts of a series that the head has lost between two scrapes leave
			// upstream with a marker for one reference, and us with two.
			l.lost = l.series%2 == 1
		}
		at := c.below(len(lines) + 1)
		if at < len(lines) && c.below(2) == 0 {
			lines = slices.Delete(lines, at, at+1)
			continue
		}
		lines = slices.Insert(lines, at, l)
	}
	return lines
}

func requireCacheOfUpstream(t testing.TB, c choices) {
	ours, theirs := newScrapeCache(newTestScrapeMetrics(t)), newMapCache()
	ourHead, theirHead := &head{refs: map[int]storage.SeriesRef{}}, &head{refs: map[int]storage.SeriesRef{}}
	var lines []line
	for len(c) > 0 {
		if c.below(8) > 0 {
			lines = c.exposition(lines)
		} else {
			lines = nil // The target is gone for once.
		}
		fails := c.below(5) == 0
		want := scrapeInto(t, theirs, theirHead, lines, fails)
		require.Equal(t, want, scrapeInto(t, ours, ourHead, lines, fails))
		require.Equal(t, len(theirs.series), ours.lines.kept.n)
		require.Equal(t, len(theirs.droppedSeries), ours.lines.dropped.n)
		require.Equal(t, theirs.iter, ours.iter)
	}
}

func TestCacheTellsAScrapeWhatThatOfUpstreamDoes(t *testing.T) {
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := make(choices, 20+rng.IntN(400))
		for i := range c {
			c[i] = byte(rng.Uint32())
		}
		requireCacheOfUpstream(t, c)
	}
}

func FuzzLineCache(f *testing.F) {
	f.Add([]byte("any scrapes, one after the other"))
	f.Fuzz(func(t *testing.T, b []byte) { requireCacheOfUpstream(t, b) })
}

func TestCacheIsFlushedWhenFailingScrapesFillIt(t *testing.T) {
	ours, theirs := newScrapeCache(newTestScrapeMetrics(t)), newMapCache()
	for i := range 8 {
		var lines []line
		for n := range 300 {
			text := i*300 + n
			lines = append(lines, line{text: strconv.Itoa(text), series: text, dropped: text%2 == 0})
		}
		h := &head{refs: map[int]storage.SeriesRef{}}
		want := scrapeInto(t, theirs, h, lines, true)
		h = &head{refs: map[int]storage.SeriesRef{}}
		require.Equal(t, want, scrapeInto(t, ours, h, lines, true))
		require.Equal(t, len(theirs.series)+len(theirs.droppedSeries), ours.lines.len())
	}
}

// TestLinesAreFoundAmongMany grows and shrinks a table, with lines that come and go
// anywhere.
func TestLinesAreFoundAmongMany(t *testing.T) {
	c := newScrapeCache(newTestScrapeMetrics(t))
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 63, 64, 65, 20_000, 40_000, 300, 0, 5000} {
		want := map[int]bool{}
		for range n {
			id := rng.IntN(2 * n)
			if want[id] {
				continue
			}
			want[id] = true
			met := []byte(fmt.Sprint("line ", id))
			if !c.getDropped(met) {
				if _, ok, _ := c.get(met); !ok && id%3 == 0 {
					c.addDropped(met)
				} else if !ok {
					c.addRef(met, storage.SeriesRef(id), labels.EmptyLabels())
				}
			}
		}
		c.iterDone(true)
		require.Equal(t, len(want), c.lines.len())
		for id := range 2 * n {
			met := []byte(fmt.Sprint("line ", id))
			require.Equal(t, want[id] && id%3 == 0, c.getDropped(met))
			ce, ok, _ := c.get(met)
			require.Equal(t, want[id] && id%3 != 0, ok)
			if ok {
				require.EqualValues(t, id, ce.ref)
			}
		}
		c.iterDone(false)
	}
}

// Lines that differ in a number are the usual ones, and some secrets give them keys in
// a row.
func TestLinesOfOneShapeAreSpreadOverTheIndexUnderEverySecret(t *testing.T) {
	const n = 12_000 // Of 16,384.
	for seed := range uint64(200) {
		var secret [32]byte
		_, _ = rand.NewChaCha8([32]byte{byte(seed)}).Read(secret[:])
		table := lineTable{index: make([]slot, 1<<14)}
		probes := 0
		for i := range n {
			key := keyUnder(&secret, fmt.Appendf(nil, `container_cpu_usage_seconds_total{container="foo",id="/kubepods/%06d",pod="x"}`, i))
			at := table.home(key)
			for probes++; table.index[at] != nowhere; probes++ {
				at = table.after(at)
			}
			table.index[at] = 2
		}
		require.Less(t, probes, 4*n, "seed %d", seed)
	}
}

// heap is what is in use on the heap.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestEntryOfALineIsSmall(t *testing.T) {
	for kind, most := range map[string]uint64{"kept": 80, "dropped": 40} {
		for _, n := range []int{10_000, 50_000, 98_305, 98_304} {
			c := newScrapeCache(newTestScrapeMetrics(t))
			line := make([]byte, 500)
			before := heap()
			for i := range n {
				line = fmt.Appendf(line[:490], "%d", i)
				if kind == "kept" {
					c.addRef(line, storage.SeriesRef(i), labels.EmptyLabels())
				} else {
					c.addDropped(line)
				}
				c.lines.line = nil // The next one is in the same place.
			}
			c.iterDone(true)
			require.LessOrEqual(t, (heap()-before)/uint64(n), most, "%s, %d", kind, n)
			runtime.KeepAlive(c)
		}
	}
}

// containers are 112,000 lines of cAdvisor for so many pods, the first of which is
// given.
func containers(first int) (lines [][]byte) {
	const metrics, pods = 56, 2000
	for m := range metrics {
		for p := first; p < first+pods; p++ {
			lines = append(lines, fmt.Appendf(nil, `container_metric_%d_total{container="app",id="/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod%032x.slice/cri-containerd-%064x.scope",image="registry.example.org/team/app@sha256:%064x",name="%064x",namespace="namespace-%d",pod="some-deployment-%010x-%05x"}`, m, p, p, p%40, p, p%50, p%100, p))
		}
	}
	return lines
}

// BenchmarkLineCache scrapes a target again and again, half of whose lines are
// dropped, with and without churn of a tenth of the pods at each scrape.
func BenchmarkLineCache(b *testing.B) {
	var expositions [][][]byte
	for i := range 3 {
		expositions = append(expositions, containers(200*i))
	}
	for _, cache := range []string{"upstream", "lines"} {
		for _, churn := range []bool{false, true} {
			b.Run(fmt.Sprintf("cache=%s/churn=%t", cache, churn), func(b *testing.B) {
				before := heap()
				var c lineCache = newMapCache()
				if cache == "lines" {
					c = newScrapeCache(newTestScrapeMetrics(b))
				}
				scrape := func(n int) {
					for i, l := range expositions[n] {
						if c.getDropped(l) {
							continue
						}
						ce, ok, _ := c.get(l)
						if !ok && i%2 == 0 {
							c.addDropped(l)
							continue
						}
						if !ok {
							ce = c.addRef(l, storage.SeriesRef(200*n+i), labels.EmptyLabels())
						}
						c.trackStaleness(ce.ref, ce)
					}
					c.forEachStale(func(storage.SeriesRef, labels.Labels) bool { return true })
					c.iterDone(true)
				}
				scrape(0)
				n := 0
				b.ReportAllocs()
				for b.Loop() {
					if churn {
						n = (n + 1) % len(expositions)
					}
					scrape(n)
				}
				b.ReportMetric(float64(heap()-before)/float64(len(expositions[n])), "heap-B/line")
				runtime.KeepAlive(c)
			})
		}
	}
}
