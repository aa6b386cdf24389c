// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
)

const (
	// interval is the time between two scrapes, in minutes.
	interval = 0.5
	// first is when the samples of most series begin: early enough for a rate over
	// an hour at the end, and for lookback and offsets at the beginning.
	first = -15.0
	// dayInterval and dayFirst are those of the scrapes before first, of counters
	// that are read over a day.
	dayInterval, dayFirst = 5.0, -21.5 * 60
)

// Sink takes a series: its samples in order of time. It must not keep the slices.
type Sink func(series labels.Labels, times []int64, values []float64) error

// value is what a gauge holds, or how fast a counter grows per second, at minute m.
// n wanders between -1 and 1, differently for each series. NaN is no sample; a
// counter begins anew after it.
type value func(m, n float64) float64

// writer makes series out of values. The first error is kept, and ends all writing.
type writer struct {
	sink   Sink
	size   Size
	times  []int64
	values []float64
	err    error
}

// Write gives every series to the sink.
func Write(size Size, sink Sink) error {
	w := &writer{sink: sink, size: size}
	for _, of := range []func(*writer){guards, servers, scrapes, apiservers, etcd, nodes, jobs, scheduler, gpus, traffic} {
		of(w)
	}
	return w.err
}

// minutes are when the series of this package are scraped.
func minutes(day bool) []float64 {
	var all []float64
	if day {
		for m := dayFirst; m < first; m += dayInterval {
			all = append(all, m)
		}
	}
	for m := first; m <= Shown.Minutes(); m += interval {
		all = append(all, m)
	}
	return all
}

var (
	usual    = minutes(false)
	wholeDay = minutes(true)
)

func steady(v float64) value { return func(float64, float64) float64 { return v } }

// around wanders about a value, by a share of it.
func around(v, share float64) value {
	return func(_, n float64) float64 { return v * (1 + share*n) }
}

func (w *writer) gauge(name string, v value, pairs ...string) {
	w.series(name, usual, v, pairs)
}

// rarely is a gauge that is scraped every other time.
func (w *writer) rarely(name string, v value, pairs ...string) {
	var times []float64
	for i := 0; i < len(usual); i += 2 {
		times = append(times, usual[i])
	}
	w.series(name, times, v, pairs)
}

func (w *writer) counter(name string, rate value, pairs ...string) {
	w.series(name, usual, total(name, usual, rate), pairs)
}

// dayCounter is a counter that is read over a day.
func (w *writer) dayCounter(name string, rate value, pairs ...string) {
	w.series(name, wholeDay, total(name, wholeDay, rate), pairs)
}

// total sums a rate up to a counter, of whole events but for seconds.
func total(name string, times []float64, rate value) value {
	whole := !strings.Contains(name, "seconds")
	sum, last := 0.0, times[0]
	return func(m, n float64) float64 {
		r := rate(m, n)
		if math.IsNaN(r) {
			sum, last = 0, m
			return r
		}
		sum += max(0, r) * 60 * (m - last)
		last = m
		if whole {
			return math.Floor(sum)
		}
		return sum
	}
}

// histogram writes the buckets, the sum and the count of a histogram: rate is how
// many are observed per second, and typical the median of what is observed. A
// hundredth of them is about ten times as large.
func (w *writer) histogram(name string, bounds []float64, rate, typical value, pairs ...string) {
	const spread = 1.0 // of the logarithm
	below := func(bound float64) value {
		return func(m, n float64) float64 {
			z := math.Log(bound/typical(m, n)) / spread
			return rate(m, n) * 0.5 * math.Erfc(-z/math.Sqrt2)
		}
	}
	for _, bound := range bounds {
		w.shared(name+"_bucket", below(bound), append([]string{"le", labels.FormatOpenMetricsFloat(bound)}, pairs...), pairs)
	}
	w.shared(name+"_bucket", rate, append([]string{"le", "+Inf"}, pairs...), pairs)
	w.shared(name+"_count", rate, pairs, pairs)
	w.shared(name+"_sum", func(m, n float64) float64 {
		return rate(m, n) * typical(m, n) * math.Exp(spread*spread/2)
	}, pairs, pairs)
}

// shared is a counter of seconds whose noise is that of all series of a histogram.
func (w *writer) shared(name string, rate value, pairs, of []string) {
	w.noisy(name, usual, total("seconds", usual, rate), pairs, strings.Join(of, ","))
}

func (w *writer) series(name string, times []float64, v value, pairs []string) {
	w.noisy(name, times, v, pairs, name+","+strings.Join(pairs, ","))
}

func (w *writer) noisy(name string, times []float64, v value, pairs []string, seed string) {
	if w.err != nil {
		return
	}
	w.times, w.values = w.times[:0], w.values[:0]
	noise, begin := wander(seed), End.Add(-Shown).UnixMilli()
	for _, m := range times {
		if at := v(m, noise(m)); !math.IsNaN(at) {
			w.times = append(w.times, begin+int64(m*60_000))
			w.values = append(w.values, at)
		}
	}
	if len(w.times) > 0 {
		w.err = w.sink(labels.FromStrings(append([]string{labels.MetricName, name}, pairs...)...), w.times, w.values)
	}
}

// wander returns a function of time between -1 and 1: slow waves, and a tremor of
// every scrape. It must be asked in order of time.
func wander(seed string) func(m float64) float64 {
	h := fnv.New64a()
	h.Write([]byte(seed))
	r := rand.New(rand.NewPCG(h.Sum64(), 1))
	slow, quick := 40+50*r.Float64(), 5+9*r.Float64()
	slowAt, quickAt := 2*math.Pi*r.Float64(), 2*math.Pi*r.Float64()
	return func(m float64) float64 {
		return 0.4*math.Sin(2*math.Pi*m/slow+slowAt) + 0.25*math.Sin(2*math.Pi*m/quick+quickAt) + 0.35*(2*r.Float64()-1)
	}
}
