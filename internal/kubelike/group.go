// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package kubelike

import (
	"math"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// Group is the series of one target that come and go together: those of one
// pod, container or cgroup, or of the target itself. When its pod is replaced, a
// new generation with the same number of series takes over.
type Group struct {
	target   *Target
	layout   *layout
	pod      *pod // nil: never replaced
	identify func(generation int) identity
	hash     uint64
}

// Groups are the target's series. They must not be changed.
func (t *Target) Groups() []*Group { return t.groups }

// Len is the number of series, the same in every generation.
func (g *Group) Len() int { return len(g.layout.templates) }

// Generation is the number of the generation that exists at a time since the
// cluster's start, 0 or more. It never falls.
func (g *Group) Generation(at time.Duration) int { return g.pod.generation(at) }

// AppendLabels appends the labels of a generation's series as Prometheus stores
// them after a scrape: with the target's labels, without empty ones, and with le
// in its normal form.
func (g *Group) AppendLabels(dst []labels.Labels, generation int) []labels.Labels {
	id := g.identify(generation)
	b := labels.NewBuilder(labels.EmptyLabels())
	for i := range g.layout.templates {
		t := &g.layout.templates[i]
		b.Reset(g.target.Labels)
		set := func(l labels.Label) {
			if l.Value != "" || g.target.HonorLabels {
				b.Set(l.Name, l.Value)
			}
		}
		t.eachLabel(id, set)
		if t.part == bucket {
			b.Set(labels.BucketLabel, labels.FormatOpenMetricsFloat(t.le))
		}
		b.Set(labels.MetricName, t.name)
		dst = append(dst, b.Labels())
	}
	return dst
}

// eachLabel calls fn with the labels that the series of an entity is exposed
// with, besides the metric's name and le.
func (t *template) eachLabel(id identity, fn func(labels.Label)) {
	for _, l := range id.base {
		fn(l)
	}
	for _, name := range t.family.facts {
		fn(labels.Label{Name: name, Value: id.facts[name]})
	}
	for _, l := range t.labels {
		fn(l)
	}
}

// AppendValues appends the values of a generation's series, in the order of
// AppendLabels, at a time since the cluster's start.
func (g *Group) AppendValues(dst []float64, generation int, at time.Duration) []float64 {
	h := mix(g.hash, uint64(generation))
	born := g.pod.born(generation, g.hash)
	for i := range g.layout.templates {
		dst = append(dst, g.layout.templates[i].value(h, g.target.cluster.cfg.Start, born, at))
	}
	return dst
}

// ScrapeOffset is the part of a scrape interval at which the target is scraped,
// so that not all targets are scraped at once.
func (t *Target) ScrapeOffset(interval time.Duration) time.Duration {
	h := mix(hashString(t.Pool+t.Labels.Get("instance")), t.cluster.cfg.Seed)
	return time.Duration(math.Floor(unit(h)*float64(interval/time.Millisecond))) * time.Millisecond
}

// OfPod reports whether the series come and go with a pod.
func (g *Group) OfPod() bool { return g.pod != nil }
