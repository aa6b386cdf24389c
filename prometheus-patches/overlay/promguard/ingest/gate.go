// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

// Package ingest decides whether the head may get new series. Series that it has keep
// every sample, whatever is decided.
package ingest

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promguard/memory"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
)

// Source is what brings samples.
type Source string

// What brings samples.
const (
	Scrape      Source = "scrape"
	RemoteWrite Source = "remote_write"
	OTLP        Source = "otlp"
	Rule        Source = "rule"
)

// Head is what the Gate asks of tsdb.Head.
type Head interface {
	HasSeries(ls labels.Labels) bool
	SeriesWith(name, value string) int
	NumSeries() uint64
}

// Memory is what the Gate asks of memory.Monitor.
type Memory interface {
	State() memory.State
	Usage() memory.Usage
	Look() memory.Usage
	Created(bytes int64)
	OnChange(f func(old, current memory.State, u memory.Usage))
}

// Options say when new series are refused.
type Options struct {
	Memory Memory
	// RejectScrapes makes a whole scrape fail that would add a series.
	RejectScrapes bool
	Logger        *slog.Logger
	Registerer    prometheus.Registerer
}

// Gate decides about new series. A nil Gate lets all in.
type Gate struct {
	opts     Options
	room     room
	worst    atomic.Int64 // What requests that are handled would take at worst.
	limits   atomic.Pointer[[]Limit]
	head     atomic.Pointer[Head]
	observer atomic.Pointer[tsdb.SeriesObserver]
	// generation changes when what was refused may be let in.
	generation atomic.Uint64
	// early says that series were refused before memory was critical, and renewed is when
	// those were last looked at again, as Unix time in ns.
	early   atomic.Bool
	renewed atomic.Int64

	refused   *prometheus.CounterVec
	overLimit *prometheus.CounterVec
	warn      *rate.Limiter
}

var (
	refusedForMemory = &refusal{reason: "memory", text: "memory is critical"}
	errRejected      = errors.New("scrape rejected: it would add series, and new series are refused")
)

// refusal is why a series is refused.
type refusal struct {
	reason string // The label of the metric.
	text   string
}

// Error implements error.
func (r *refusal) Error() string { return storage.ErrSeriesRefused.Error() + ": " + r.text }

// Unwrap says that it is one.
func (*refusal) Unwrap() error { return storage.ErrSeriesRefused }

// NewGate returns a Gate without limits.
func NewGate(opts Options) *Gate {
	g := &Gate{
		opts: opts,
		room: room{memory: opts.Memory},
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "prometheus_guard_series_refused_total",
			Help: "New series that were refused, by what brought them, and by why: memory, or the limit of --guard.max-head-series or --guard.series-limits. A series that is refused at each scrape in a row counts once, while less than 95 % of the limit live.",
		}, []string{"source", "reason"}),
		overLimit: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "prometheus_guard_series_over_limit_total",
			Help: "New series that were beyond a limit, whatever its mode.",
		}, []string{"limit", "mode"}),
		warn: rate.NewLimiter(rate.Every(time.Minute), 1),
	}
	for _, source := range []Source{Scrape, RemoteWrite, OTLP, Rule} {
		g.refused.WithLabelValues(string(source), refusedForMemory.reason)
	}
	g.limits.Store(&[]Limit{})
	opts.Registerer.MustRegister(g.refused, g.overLimit)
	opts.Memory.OnChange(func(old, _ memory.State, _ memory.Usage) {
		if old == memory.Critical {
			g.generation.Add(1)
		}
	})
	return g
}

// SetLimits replaces the limits.
func (g *Gate) SetLimits(limits []Limit) {
	g.limits.Store(&limits)
	g.generation.Add(1)
}

// SetHead gives the Gate the head that it asks. Until then it lets all in: there is
// nothing that could be appended to.
func (g *Gate) SetHead(h Head) { g.head.Store(&h) }

// Observe makes o hear of series that are refused. The head tells of the others.
func (g *Gate) Observe(o tsdb.SeriesObserver) { g.observer.Store(&o) }

// recheck is how often series that a limit has refused are looked at again: the head
// may have got rid of others.
const recheck = time.Minute

// renew is how often series are looked at again that were refused while memory was not
// critical, but would have been with them.
const renew = 15 * time.Second

// Generation changes when what was refused may be let in.
func (g *Gate) Generation() uint64 {
	if g.early.Load() && g.room.shortage() == enough && g.opts.Memory.State() != memory.Critical {
		now, renewed := time.Now().UnixNano(), g.renewed.Load()
		if now-renewed > int64(renew) && g.renewed.CompareAndSwap(renewed, now) {
			g.early.Store(false)
			g.generation.Add(1)
		}
	}
	if len(*g.limits.Load()) == 0 {
		return g.generation.Load()
	}
	return g.generation.Load()<<32 + uint64(time.Now().UnixNano()/int64(recheck))
}

// asks reports whether a series like this one is or may soon be refused.
func (g *Gate) asks(ls labels.Labels) bool {
	return (g.opts.Memory.State() != memory.OK || len(*g.limits.Load()) > 0 || g.room.shortage() != enough || large(ls)) && g.head.Load() != nil
}

// judge says why a series that the head does not have is refused, or returns nil. A
// related series belongs to a histogram or summary that the head has.
func (g *Gate) judge(source Source, ls labels.Labels, related bool) *refusal {
	// Rules are the last to be refused, and what splits a histogram.
	last := source == Rule || related
	if g.scarce(ls, last) {
		return refusedForMemory
	}
	if last {
		return nil
	}
	limits := *g.limits.Load()
	for i := range limits {
		l := &limits[i]
		if !l.reached(*g.head.Load(), ls) {
			continue
		}
		g.overLimit.WithLabelValues(l.Name, string(l.Mode)).Inc()
		switch l.Mode {
		case Enforce:
			g.log("New series are refused: a limit is reached", l, source, ls)
			return &l.refusal
		case Warn:
			g.log("New series would be refused: a limit is reached", l, source, ls)
		case Observe:
		}
	}
	return nil
}

// scarce says that there is no memory for the series: what lives is too much, or this one
// is.
func (g *Gate) scarce(ls labels.Labels, last bool) bool {
	if g.opts.Memory.State() == memory.Critical && (!last || g.opts.Memory.Usage().Alarming()) {
		return true
	}
	short := g.room.shortage()
	scarce := short == shortForAll || short == shortForSeries && !last
	if !scarce && large(ls) {
		series, all := g.room.left()
		if last {
			series = all
		}
		scarce = series < cost(ls)
	}
	if scarce {
		g.early.Store(true)
	}
	return scarce
}

// tell counts a refusal and tells whoever observes them.
func (g *Gate) tell(source Source, ls labels.Labels, refused *refusal) {
	g.refused.WithLabelValues(string(source), refused.reason).Inc()
	if o := g.observer.Load(); o != nil {
		(*o).NewSeries(ls, true)
	}
}

func (g *Gate) log(msg string, l *Limit, source Source, ls labels.Labels) {
	if g.warn.Allow() {
		g.opts.Logger.Warn(msg, "limit", l.Name, "max_series", l.MaxSeries, "mode", l.Mode, "from", source, "series", ls.String())
	}
}
