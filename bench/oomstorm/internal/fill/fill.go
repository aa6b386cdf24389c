// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package fill writes data directories whose head holds a given number of
// series, most of them buckets of API servers' histograms, and nothing else:
// no blocks, only a write-ahead log.
package fill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/tsdb/record"
	"github.com/prometheus/prometheus/tsdb/wlog"
	"github.com/prometheus/prometheus/util/compression"

	"github.com/promguard/promguard/internal/kubelike"
)

const (
	// MinSeries is the fewest series that can be asked for: what a cluster takes
	// that has an API server.
	MinSeries = 5000
	// Step is the time between two samples of a series, oldStep before From.
	Step    = time.Minute
	oldStep = 15 * time.Minute

	// clusterShare of the series are a whole modelled cluster; the rest are
	// further API servers of the same kind, as in a server that scrapes the
	// control planes of many clusters.
	clusterShare = 20
	// MinCluster is the fewest series of a cluster that has an API server.
	MinCluster = 4000

	// exemplars are written for so many series at most, which is what Prometheus
	// keeps if it is not told otherwise.
	maxExemplars  = 100_000
	exemplarBatch = 1000
)

// Options say what to write.
type Options struct {
	// Dir is the data directory to make. Its parent must exist.
	Dir string
	// Series is how many series there are, MinSeries or more. It is met exactly.
	Series int
	// Old, unless it is zero, is when the first sample was; there are few until
	// From.
	Old time.Time
	// From and To are the times of the first and the last sample. To may be in
	// the future, so that every series still has a recent sample while the
	// server runs; less than an hour, or the head would take no others.
	From, To time.Time
}

// Write writes the data directory.
func Write(ctx context.Context, o Options) error {
	if o.Series < MinSeries {
		return fmt.Errorf("series must be %d or more, got %d", MinSeries, o.Series)
	}
	if o.Old.IsZero() || o.Old.After(o.From) {
		o.Old = o.From
	}
	cluster, err := kubelike.New(kubelike.Config{Series: max(MinCluster, o.Series/clusterShare), Seed: 1, Start: o.Old})
	if err != nil {
		return err
	}
	for _, dir := range []string{o.Dir, filepath.Join(o.Dir, "chunks_head")} {
		if err := os.Mkdir(dir, 0o777); err != nil {
			return err
		}
	}
	wal, err := wlog.NewSize(nil, nil, filepath.Join(o.Dir, "wal"), wlog.DefaultSegmentSize, compression.Snappy)
	if err != nil {
		return err
	}
	w := &writer{o: o, wal: wal, ref: 1}
	return errors.Join(w.write(ctx, cluster), wal.Close())
}

// entity is a group of series and the references of its first ones.
type entity struct {
	group *kubelike.Group
	first chunks.HeadSeriesRef
	size  int
}

// writer writes one log.
type writer struct {
	o        Options
	wal      *wlog.WL
	enc      record.Encoder
	entities []entity
	ref      chunks.HeadSeriesRef // of the next series
	buckets  int
	traced   []chunks.HeadSeriesRef // every tenth bucket, for exemplars

	series  []record.RefSeries
	samples []record.RefSample
	values  []float64
	buf     []byte
}

func (w *writer) write(ctx context.Context, cluster *kubelike.Cluster) error {
	if err := w.logSeries(ctx, cluster); err != nil {
		return err
	}
	for at := w.o.Old; !at.After(w.o.To); at = w.next(at) {
		for _, e := range w.entities {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := w.logSamples(e, at); err != nil {
				return err
			}
		}
	}
	return w.logExemplars()
}

// next is the time of the samples after those of a time.
func (w *writer) next(at time.Time) time.Time {
	if !at.Before(w.o.From) {
		return at.Add(Step)
	}
	if next := at.Add(oldStep); next.Before(w.o.From) {
		return next
	}
	return w.o.From
}

// logSeries logs the cluster's series, and then those of one API server after
// the other until there are enough.
func (w *writer) logSeries(ctx context.Context, cluster *kubelike.Cluster) error {
	var apiserver *kubelike.Target
	var ls []labels.Labels
	for _, t := range cluster.Targets() {
		if t.Pool == "apiserver" {
			apiserver = t
		}
		for _, g := range t.Groups() {
			ls = g.AppendLabels(ls[:0], 0)
			if err := w.logEntity(g, ls); err != nil {
				return err
			}
		}
	}
	if apiserver == nil {
		return fmt.Errorf("%d series are too few for an API server", w.o.Series)
	}
	group := apiserver.Groups()[0]
	ls = group.AppendLabels(ls[:0], 0)
	for i := 0; w.written() < w.o.Series; i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		instance := fmt.Sprintf("10.201.%d.%d:6443", i/250, i%250)
		if err := w.logEntity(group, withInstance(ls, instance)); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) written() int { return int(w.ref) - 1 }

func withInstance(ls []labels.Labels, instance string) []labels.Labels {
	out := make([]labels.Labels, 0, len(ls))
	b := labels.NewBuilder(labels.EmptyLabels())
	for _, l := range ls {
		b.Reset(l)
		b.Set("instance", instance)
		out = append(out, b.Labels())
	}
	return out
}

// logEntity logs the series of an entity, or as many as are still wanted.
func (w *writer) logEntity(g *kubelike.Group, ls []labels.Labels) error {
	ls = ls[:min(len(ls), w.o.Series-w.written())]
	w.entities = append(w.entities, entity{group: g, first: w.ref, size: len(ls)})
	w.series = w.series[:0]
	for _, l := range ls {
		if l.Has(labels.BucketLabel) {
			if w.buckets%10 == 0 && len(w.traced) < maxExemplars {
				w.traced = append(w.traced, w.ref)
			}
			w.buckets++
		}
		w.series = append(w.series, record.RefSeries{Ref: w.ref, Labels: l})
		w.ref++
	}
	w.buf = w.enc.Series(w.series, w.buf[:0])
	return w.wal.Log(w.buf)
}

func (w *writer) logSamples(e entity, at time.Time) error {
	w.values = e.group.AppendValues(w.values[:0], 0, at.Sub(w.o.Old))
	w.samples = w.samples[:0]
	for i, v := range w.values[:e.size] {
		w.samples = append(w.samples, record.RefSample{Ref: e.first + chunks.HeadSeriesRef(i), T: at.UnixMilli(), V: v})
	}
	w.buf = w.enc.Samples(w.samples, w.buf[:0])
	return w.wal.Log(w.buf)
}

func (w *writer) logExemplars() error {
	at := w.o.From.UnixMilli()
	var batch []record.RefExemplar
	for refs := range slices.Chunk(w.traced, exemplarBatch) {
		batch = batch[:0]
		for _, ref := range refs {
			batch = append(batch, record.RefExemplar{Ref: ref, T: at, V: 0.25, Labels: labels.FromStrings("trace_id", fmt.Sprintf("%032x", ref))})
		}
		w.buf = w.enc.Exemplars(batch, w.buf[:0])
		if err := w.wal.Log(w.buf); err != nil {
			return err
		}
	}
	return nil
}
