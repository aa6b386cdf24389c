// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package scrape

import (
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
)

// iteration is what cacheEntry knows of the number of the iteration.
func (c *scrapeCache) iteration() uint32 { return uint32(c.iter) }

// now is the number of the iteration in cacheEntry.tracked. Neither it nor the one
// before is 0, which is never.
func (c *scrapeCache) now() uint32 { return c.iteration() + 2 }

// get returns the entry of a line, whether there is one, and whether the line was
// seen before in this iteration. It is valid until a line is added.
func (c *scrapeCache) get(met []byte) (*cacheEntry, bool, bool) {
	s := c.lines.found(met)
	if s == nowhere || s.dropped() {
		return nil, false, false
	}
	e := c.lines.kept.at(s.n())
	alreadyScraped := e.lastIter == c.iteration() && !c.held.appending
	e.lastIter = c.iteration()
	return e, true, alreadyScraped
}

func (c *scrapeCache) addRef(met []byte, ref storage.SeriesRef, lset labels.Labels) (ce *cacheEntry) {
	packed := lset.Pack()
	return c.lines.addKept(met, cacheEntry{ref: ref, lastIter: c.iteration(), lset: &packed})
}

func (c *scrapeCache) addDropped(met []byte) {
	if c.hasRoom(droppedBytes) {
		c.lines.addDropped(met, c.iter)
	}
}

// getDropped is the first that is asked of a line: its bytes may be where those of
// the line before were.
func (c *scrapeCache) getDropped(met []byte) bool {
	s := c.lines.find(met)
	if s == nowhere || !s.dropped() {
		return false
	}
	e := c.lines.dropped.at(s.n())
	e.see(c.iter)
	if e.refused() {
		c.refusals.again++
	}
	return true
}

// updateRef points the entry at a new storage reference, e.g. because the storage
// garbage collected the series and had to recreate it.
func (c *scrapeCache) updateRef(ce *cacheEntry, ref storage.SeriesRef) {
	if ce.ref != ref {
		ce.ref = ref
		c.lines.recreated = append(c.lines.recreated, c.lines.at.n())
	}
}

func (c *scrapeCache) trackStaleness(_ storage.SeriesRef, ce *cacheEntry) {
	ce.tracked = c.now()
}

// forEachStale calls f with each series that was tracked in the iteration before
// and not in this one, in whichever text.
func (c *scrapeCache) forEachStale(f func(storage.SeriesRef, labels.Labels) bool) {
	stale := map[storage.SeriesRef]*labels.Packed{}
	for i := range c.lines.kept.n {
		if e := c.lines.kept.at(i); e.tracked == c.now()-1 {
			stale[e.ref] = e.lset
		}
	}
	if len(stale) == 0 {
		return
	}
	for i := range c.lines.kept.n {
		if e := c.lines.kept.at(i); e.tracked == c.now() {
			delete(stale, e.ref)
		}
	}
	for ref, lset := range stale {
		if !f(ref, lset.Labels()) {
			return
		}
	}
}
