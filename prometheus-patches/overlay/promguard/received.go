// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package promguard

import (
	"context"
	"net/http"

	"github.com/prometheus/prometheus/internal/relabel"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promguard/ingest"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/web/api/v1"
)

// Received returns what takes the samples that are received by remote write and
// OTLP: a, behind the drop rules that hold for them.
func (f *Flags) Received(a storage.AppendableV2) storage.AppendableV2 {
	if f.dropRules == nil && f.series.gate == nil {
		return a
	}
	return received{a, f.dropRules, f.series.gate}
}

type received struct {
	storage.AppendableV2
	rules *dropRules   // nil: nothing is dropped.
	gate  *ingest.Gate // nil: no series is refused.
}

// sources are what the paths are called where series are refused.
var sources = map[string]ingest.Source{v1.PathRemoteWrite: ingest.RemoteWrite, v1.PathOTLP: ingest.OTLP}

// Answer implements v1.ReceivedAppendable.
func (r received) Answer(path string, h http.Handler) http.Handler {
	if r.gate == nil {
		return h
	}
	return r.gate.Answer(sources[path], h)
}

// ReceivedBy implements v1.ReceivedAppendable.
func (r received) ReceivedBy(path string) storage.AppendableV2 {
	return receivedBy{r, path}
}

type receivedBy struct {
	received
	path string
}

// AppenderV2 implements storage.AppendableV2. Each request has an appender of its
// own, and is judged by the rules of its time.
func (r receivedBy) AppenderV2(ctx context.Context) storage.AppenderV2 {
	app := r.AppendableV2.AppenderV2(ctx)
	if r.gate != nil {
		app = r.gate.Received(ctx, sources[r.path], app)
	}
	rules := r.rules.received(r.path)
	if rules == nil {
		return app
	}
	dropping := droppingAppender{app, rules, r.rules.counters.Received(rules, r.path)}
	if exemplars, ok := app.(storage.ExemplarAppenderV2); ok {
		return droppingExemplarAppender{dropping, exemplars}
	}
	return dropping
}

// received returns the rules for what comes by the path, or nil if there are none.
func (r *dropRules) received(path string) *relabel.Dropper {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch profile := r.flag.of(path); profile {
	case relabel.ProfileOff:
		return nil
	case r.flag.source:
		return r.inForce
	default:
		return r.named(profile, "")
	}
}

// droppingAppender leaves out the samples of series that are dropped. Whoever
// appends them is told that they were appended: the sender could do nothing else
// with them.
type droppingAppender struct {
	storage.AppenderV2
	rules *relabel.Dropper
	// drop asks the rules and counts a sample that they drop.
	drop func(labels.Labels) bool
}

// Append implements storage.AppenderV2. A series with a reference was appended.
func (a droppingAppender) Append(ref storage.SeriesRef, ls labels.Labels, st, t int64, v float64, h *histogram.Histogram, fh *histogram.FloatHistogram, opts storage.AppendV2Options) (storage.SeriesRef, error) {
	if ref == 0 && a.drop(ls) {
		return 0, nil
	}
	return a.AppenderV2.Append(ref, ls, st, t, v, h, fh, opts)
}

type droppingExemplarAppender struct {
	droppingAppender
	exemplars storage.ExemplarAppenderV2
}

// AppendExemplars implements storage.ExemplarAppenderV2. Where the series has no
// reference, its samples were refused or dropped.
func (a droppingExemplarAppender) AppendExemplars(ref storage.SeriesRef, ls labels.Labels, exemplars []exemplar.Exemplar) (storage.SeriesRef, error) {
	if _, dropped := a.rules.Drop(ls); ref == 0 && dropped {
		return 0, nil
	}
	return a.exemplars.AppendExemplars(ref, ls, exemplars)
}
