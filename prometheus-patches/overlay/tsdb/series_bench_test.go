// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package tsdb

import (
	"fmt"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// scrapedSeries are the series of a target in the shape of cAdvisor, of which others are
// there when their pods are replaced.
func scrapedSeries(n, generation int) []labels.Labels {
	series := make([]labels.Labels, 0, n)
	for i := range n {
		pod := i / 60
		series = append(series, labels.FromStrings("__name__", "container_metric_"+strconv.Itoa(i%60)+"_total",
			"container", "app", "id", fmt.Sprintf("/kubepods.slice/kubepods-burstable.slice/cri-containerd-%064x.scope", pod*1000+generation),
			"image", fmt.Sprintf("registry.example.org/team/app@sha256:%064x", pod%40), "instance", "10.0.0.1:10250", "job", "kubelet",
			"namespace", "namespace-"+strconv.Itoa(pod%50), "node", "node-"+strconv.Itoa(pod%100),
			"pod", fmt.Sprintf("some-deployment-%010x-%05x", pod%100, pod*1000+generation)))
	}
	return series
}

// scraper appends a sample to each series, as a scrape loop does.
type scraper struct {
	h      *Head
	series []labels.Labels
	refs   []storage.SeriesRef
	ts     int64
}

func newScraper(b *testing.B, n int) *scraper {
	opts := DefaultHeadOptions()
	opts.ChunkDirRoot = b.TempDir()
	h, err := NewHead(nil, nil, nil, nil, opts, nil)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, h.Close()) })
	return &scraper{h: h, series: scrapedSeries(n, 0), refs: make([]storage.SeriesRef, n)}
}

func (s *scraper) scrape(b *testing.B) {
	s.ts += 15_000
	app := s.h.Appender(b.Context())
	for i := range s.series {
		ref, err := app.Append(s.refs[i], s.series[i], s.ts, float64(s.ts%int64(i+7)))
		if err != nil {
			b.Fatal(err)
		}
		s.refs[i] = ref
	}
	if err := app.Commit(); err != nil {
		b.Fatal(err)
	}
}

// replace replaces a tenth of the series, and others each time.
func (s *scraper) replace(generation int) {
	n := len(s.series)
	tenth := n / 10
	from := generation % 10 * tenth
	copy(s.series[from:from+tenth], scrapedSeries(n, generation)[from:])
	clear(s.refs[from : from+tenth])
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkScrapedHead says what a head of scraped series takes: processor time of a
// scrape, of one with a tenth of the series replaced, of a garbage collection of the
// head that finds a little, of reading all; and live bytes. It uses nothing that
// upstream's tests do not have.
func BenchmarkScrapedHead(b *testing.B) {
	const n = 60_000
	for _, kind := range []string{"scrape", "churn", "gc", "query"} {
		b.Run(kind, func(b *testing.B) {
			before := liveHeap()
			s := newScraper(b, n)
			for range 30 {
				s.scrape(b)
			}
			for generation := range 5 {
				s.replace(generation + 1)
				s.scrape(b)
			}
			clear(s.series) // They are the scraper's, and the head knows their references.
			created := s.h.NumSeries()
			bytes := float64(liveHeap()-before) / float64(created)
			var cpu time.Duration
			for i := 0; b.Loop(); i++ {
				if kind == "churn" {
					b.StopTimer()
					s.replace(i + 6)
					b.StartTimer()
				}
				start := cpuTime()
				switch kind {
				case "gc":
					s.h.gc()
				case "query":
					readAll(b, s.h)
				default:
					s.scrape(b)
				}
				cpu += cpuTime() - start
				if kind == "churn" && i%10 == 9 { // What ended leaves, as in a compaction.
					b.StopTimer()
					require.NoError(b, s.h.Truncate(s.ts-10*15_000))
					b.StartTimer()
				}
			}
			b.ReportMetric(float64(cpu.Nanoseconds())/float64(b.N)/n, "cpu-ns/series")
			b.ReportMetric(bytes, "live-B/series")
			runtime.KeepAlive(s)
		})
	}
}

func liveHeap() int64 {
	var m runtime.MemStats
	for range 2 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func readAll(b *testing.B, h *Head) {
	q, err := NewBlockQuerier(h, h.MinTime(), h.MaxTime())
	require.NoError(b, err)
	defer q.Close()
	set := q.Select(b.Context(), false, nil, labels.MustNewMatcher(labels.MatchEqual, "job", "kubelet"))
	var it chunkenc.Iterator
	samples := 0
	for set.Next() {
		it = set.At().Iterator(it)
		for it.Next() != chunkenc.ValNone {
			samples++
		}
	}
	require.NoError(b, set.Err())
	require.NotZero(b, samples)
}
