// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package walgen

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/tsdb/tombstones"
	"github.com/prometheus/prometheus/tsdb/wlog"

	"github.com/promguard/promguard/internal/kubelike"
)

// group is a kubelike.Group with the references of its series' present
// generation.
type group struct {
	*kubelike.Group
	generation int // -1: none yet
	first      chunks.HeadSeriesRef
	step       chunks.HeadSeriesRef
	odd        []oddity // of its series; nil: nothing happens to them
	kinds      []kind   // of its series; nil: all are floats
}

// kind is what a series' samples are.
type kind uint8

const (
	float kind = iota
	bucket
	histogramKind
	floatHistogramKind
)

// ref returns the reference of a series.
func (gr *group) ref(k int) chunks.HeadSeriesRef {
	return gr.first + chunks.HeadSeriesRef(k)*gr.step
}

func (gr *group) kind(k int) kind {
	if len(gr.kinds) == 0 {
		return float
	}
	return gr.kinds[k]
}

// target is a kubelike.Target, scraped at an offset in each interval.
type target struct {
	offset time.Duration
	groups []group
	late   [lateScrapes][]record.RefSample // rings of what is to come; see generator.takeLate
}

// generator writes one log.
type generator struct {
	o       Options
	wal     *wlog.WL
	wbl     *wlog.WL // nil: no sample is out of order
	enc     record.Encoder
	targets []target
	next    chunks.HeadSeriesRef
	// firsts has the first references of series that were logged again.
	firsts  map[chunks.HeadSeriesRef]chunks.HeadSeriesRef
	scrapes int // done, of all targets
	stats   Stats

	// Buffers for one scrape of one target.
	labels    []labels.Labels
	values    []float64
	series    []record.RefSeries
	samples   []record.RefSample
	late      []record.RefSample // of samples, those that are out of order
	ints      []record.RefHistogramSample
	floats    []record.RefFloatHistogramSample
	exemplars []record.RefExemplar
	stones    []tombstones.Stone
	metadata  []record.RefMetadata
	exploded  []chunks.HeadSeriesRef // at the scrape before
	stale     int
	buf       []byte
}

func newGenerator(o Options, cluster *kubelike.Cluster) (*generator, error) {
	if err := os.Mkdir(filepath.Join(o.Dir, "chunks_head"), 0o777); err != nil {
		return nil, err
	}
	wal, err := wlog.NewSize(nil, nil, filepath.Join(o.Dir, "wal"), o.SegmentSize, o.Compression)
	if err != nil {
		return nil, err
	}
	g := &generator{o: o, wal: wal, next: 1, enc: record.Encoder{EnableSTStorage: o.StartTimes}, firsts: map[chunks.HeadSeriesRef]chunks.HeadSeriesRef{}}
	if o.OutOfOrder > 0 {
		if g.wbl, err = wlog.NewSize(nil, nil, filepath.Join(o.Dir, wlog.WblDirName), o.SegmentSize, o.Compression); err != nil {
			return nil, errors.Join(err, wal.Close())
		}
	}
	for _, kt := range cluster.Targets() {
		t := target{offset: kt.ScrapeOffset(o.ScrapeInterval)}
		for _, kg := range kt.Groups() {
			t.groups = append(t.groups, group{Group: kg, generation: -1, step: chunks.HeadSeriesRef(max(1, o.RefStep))})
		}
		g.targets = append(g.targets, t)
	}
	slices.SortStableFunc(g.targets, func(a, b target) int { return int(a.offset - b.offset) })
	return g, nil
}

// write writes the log, with the checkpoint in its place.
func (g *generator) write(ctx context.Context) error {
	for range g.o.CheckpointScrapes {
		if err := g.scrapeAll(ctx); err != nil {
			return err
		}
	}
	if g.o.CheckpointScrapes > 0 {
		if err := g.checkpoint(); err != nil {
			return err
		}
	}
	for range g.o.Scrapes {
		if err := g.scrapeAll(ctx); err != nil {
			return err
		}
	}
	return nil
}

