// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package ingest

import (
	"context"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
)

// Appender returns app for one scrape, in which samples of series that are refused get
// storage.ErrSeriesRefused.
func (g *Gate) Appender(app storage.AppenderV2) storage.AppenderV2 {
	if !g.active() {
		return app
	}
	return &judging{AppenderV2: app, gate: g, source: Scrape}
}

// judging asks about each series that the head does not have.
type judging struct {
	storage.AppenderV2
	gate   *Gate
	source Source
	buf    []byte
	// families has what was decided about families before: it is the same for all of one.
	families map[uint64]*decision
}

// decision is what was decided about a family, and for how many of its series.
type decision struct {
	err    *refusal
	series int
}

// familySize is how many series of a family share its decision. A family that has more
// is no histogram that anybody reads.
const familySize = 1000

// Append implements storage.AppenderV2. A series with a reference exists.
func (a *judging) Append(ref storage.SeriesRef, ls labels.Labels, st, t int64, v float64, h *histogram.Histogram, fh *histogram.FloatHistogram, opts storage.AppendV2Options) (storage.SeriesRef, error) {
	if ref == 0 {
		if refused := a.refuse(ls); refused != nil {
			if a.source == Scrape && a.gate.opts.RejectScrapes {
				return 0, errRejected
			}
			return 0, refused
		}
	}
	return a.AppenderV2.Append(ref, ls, st, t, v, h, fh, opts)
}

// refuse says why the series is refused, or returns nil.
func (a *judging) refuse(ls labels.Labels) *refusal {
	ls = ls.WithoutEmpty()
	has := (*a.gate.head.Load()).HasSeries
	if has(ls) {
		return nil
	}
	refused := a.judge(ls, has)
	if refused != nil {
		a.gate.tell(a.source, ls, refused)
	}
	return refused
}

func (a *judging) judge(ls labels.Labels, has func(labels.Labels) bool) *refusal {
	fam, buf, ok := familyOf(ls, a.buf)
	a.buf = buf
	if !ok {
		return a.gate.judge(a.source, ls, false)
	}
	if d := a.families[fam.key]; d != nil {
		if d.series++; d.series <= familySize {
			return d.err
		}
		return a.gate.judge(a.source, ls, false)
	}
	if a.families == nil {
		a.families = map[uint64]*decision{}
	}
	d := &decision{err: a.gate.judge(a.source, ls, fam.others(ls, has)), series: 1}
	a.families[fam.key] = d
	return d.err
}

// received is the appender of a request. The sender cannot do anything with a series
// that is refused but leave it out: the request goes on without it, and the answer says
// how many there were.
type received struct {
	judging
	exemplars storage.ExemplarAppenderV2
	tally     *tally
}

// Received returns app for one request that brings samples, whose context has what
// Answer needs.
func (g *Gate) Received(ctx context.Context, source Source, app storage.AppenderV2) storage.AppenderV2 {
	t, _ := ctx.Value(tallyKey{}).(*tally)
	if t == nil || !g.active() {
		return app
	}
	exemplars, _ := app.(storage.ExemplarAppenderV2)
	return &received{judging{AppenderV2: app, gate: g, source: source}, exemplars, t}
}

// Append implements storage.AppenderV2.
func (a *received) Append(ref storage.SeriesRef, ls labels.Labels, st, t int64, v float64, h *histogram.Histogram, fh *histogram.FloatHistogram, opts storage.AppendV2Options) (storage.SeriesRef, error) {
	if ref == 0 {
		if refused := a.refuse(ls); refused != nil {
			a.tally.add(refused, ls, h != nil || fh != nil)
			return 0, nil
		}
	}
	return a.AppenderV2.Append(ref, ls, st, t, v, h, fh, opts)
}

// AppendExemplars implements storage.ExemplarAppenderV2. A series without a reference
// that the head does not have was refused.
func (a *received) AppendExemplars(ref storage.SeriesRef, ls labels.Labels, exemplars []exemplar.Exemplar) (storage.SeriesRef, error) {
	if ref == 0 && a.tally.samples+a.tally.histograms > 0 && !(*a.gate.head.Load()).HasSeries(ls.WithoutEmpty()) {
		a.tally.exemplars += len(exemplars)
		return 0, nil
	}
	return a.exemplars.AppendExemplars(ref, ls, exemplars)
}

// Rules returns an appendable for rules: they get an error for a series that is refused.
func (g *Gate) Rules(a storage.AppendableV2) storage.AppendableV2 { return rules{a, g} }

type rules struct {
	storage.AppendableV2
	gate *Gate
}

// AppenderV2 implements storage.AppendableV2.
func (r rules) AppenderV2(ctx context.Context) storage.AppenderV2 {
	app := r.AppendableV2.AppenderV2(ctx)
	if !r.gate.active() {
		return app
	}
	return &judging{AppenderV2: app, gate: r.gate, source: Rule}
}
