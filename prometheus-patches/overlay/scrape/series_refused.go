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
	// Appender returns an appender for what one scrape brings, in front of app. It
	// returns storage.ErrSeriesRefused for a sample of a series that may not be created,
	// and another error if the scrape shall fail.
	Appender(app storage.AppenderV2) storage.AppenderV2
	// Generation changes when what was refused may be let in.
	Generation() uint64
}

// judged returns the appender for what is scraped. What the scrape reports of itself
// does not go through it.
func (sl *scrapeLoop) judged(app storage.AppenderV2) storage.AppenderV2 {
	if sl.seriesGate == nil {
		return app
	}
	sl.cache.forgetRefused(sl.seriesGate.Generation())
	return sl.seriesGate.Appender(app)
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
	if c.lines.found(met) == nowhere {
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
