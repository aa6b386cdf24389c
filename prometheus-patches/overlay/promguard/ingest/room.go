// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/tsdb"
)

const (
	// seriesBytes is what a series takes when it is new, in the head, its index, and the cache
	// of its scrape. Of labels that take more than sharedLabels less is shared with others,
	// and each beyond usualLabels takes labelBytes: its name and value may have postings of
	// their own.
	seriesBytes  = 850
	sharedLabels = 512
	labelBytes   = 600
	usualLabels  = 64

	// largePart is the part of the limit from which on something is large.
	largePart = 64

	// garbagePart is the part of the limit from which on garbage is worth a collection.
	garbagePart = 16

	// step is how much is taken before memory is looked at again.
	step = 256 << 10
	// again is how long memory is believed to be short without another look.
	again = 50 * time.Millisecond
)

// room knows how much memory is left. What lives only a collection can tell, and between two
// of them a single scrape may take all that was left. So what ingestion takes is counted
// where it takes it, until a collection has seen it.
type room struct {
	memory Memory
	// taken are bytes that ingestion has taken and not given back. Only its changes since
	// the last collection count.
	taken atomic.Int64
	// pending are those of requests that are read and decoded: some are not allocated yet.
	pending atomic.Int64
	// short says that there is no room for new series, or for nothing at all.
	short    atomic.Int32
	lookedAt atomic.Int64 // Unix time in ns.

	// large is held while something large is let in: what others have just been allowed
	// would not be seen.
	large sync.Mutex

	mu    sync.Mutex
	cycle uint64
	seen  int64 // taken when the last collection was first seen.
}

// How short memory is.
const (
	enough = iota
	shortForSeries
	shortForAll
)

// take counts bytes, or gives them back if they are negative.
func (r *room) take(bytes int64) {
	if taken := r.taken.Add(bytes); taken/step != (taken-bytes)/step {
		r.left()
	}
}

// left returns how many bytes more may be taken until new series are refused, and until
// nothing is let in.
func (r *room) left() (series, all int64) {
	u := r.memory.Look()
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.taken.Load()
	if u.Cycle > r.cycle {
		r.cycle, r.seen = u.Cycle, taken
	}
	series, all = u.Left(taken - r.seen)
	switch {
	case all < 0:
		r.short.Store(shortForAll)
	case series < 0:
		r.short.Store(shortForSeries)
	default:
		r.short.Store(enough)
	}
	r.lookedAt.Store(time.Now().UnixNano())
	return series, all
}

// shortage says how short memory is, at the cost of reading a word if it is not.
func (r *room) shortage() int32 {
	if r.short.Load() != enough && time.Now().UnixNano()-r.lookedAt.Load() > int64(again) {
		r.left()
	}
	return r.short.Load()
}

// Take counts bytes that are going to live, or returns false if there is no room for them.
func (g *Gate) Take(bytes int64) bool {
	if g.room.shortage() == shortForAll {
		return false
	}
	if bytes >= step {
		g.room.large.Lock()
		defer g.room.large.Unlock()
		// The collector needs some room besides: up to nine tenths of the limit.
		if _, all := g.room.left(); all-g.Limit()/20 < bytes {
			return false
		}
		g.room.collect(bytes)
	}
	g.room.take(bytes)
	return true
}

// collect collects garbage before something large is allocated in its place, or much that is
// small, by requests at the same time: the runtime would start to do so at that moment, and
// have both until it is done.
func (r *room) collect(bytes int64) {
	bytes += r.pending.Load()
	u := r.memory.Usage()
	if bytes >= u.Limit/largePart && u.Heap-u.Live > u.Limit/garbagePart && u.Exceeds(bytes) {
		runtime.GC()
		r.left() // What is taken now, this collection has not seen.
	}
}

// Give gives back what was taken.
func (g *Gate) Give(bytes int64) { g.room.take(-bytes) }

// Limit is how many bytes the process may use; 0: nobody knows.
func (g *Gate) Limit() int64 { return g.opts.Memory.Usage().Limit }

// cost is what a series takes that is new.
func cost(ls labels.Labels) int64 {
	size := int64(ls.ByteSize())
	bytes := seriesBytes + max(0, size-sharedLabels)
	// Few labels of a long series have postings of their own, and few series are long.
	if size < 16*usualLabels {
		return bytes
	}
	return bytes + labelBytes*int64(max(0, ls.Len()-usualLabels))
}

// large says that a series is no matter of many alike, but of itself.
func large(ls labels.Labels) bool { return cost(ls) >= step }

// Created returns what the head tells of new series: o, and the Gate.
func (g *Gate) Created(o tsdb.SeriesObserver) tsdb.SeriesObserver { return created{o, &g.room} }

type created struct {
	tsdb.SeriesObserver
	room *room
}

// NewSeries implements tsdb.SeriesObserver.
func (c created) NewSeries(ls labels.Labels, refused bool) {
	if !refused {
		bytes := cost(ls)
		c.room.take(bytes)
		c.room.memory.Created(bytes)
	}
	c.SeriesObserver.NewSeries(ls, refused)
}
