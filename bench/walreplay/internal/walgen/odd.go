// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package walgen

import (
	"fmt"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/tsdb/tombstones"
)

// oddity is what happens to a series, and at which scrapes; 0 is never.
type oddity struct {
	deleted [2]int // some of what was scraped before
	told    [2]int // its metadata
	reset   int
}

// oddities chooses what happens to the series of a group's new generation, after
// the checkpoint.
func (g *generator) oddities(gr *group) []oddity {
	if g.o.Oddities == 0 {
		return nil
	}
	odd := make([]oddity, gr.Len())
	for k := range odd {
		o := &odd[k]
		for n, at := range []*int{&o.deleted[0], &o.told[0], &o.reset} {
			if h := mix(g.o.Seed^4, uint64(gr.ref(k)), uint64(n)); unit(h) < g.o.Oddities {
				*at = max(g.scrapes, g.o.CheckpointScrapes) + 1 + int(mix(h)%uint64(max(1, g.o.Scrapes)))
			}
		}
		if o.deleted[0] > 0 {
			o.deleted[1] = o.deleted[0] + 9
		}
		if o.told[0] > 0 {
			o.told[1] = o.told[0] + 5
		}
	}
	return odd
}

// happen does to the series of a group what its time has come for. The values are
// those that are scraped now.
func (g *generator) happen(gr *group, ts int64) {
	if gr.odd == nil {
		return
	}
	// As many groups as series, and each of those once in the time of the log.
	h := mix(g.o.Seed^5, uint64(gr.first), uint64(g.scrapes))
	if g.scrapes > g.o.CheckpointScrapes && unit(h) < g.o.Oddities/float64(max(1, g.o.Scrapes)) && len(g.series) == 0 {
		g.logAgain(gr)
	}
	interval := g.o.ScrapeInterval.Milliseconds()
	for k := range gr.odd {
		o, ref := &gr.odd[k], gr.ref(k)
		if g.due(o.deleted) {
			g.stones = append(g.stones, tombstones.Stone{Ref: storage.SeriesRef(ref), Intervals: tombstones.Intervals{{Mint: ts - 5*interval, Maxt: ts - 3*interval}}})
		}
		if g.due(o.told) {
			g.metadata = append(g.metadata, record.RefMetadata{
				Ref: ref, Type: uint8(record.Counter), Unit: "unit", Help: fmt.Sprintf("What it is, as told at scrape %d.", g.scrapes),
			})
		}
		if o.reset > 0 && g.scrapes >= o.reset {
			if g.scrapes == o.reset {
				g.stats.Resets++
			}
			g.values[k] /= 4
		}
	}
}

// due reports whether it is one of these scrapes.
func (g *generator) due(scrapes [2]int) bool {
	return g.scrapes > 0 && (scrapes[0] == g.scrapes || scrapes[1] == g.scrapes)
}

// logAgain gives a group's series other references.
func (g *generator) logAgain(gr *group) {
	old := *gr
	g.logSeries(gr)
	for k := range gr.Len() {
		first := old.ref(k)
		if f, ok := g.firsts[first]; ok {
			first = f
		}
		g.firsts[gr.ref(k)] = first
	}
	g.stats.Duplicates += gr.Len()
	g.stats.Series -= gr.Len()
}

// explode logs the scrape of a target whose series have a label value of their own
// each: new ones, and once more those of the scrape before.
func (g *generator) explode(at time.Duration) error {
	if g.o.Explosion == 0 {
		return nil
	}
	g.begin()
	ts := g.o.Start.Add(at).UnixMilli()
	add := func(ref chunks.HeadSeriesRef) {
		g.samples = append(g.samples, record.RefSample{Ref: ref, ST: g.startTime(), T: ts, V: float64(1 + g.scrapes%2)})
	}
	for _, ref := range g.exploded {
		add(ref)
	}
	g.exploded = g.exploded[:0]
	for range g.o.Explosion {
		ref := g.next
		g.next += chunks.HeadSeriesRef(max(1, g.o.RefStep))
		g.series = append(g.series, record.RefSeries{Ref: ref, Labels: labels.FromStrings(
			labels.MetricName, "http_requests_total", "container", "app", "instance", "10.9.8.7:8080", "job", "app", "method", "GET",
			"namespace", "default", "pod", "app-7d9c8bf5c4-xk2lp", "request_id", fmt.Sprintf("%016x", mix(g.o.Seed^6, uint64(ref))), "status", "200")})
		g.exploded = append(g.exploded, ref)
		add(ref)
	}
	return g.commit(nil)
}
