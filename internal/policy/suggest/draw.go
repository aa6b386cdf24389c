// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"math"
	"slices"
	"strings"

	"github.com/promguard/promguard/internal/querylimit"
)

// percentile is that at which limits are drawn.
const percentile = 0.99

// Line is what is said about one limit.
type Line struct {
	// Tenant is empty for everybody.
	Tenant string `json:"tenant,omitempty"`
	Limit  string `json:"limit"`
	// Requests had any of it. P99 and Most are of those.
	Requests int    `json:"requests"`
	P99      string `json:"p99"`
	Most     string `json:"most"`
	// Now and Then are the value with its mode; Then is empty if it stays, and Why
	// says for what reason.
	Now  string `json:"now"`
	Then string `json:"suggested,omitempty"`
	Why  string `json:"stays_because,omitempty"`

	target *target
	amount float64 // that is to be allowed
	mode   querylimit.Mode
}

// drawing is a policy file for which limits are drawn.
type drawing struct {
	Options

	evidence *Evidence
	text     []byte
}

func (d *drawing) draw(before *querylimit.Ruleset) ([]Line, error) {
	everybody := before.Tenant("").Options()
	limits := append([]querylimit.Options{everybody}, before.Variants(everybody)...)
	for _, name := range before.Tenants() {
		limits = append(limits, before.Tenant(name).Options())
	}
	var lines []Line
	for _, t := range targets() {
		if l, ok := d.line(&t, &d.evidence.all, limits); ok {
			lines = append(lines, l)
		}
	}
	after, _, err := rewrite(d.text, lines)
	if err != nil {
		return nil, err
	}
	for name, s := range d.evidence.tenants {
		if s.requests < d.MinRequests {
			continue
		}
		was, is := before.Tenant(name).Options(), after.Tenant(name).Options()
		limits := append([]querylimit.Options{was}, before.Variants(was)...)
		for _, t := range targets() {
			l, ok := d.line(&t, s, limits)
			if l.Tenant = name; ok && l.Requests >= d.MinRequests && l.needed(&is) {
				lines = append(lines, l)
			}
		}
	}
	slices.SortStableFunc(lines, func(a, b Line) int { return strings.Compare(a.Tenant, b.Tenant) })
	return lines, nil
}

// line says which value a limit should have. The first of limits are those in which it
// would stand, the others those that inherit from them what they do not change.
func (d *drawing) line(t *target, seen *seen, limits []querylimit.Options) (l Line, ok bool) {
	s := seen.values[t.name]
	if s == nil {
		return l, false
	}
	has, mode := t.get(&limits[0])
	floor, refuses, noDefault := t.floor, false, false
	for i := range limits {
		amount, mode := t.get(&limits[i])
		if amount != has {
			continue // It is not inherited.
		}
		refuses = refuses || mode == querylimit.ModeEnforce
		if t.name == querylimit.LimitMetadataRange {
			byDefault := limits[i].MetadataRange.Default
			floor, noDefault = max(floor, float64(byDefault)), noDefault || byDefault == 0
		}
	}
	if noDefault { // Requests without a start get all that the bound allows.
		s = s.withInfinite(seen.noStart)
	}
	p99, most := s.high(percentile), s.high(1)
	l = Line{Limit: t.name, Requests: s.count, P99: t.text(p99), Most: t.text(most), Now: t.with(has, mode), target: t, amount: has, mode: mode}
	base := p99
	if refuses {
		base = most
	}
	amount := t.bound(base, d.Margin, floor)
	tighter := mode == querylimit.ModeOff || amount < has
	switch {
	case s.count < d.MinRequests:
		l.Why = "too few"
	case math.IsInf(amount, 1):
		l.Why = "more than can be bounded"
	case !tighter && base > has:
		l.Why = "already exceeded"
	case !tighter:
		l.Why = "tight enough"
	case tighter && refuses && d.evidence.partial && t.hasMode(): // A deadline follows from the slow ones.
		l.Why = "the log leaves out fast requests"
	default:
		if mode == querylimit.ModeOff {
			l.mode = querylimit.ModeObserve
		}
		l.amount, l.Then = amount, t.with(amount, l.mode)
	}
	return l, true
}

// needed reports whether a tenant needs the line beside everybody's limits, which
// are tighter than what it does or at least twice as loose. What is to stay for the
// tenant then stays as it was.
func (l *Line) needed(everybody *querylimit.Options) bool {
	amount, mode := l.target.get(everybody)
	off := l.mode == querylimit.ModeOff && mode != querylimit.ModeOff
	if math.IsInf(amount, 1) || math.IsInf(l.amount, 1) || !off && amount >= l.amount && amount < 2*l.amount {
		return false
	}
	l.Then, l.Why = l.target.with(l.amount, l.mode), ""
	return true
}
