// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import (
	"fmt"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/timestamp"
)

// Validate returns an error that says what is wrong with r.
func (r *MetadataRange) Validate() error {
	switch {
	case r.Default < 0 || r.Max < 0:
		return fmt.Errorf("%s is negative: use 0 for none, or a positive duration", LimitMetadataRange)
	case r.Max > 0 && r.Default > r.Max:
		return fmt.Errorf("%s: default %s is more than max %s", LimitMetadataRange, model.Duration(r.Default), model.Duration(r.Max))
	}
	return nil
}

// metadataRange is the limit on the time range of metadata requests.
type metadataRange struct{}

func (metadataRange) name() string { return LimitMetadataRange }

// span returns what a request with a start reads; ok is false if it has none.
func (metadataRange) span(a *asked) (d time.Duration, ok bool) {
	return between(timestamp.FromTime(a.Start), timestamp.FromTime(a.lastMetadata())), a.Endpoint.Reads == ReadsMetadata && !a.Start.IsZero()
}

// lastMetadata is the end of what is read: there is nothing yet to come.
func (a *asked) lastMetadata() time.Time {
	if a.End.IsZero() || a.End.After(a.now) {
		return a.now
	}
	return a.End
}

func (l metadataRange) check(p *Policy, a *asked) *Refusal {
	b := p.opts.MetadataRange
	if b.Mode == ModeOff || a.Endpoint.Reads != ReadsMetadata {
		return nil
	}
	span, ok := l.span(a)
	switch {
	case !ok && b.length() > 0 && b.Mode != ModeEnforce:
		return p.refuse(LimitMetadataRange, b.Mode, "Give the request a start.",
			"a request without start", "reads all time, and only the last "+text(b.length())+" once the limit is enforced", "")
	case ok && b.Max > 0 && span > b.Max:
		return p.refuse(LimitMetadataRange, b.Mode, "Ask for a later start.",
			"a request that reads "+text(span), "exceeds the "+text(b.Max)+" allowed", raise(LimitMetadataRange))
	}
	return nil
}

// start returns from when on the server is to read for a request that does not say; ok
// is false if it is to get what it was sent.
func (metadataRange) start(p *Policy, a *asked) (t time.Time, ok bool) {
	b := p.opts.MetadataRange
	if a.Endpoint.Reads != ReadsMetadata || !a.Start.IsZero() || b.Mode != ModeEnforce || b.length() == 0 {
		return t, false
	}
	return a.lastMetadata().Add(-b.length()), true
}

// length is what a request without start reads; 0 means all.
func (r *MetadataRange) length() time.Duration {
	if r.Max > 0 && (r.Default == 0 || r.Default > r.Max) {
		return r.Max
	}
	return r.Default
}

// explain has nothing to say: it is about queries.
func (metadataRange) explain(*Policy, *asked) (f Finding, ok bool) { return f, false }

func (l metadataRange) measure(a *asked) (float64, bool) {
	span, ok := l.span(a)
	return float64(span), ok
}
