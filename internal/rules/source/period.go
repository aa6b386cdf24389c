// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package source

import "time"

// Period says when the queries of query logs were made.
type Period struct {
	// Queries counts entries that could be read, From and To are the times of the
	// first and the last of those that tell when they were made.
	Queries  int
	From, To time.Time
}

func (p *Period) add(at time.Time) {
	p.Queries++
	p.extend(at)
}

func (p *Period) extend(at time.Time) {
	if at.IsZero() {
		return
	}
	if p.From.IsZero() || at.Before(p.From) {
		p.From = at
	}
	if at.After(p.To) {
		p.To = at
	}
}

func (p *Period) merge(o Period) {
	p.Queries += o.Queries
	p.extend(o.From)
	p.extend(o.To)
}
