// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package scrape

import (
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
)

// heldLabels are those of a series that the storage does not have for us.
type heldLabels labels.Labels

// Labels implements storage.Labels.
func (l *heldLabels) Labels() labels.Labels { return labels.Labels(*l) }

// newScrapeCache returns a cache that leaves labels with the storage, unless they are
// wanted at every scrape: to find metadata by the name.
func (sp *scrapePool) newScrapeCache() *scrapeCache {
	c := newScrapeCache(sp.metrics)
	if sp.appendableV2 != nil && !sp.options.AppendMetadata && !sp.options.SynthesizeST {
		c.seriesOf = sp.options.SeriesOf
	}
	return c
}

// labelsOf returns the labels of a series as they are to be kept.
func (c *scrapeCache) labelsOf(ref storage.SeriesRef, lset labels.Labels) storage.Labels {
	if c.seriesOf != nil {
		if series := c.seriesOf(ref); series != nil {
			return series
		}
	}
	held := heldLabels(lset)
	return &held
}

// lset returns the labels that are told to the storage: none if it has them.
func (e *cacheEntry) lset() labels.Labels {
	if held, ok := e.series.(*heldLabels); ok {
		return held.Labels()
	}
	return labels.EmptyLabels()
}

// withLabels returns an appender that tells app the labels of the last series of the
// cache if app has them no more.
func (c *scrapeCache) withLabels(app storage.AppenderV2) storage.AppenderV2 {
	if c.seriesOf == nil {
		return app
	}
	return &labelsAppender{app, c}
}

type labelsAppender struct {
	storage.AppenderV2
	cache *scrapeCache
}

// Append implements storage.AppenderV2.
func (a *labelsAppender) Append(ref storage.SeriesRef, ls labels.Labels, st, t int64, v float64, h *histogram.Histogram, fh *histogram.FloatHistogram, opts storage.AOptions) (storage.SeriesRef, error) {
	got, err := a.AppenderV2.Append(ref, ls, st, t, v, h, fh, opts)
	if err == nil || !ls.IsEmpty() || a.cache.seriesOf(ref) != nil {
		return got, err
	}
	return a.AppenderV2.Append(ref, a.cache.last.series.Labels(), st, t, v, h, fh, opts)
}
