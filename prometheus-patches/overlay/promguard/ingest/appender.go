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

// Judge returns what is asked about each series of one scrape that the scrape does not
// know: an error says why it is refused, or fails the scrape. One scrape may be all that
// memory was left for, so that the state is looked at for each series.
func (g *Gate) Judge() func(labels.Labels) error {
	return (&judge{gate: g, source: Scrape}).check
}

// judge asks about each series that the head does not have.
type judge struct {
	gate   *Gate
	source Source
	buf    []byte
	// last is the series that was let in last while nothing was refused.
	last labels.Labels
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

// check returns the error for a series that is refused.
func (j *judge) check(ls labels.Labels) error {
	switch refused := j.refuse(ls); {
	case refused == nil:
		return nil
	case j.source == Scrape && j.gate.opts.RejectScrapes:
		return errRejected
	default:
		return refused
	}
}

// refuse says why the series is refused, or returns nil.
func (j *judge) refuse(ls labels.Labels) *refusal {
	if !j.gate.asks(ls) {
		j.last = ls
		return nil
	}
	ls = ls.WithoutEmpty()
	has := (*j.gate.head.Load()).HasSeries
	if has(ls) {
		return nil
	}
	refused := j.decide(ls, has)
	if refused != nil {
		j.gate.tell(j.source, ls, refused)
	}
	return refused
}

func (j *judge) decide(ls labels.Labels, has func(labels.Labels) bool) *refusal {
	fam, buf, ok := familyOf(ls, j.buf)
	j.buf = buf
	if !ok {
		return j.gate.judge(j.source, ls, false)
	}
	if d := j.families[fam.key]; d != nil {
		d.series++
		if d.series <= familySize {
			return d.err
		}
		return j.gate.judge(j.source, ls, false)
	}
	if j.families == nil {
		j.families = map[uint64]*decision{}
		// What has begun is let in as a whole.
		if last, buf, ok := familyOf(j.last, j.buf); ok {
			j.buf = buf
			j.families[last.key] = &decision{series: 1}
			if last.key == fam.key {
				return nil
			}
		}
	}
	d := &decision{err: j.gate.judge(j.source, ls, fam.others(ls, has)), series: 1}
	j.families[fam.key] = d
	return d.err
}

// received is the appender of a request. The sender cannot do anything with a series
// that is refused but leave it out: the request goes on without it, and the answer says
// how many there were.
type received struct {
	storage.AppenderV2
	judge
	exemplars storage.ExemplarAppenderV2
	tally     *tally
}

// Received returns app for one request that brings samples, whose context has what
// Answer needs.
func (g *Gate) Received(ctx context.Context, source Source, app storage.AppenderV2) storage.AppenderV2 {
	t, _ := ctx.Value(tallyKey{}).(*tally)
	if t == nil {
		return app
	}
	exemplars, _ := app.(storage.ExemplarAppenderV2)
	return &received{app, judge{gate: g, source: source}, exemplars, t}
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
	return &ruleAppender{r.AppendableV2.AppenderV2(ctx), judge{gate: r.gate, source: Rule}}
}

type ruleAppender struct {
	storage.AppenderV2
	judge
}

// Append implements storage.AppenderV2.
func (a *ruleAppender) Append(ref storage.SeriesRef, ls labels.Labels, st, t int64, v float64, h *histogram.Histogram, fh *histogram.FloatHistogram, opts storage.AppendV2Options) (storage.SeriesRef, error) {
	if ref == 0 {
		if err := a.check(ls); err != nil {
			return 0, err
		}
	}
	return a.AppenderV2.Append(ref, ls, st, t, v, h, fh, opts)
}
