// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package scrape

import (
	"github.com/prometheus/common/model"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"
	"github.com/prometheus/prometheus/storage"
)

// SeriesGate decides whether a scrape may add series.
type SeriesGate interface {
	// Judge returns what is asked about each series of one scrape that is not known from
	// scrapes before. It returns storage.ErrSeriesRefused for one that may not be created,
	// and another error if the scrape shall fail.
	Judge() func(labels.Labels) error
	// Generation changes when what was refused may be let in.
	Generation() uint64
	// Limit is how many bytes the process may use; 0: nobody knows.
	Limit() int64
	// Take counts bytes that are going to live, or returns false if there is no room for
	// them. Give gives them back; what nobody gives back counts until a garbage collection
	// has seen it.
	Take(bytes int64) bool
	Give(bytes int64)
}

// seriesJudge is asked about the series of one scrape. What the scrape reports of itself
// does not go past it.
type seriesJudge func(labels.Labels) error

func (sl *scrapeLoop) seriesJudge() seriesJudge {
	if sl.seriesGate == nil {
		return nil
	}
	sl.cache.gate = sl.seriesGate
	sl.cache.forgetRefused(sl.seriesGate.Generation())
	return sl.seriesGate.Judge()
}

// ask asks about a series that has no reference.
func (j seriesJudge) ask(ref storage.SeriesRef, ls labels.Labels) error {
	if ref != 0 || j == nil {
		return nil
	}
	return j(ls)
}

var scrapeSeriesRefusedMetric = reportSample{
	name: []byte("scrape_series_refused" + "\xff"),
	Metadata: metadata.Metadata{
		Type: model.MetricTypeGauge,
		Help: "Number of samples in the last scrape whose series does not exist and was refused.",
		Unit: "samples",
	},
}

func (sl *scrapeLoop) reportRefused(app scrapeLoopAppendAdapter, ts int64, v float64, b *labels.Builder, rejectOOO bool) error {
	if sl.seriesGate == nil {
		return nil
	}
	return app.addReportSample(scrapeSeriesRefusedMetric, ts, v, b, rejectOOO)
}

// refusals are what of a scrape was refused. Lines that were refused before cost no more
// than those that relabelling drops.
type refusals struct {
	generation   uint64
	first, again int
}

// forgetRefused forgets the lines that were refused in another generation.
func (c *scrapeCache) forgetRefused(generation uint64) {
	if c.refusals.generation != generation {
		c.refusals.generation = generation
		c.lines.forgetRefused()
	}
}

// addRefused remembers a line whose series was refused, unless it is known as that of
// a series, which was refused as it is no longer there.
func (c *scrapeCache) addRefused(met []byte) {
	c.refusals.first++
	if c.lines.found(met) == nowhere && c.hasRoom(droppedBytes) {
		c.lines.addDropped(met, c.iter|refusedFlag)
	}
}

// refusedAgain returns how many lines were refused that had been refused before.
func (c *scrapeCache) refusedAgain() int { return c.refusals.again }

// takeRefused returns how many were refused since the last call.
func (c *scrapeCache) takeRefused() float64 {
	n := c.refusals.first + c.refusals.again
	c.refusals.first, c.refusals.again = 0, 0
	return float64(n)
}