// checkpoint replaces what was logged by a checkpoint of the series that still
// exist, as Prometheus does when the samples are in a block.
func (g *generator) checkpoint() error {
	last, err := g.wal.NextSegmentSync()
	if err != nil {
		return err
	}
	alive := 0
	keep := map[chunks.HeadSeriesRef]struct{}{}
	for i := range g.targets {
		for j := range g.targets[i].groups {
			gr := &g.targets[i].groups[j]
			alive += gr.Len()
			for k := range gr.Len() {
				keep[gr.ref(k)] = struct{}{}
			}
		}
	}
	kept := func(ref chunks.HeadSeriesRef) bool { _, ok := keep[ref]; return ok }
	mint := g.o.Start.Add(time.Duration(g.scrapes) * g.o.ScrapeInterval).UnixMilli()
	if _, err := wlog.Checkpoint(promslog.NewNopLogger(), g.wal, 0, last-1, kept, mint, false, true); err != nil {
		return fmt.Errorf("making the checkpoint: %w", err)
	}
	g.stats = Stats{Series: alive}
	g.exploded = nil
	return g.wal.Truncate(last)
}

// scrapeAll scrapes every target once more.
func (g *generator) scrapeAll(ctx context.Context) error {
	for j := range g.targets {
		if err := ctx.Err(); err != nil {
			return err
		}
		t := &g.targets[j]
		if err := g.scrape(t, time.Duration(g.scrapes)*g.o.ScrapeInterval+t.offset); err != nil {
			return err
		}
	}
	if err := g.explode(time.Duration(g.scrapes) * g.o.ScrapeInterval); err != nil {
		return err
	}
	g.scrapes++
	return nil
}

// scrape logs what a commit after one scrape of a target logs: the series that
// are new, then the samples, among them stale markers for what has gone.
func (g *generator) scrape(t *target, at time.Duration) error {
	g.begin()
	ts := g.o.Start.Add(at).UnixMilli()
	for i := range t.groups {
		gr := &t.groups[i]
		if generation := gr.Generation(at); generation != gr.generation {
			g.markStale(gr, ts)
			g.replace(gr, generation)
		}
		g.values = gr.AppendValues(g.values[:0], gr.generation, at)
		g.happen(gr, ts)
		for k, v := range g.values {
			g.sample(gr, k, ts, v)
		}
	}
	return g.commit(t)
}

// begin empties the buffers.
func (g *generator) begin() {
	g.series, g.samples, g.ints, g.floats, g.exemplars = g.series[:0], g.samples[:0], g.ints[:0], g.floats[:0], g.exemplars[:0]
	g.stones, g.metadata = g.stones[:0], g.metadata[:0]
	g.stale = 0
}

// commit logs what the buffers hold. A nil target has no late samples.
func (g *generator) commit(t *target) error {
	g.takeLate(t)
	if err := g.log(); err != nil {
		return err
	}
	g.stats.Series += len(g.series)
	g.stats.Tombstones += len(g.stones)
	g.stats.Metadata += len(g.metadata)
	g.stats.Samples += len(g.samples) + len(g.ints) + len(g.floats)
	g.stats.Histograms += len(g.ints) + len(g.floats)
	g.stats.OutOfOrder += len(g.late)
	g.stats.Exemplars += len(g.exemplars)
	g.stats.StaleMarkers += g.stale
	return nil
}

// sample adds what a scrape finds of one series of a group.
func (g *generator) sample(gr *group, k int, ts int64, v float64) {
	ref := gr.ref(k)
	switch gr.kind(k) {
	case histogramKind:
		g.ints = append(g.ints, record.RefHistogramSample{Ref: ref, T: ts, H: nativeHistogram(uint64(ref), v)})
		return
	case floatHistogramKind:
		g.floats = append(g.floats, record.RefFloatHistogramSample{Ref: ref, T: ts, FH: nativeHistogram(uint64(ref), v).ToFloat(nil)})
		return
	case bucket:
		if h := mix(g.o.Seed^1, uint64(ref), uint64(ts)); unit(h) < g.o.Exemplars {
			g.exemplars = append(g.exemplars, record.RefExemplar{Ref: ref, T: ts, V: unit(mix(h)), Labels: labels.FromStrings("trace_id", fmt.Sprintf("%016x", h))})
		}
	}
	g.samples = append(g.samples, record.RefSample{Ref: ref, ST: g.startTime(), T: ts, V: v})
}

