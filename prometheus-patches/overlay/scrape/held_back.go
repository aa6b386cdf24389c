// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package scrape

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
)

// holdFor is the number of scrapes after a failed one that create series only when they
// are known to pass. A target that fails less often pays for series that are created and
// rolled back once in as many scrapes.
const holdFor = 64

// errHeldBack ends the first pass of a scrape that would pass and has held samples back.
var errHeldBack = errors.New("samples of new series are held back")

// heldBack lists the lines of a scrape whose samples belong to series that the storage
// does not have, by their numbers in the exposition. A first pass checks them, and a second
// one appends them.
type heldBack struct {
	until     uint64 // The iteration from which on nothing is held back.
	line      uint32
	lines     []uint32
	appending bool // In the second pass.
}

// nothingToAppend counts a line, and reports whether the first pass has dealt with it.
func (h *heldBack) nothingToAppend() bool {
	h.line++
	if !h.appending {
		return false
	}
	if len(h.lines) == 0 || h.lines[0] != h.line {
		return true
	}
	h.lines = h.lines[1:]
	return false
}

// end returns errHeldBack at the end of a first pass, if a second one is needed.
func (h *heldBack) end() error {
	if h.appending || len(h.lines) == 0 {
		return nil
	}
	return errHeldBack
}

// beginPass returns the appender for a pass.
func (c *scrapeCache) beginPass(app storage.AppenderV2) storage.AppenderV2 {
	c.held.line = 0
	if c.held.appending || c.iter >= c.held.until {
		return app
	}
	return &holdingAppender{app, c}
}

// holdingAppender appends samples of known series, and holds those of other series back.
type holdingAppender struct {
	storage.AppenderV2
	cache *scrapeCache
}

// Append implements storage.AppenderV2. It returns the errors of the head about a new series
// that fail a scrape.
func (a *holdingAppender) Append(ref storage.SeriesRef, ls labels.Labels, st, t int64, v float64, h *histogram.Histogram, fh *histogram.FloatHistogram, opts storage.AOptions) (storage.SeriesRef, error) {
	if ref != 0 {
		return a.AppenderV2.Append(ref, ls, st, t, v, h, fh, opts)
	}
	var err error
	switch {
	case fh != nil:
		err = fh.Validate()
	case h != nil:
		err = h.Validate()
	}
	if err != nil {
		return 0, err
	}
	if a.cache.lines.at == nowhere { // The labels of other lines were looked at before.
		if name, duplicate := ls.HasDuplicateLabelNames(); duplicate {
			return 0, fmt.Errorf("label name %q is not unique", name)
		}
	}
	a.cache.held.lines = append(a.cache.held.lines, a.cache.held.line)
	return 0, nil
}

// appendHeldBack runs the second pass if the first has ended with errHeldBack.
func (sl *scrapeLoop) appendHeldBack(app scrapeLoopAppendAdapter, b []byte, contentType string, ts time.Time, err error) error {
	held := &sl.cache.held
	if errors.Is(err, errHeldBack) {
		held.appending = true
		_, _, _, err = app.append(b, contentType, ts)
	}
	held.appending, held.lines = false, nil
	return err
}

// appendFailed is called after a scrape was rolled back. The storage does not have the
// series that it created: those behind the first entries that were known, and those that the
// storage had collected. Their entries stay, so that the next scrape builds no labels.
func (c *scrapeCache) appendFailed(known int) {
	c.held.until = c.iter + 1 + holdFor
	for i := known; i < c.lines.kept.n; i++ {
		c.lines.kept.at(i).forgetSeries()
	}
	for _, i := range c.lines.recreated {
		c.lines.kept.at(i).forgetSeries()
	}
}

func (e *cacheEntry) forgetSeries() { e.ref, e.tracked = 0, 0 }
