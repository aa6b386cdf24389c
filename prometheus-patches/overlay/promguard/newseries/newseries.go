// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package newseries says who adds series: which job, namespace and metric the new
// series of the last minutes belong to, which of their labels has ever new values,
// and the relabel rule that drops them.
//
// It keeps a uniform random sample of the new series (Vitter, Random Sampling with
// a Reservoir, 1985) of each of the last minutes. One sample answers for every
// label and every combination of them, costs next to nothing for a series that is
// not taken, and does not grow. A share is estimated from sampleSize series or
// more, or exact where there are fewer: it is off by more than 8 points with a
// probability below 5e-6 (Hoeffding). Who has a tenth of the new series has less
// than half of that in the sample, which is what it takes not to be named, with a
// probability below 1e-7 (binomial).
package newseries

import (
	"hash/maphash"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/common/model"

	"github.com/prometheus/prometheus/model/labels"
)

const (
	// sampleSize is how many series are kept of each pane.
	sampleSize = 1024
	// The window is between panes-1 and panes times as long as a pane.
	pane  = 100 * time.Second
	panes = 4

	// The most bytes that are kept of a value and of a label's name, the most labels
	// of a series, and the most names of labels of a pane.
	maxValue  = 256
	maxName   = 64
	maxLabels = 64
	maxNames  = 512
)

// others is the name of labels beyond maxNames, and of those that cannot be kept.
const others = "(others)"

// Tracker samples new series. Safe for concurrent use.
type Tracker struct {
	seed maphash.Seed
	head atomic.Pointer[Head] // nil: it does not tell limits

	mu    sync.Mutex
	rng   *rand.Rand
	panes [panes]reservoir // by number of the pane modulo their count

	reporting sync.Mutex
	last      *Report
	lastAt    time.Time
}

// New returns a Tracker that has seen nothing.
func New() *Tracker {
	return &Tracker{seed: maphash.MakeSeed(), rng: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))}
}

// reservoir is the sample of one pane.
type reservoir struct {
	number           int64 // since 1970
	created, refused uint64
	series           []*series
	names            map[string]*string
}

// dimension is a label that series are attributed by.
type dimension int

const (
	job dimension = iota
	namespace
	metric
	dimensions
)

var dimensionLabels = [dimensions]string{model.JobLabel, "namespace", labels.MetricName}

// series is what is kept of a new series. It is not changed once it is kept.
type series struct {
	refused bool
	by      [dimensions]value
	labels  []label
}

// value is that of a label, cut to maxValue bytes of valid UTF-8.
type value struct {
	hash uint64 // of the whole; 0: the series does not have the label
	text string
	cut  bool
}

type label struct {
	name *string
	hash uint64 // of the value
}

// NewSeries tells of a series that was created, or refused. It keeps no part of lset.
func (t *Tracker) NewSeries(lset labels.Labels, refused bool) {
	number := time.Now().UnixNano() / int64(pane)
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &t.panes[number%panes]
	if r.number != number {
		*r = reservoir{number: number, names: map[string]*string{}}
	}
	if refused {
		r.refused++
	} else {
		r.created++
	}
	if len(r.series) < sampleSize {
		r.series = append(r.series, t.keep(r, lset, refused))
	} else if i := t.rng.Uint64N(r.seen()); i < sampleSize {
		r.series[i] = t.keep(r, lset, refused)
	}
}

func (r *reservoir) seen() uint64 { return r.created + r.refused }

func (t *Tracker) keep(r *reservoir, lset labels.Labels, refused bool) *series {
	s := &series{refused: refused, labels: make([]label, 0, min(maxLabels, lset.Len()))}
	for d := range s.by {
		if v := lset.Get(dimensionLabels[d]); v != "" {
			text := clip(v, maxValue)
			s.by[d] = value{hash: t.hash(v), text: text, cut: text != v}
		}
	}
	lset.Range(func(l labels.Label) {
		if len(s.labels) < maxLabels {
			s.labels = append(s.labels, label{r.name(l.Name), t.hash(l.Value)})
		}
	})
	return s
}

// name returns the one copy of a label's name.
func (r *reservoir) name(name string) *string {
	known := r.names[name[:min(maxName, len(name))]]
	if known != nil {
		return known
	}
	kept := clip(name, maxName)
	if kept != name || len(r.names) >= maxNames {
		kept = others
	}
	r.names[kept] = &kept
	return &kept
}

func (t *Tracker) hash(s string) uint64 { return max(1, maphash.String(t.seed, s)) }

// clip returns a copy of the first bytes of s, so that the whole of it can go.
func clip(s string, most int) string {
	return strings.Clone(strings.ToValidUTF8(s[:min(most, len(s))], ""))
}

// weighted is a series that stands for so many.
type weighted struct {
	*series
	weight float64
}

// window is what was sampled in the last minutes.
type window struct {
	from             time.Time
	created, refused uint64
	cohort           cohort
}

func (t *Tracker) window() window {
	last := time.Now().UnixNano() / int64(pane)
	w := window{from: time.Unix(0, (last-panes+1)*int64(pane)).UTC()}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.panes {
		r := &t.panes[i]
		if r.number <= last-panes {
			continue
		}
		w.created += r.created
		w.refused += r.refused
		for _, s := range r.series {
			w.cohort = append(w.cohort, weighted{s, float64(r.seen()) / float64(len(r.series))})
		}
	}
	return w
}