// startTime is when everything that is counted began.
func (g *generator) startTime() int64 {
	if !g.o.StartTimes {
		return 0
	}
	return g.o.Start.UnixMilli()
}

// takeLate exchanges the samples of this scrape that will be late for those of
// an earlier one that arrive now. Out-of-order samples begin after the
// checkpoint, as the log of them ends with every block.
func (g *generator) takeLate(t *target) {
	g.late = g.late[:0]
	if t == nil || g.wbl == nil || g.scrapes < g.o.CheckpointScrapes {
		return
	}
	slot := &t.late[g.scrapes%lateScrapes]
	g.late = append(g.late, *slot...)
	*slot = (*slot)[:0]
	onTime := g.samples[:0]
	for _, s := range g.samples {
		if !value.IsStaleNaN(s.V) && unit(mix(g.o.Seed^2, uint64(s.Ref), uint64(s.T))) < g.o.OutOfOrder {
			*slot = append(*slot, s)
			continue
		}
		onTime = append(onTime, s)
	}
	g.samples = onTime
	g.samples = append(g.samples, g.late...)
}

// markStale ends the series of a group's generation, if there was one.
func (g *generator) markStale(gr *group, ts int64) {
	if gr.generation < 0 {
		return
	}
	for k := range gr.Len() {
		g.stale++
		ref, stale := gr.ref(k), math.Float64frombits(value.StaleNaN)
		switch {
		case gr.kind(k) == histogramKind:
			g.ints = append(g.ints, record.RefHistogramSample{Ref: ref, T: ts, H: staleHistogram()})
		case gr.kind(k) == floatHistogramKind:
			g.floats = append(g.floats, record.RefFloatHistogramSample{Ref: ref, T: ts, FH: staleHistogram().ToFloat(nil)})
		default:
			g.samples = append(g.samples, record.RefSample{Ref: ref, T: ts, V: stale})
		}
	}
}

// replace gives a group's next generation its references.
func (g *generator) replace(gr *group, generation int) {
	gr.generation = generation
	g.logSeries(gr)
	gr.odd = g.oddities(gr)
}

// logSeries gives a group's series references and logs them.
func (g *generator) logSeries(gr *group) {
	gr.first = g.next
	g.next += chunks.HeadSeriesRef(gr.Len()) * gr.step
	g.labels = gr.AppendLabels(g.labels[:0], gr.generation)
	if g.o.NativeHistograms > 0 || g.o.Exemplars > 0 {
		gr.kinds = slices.Grow(gr.kinds[:0], gr.Len())[:gr.Len()]
	}
	for k, ls := range g.labels {
		if gr.kinds != nil {
			gr.kinds[k], ls = g.kindOf(ls)
		}
		g.series = append(g.series, record.RefSeries{Ref: gr.ref(k), Labels: ls})
	}
}

// kindOf says what a series' samples are, and what it is called then.
func (g *generator) kindOf(ls labels.Labels) (kind, labels.Labels) {
	name := ls.Get(labels.MetricName)
	if ls.Has(labels.BucketLabel) && strings.HasSuffix(name, "_bucket") {
		return bucket, ls
	}
	base, isCount := strings.CutSuffix(name, "_count")
	h := mix(g.o.Seed^3, ls.Hash())
	if !isCount || unit(h) >= g.o.NativeHistograms {
		return float, ls
	}
	ls = labels.NewBuilder(ls).Set(labels.MetricName, base).Labels()
	if mix(h)%8 == 0 {
		return floatHistogramKind, ls
	}
	return histogramKind, ls
}
