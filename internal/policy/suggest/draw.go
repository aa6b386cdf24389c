// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"math"

	"github.com/promguard/promguard/internal/querylimit"
)

// percentile is that at which limits are drawn.
const percentile = 0.99

// draw says which value a limit should have; line.Then is empty if it is to stay.
// Refuses is set if it refuses requests at once, or some of them.
func (w *writer) draw(t *target, now *querylimit.Options, s *sketch, refuses bool) (line Line, value float64) {
	present, mode := t.get(now)
	p99, most := s.high(percentile), s.most()
	if t.lower {
		p99, most = s.low(percentile), s.min
	}
	line = Line{Limit: t.name, Requests: s.count, P99: t.text(p99), Most: t.text(most), Now: t.with(present, mode)}
	base := p99
	if refuses {
		base = most
	}
	switch {
	case w.withdrawn[t.path[0]] != "":
		line.Why = w.withdrawn[t.path[0]]
		return line, 0
	case s.count < w.opts.MinRequests:
		line.Why = "too few"
		return line, 0
	case math.IsInf(base, 1):
		line.Why = "too many without any bound"
		return line, 0
	case base > t.most && !t.lower:
		line.Why = "more than can be bounded"
		return line, 0
	}
	value = t.bound(base, w.opts.Margin)
	tighter, fits := value < present, base <= present
	if t.lower {
		tighter, fits = value > present, base >= present
	}
	tighter = tighter || mode == querylimit.ModeOff || present == 0
	switch {
	case value <= 0: // Of a lower bound that would be below its unit.
		line.Why = "no bound would be left"
		return line, 0
	case !tighter && !(w.opts.Looser && value != present):
		line.Why = "tight enough"
		if !fits {
			line.Why = "already exceeded"
		}
	case tighter && refuses && w.partial && t.mode != nil: // A deadline follows from the slow ones.
		line.Why = "the log leaves out fast requests"
	default:
		if mode == querylimit.ModeOff {
			mode = w.opts.Mode
		}
		line.Then = t.with(value, mode)
	}
	return line, value
}

// bound is what was seen with a margin, not beyond what costs nothing anyway.
func (t *target) bound(base, margin float64) float64 {
	if t.lower {
		return t.round(min(base/margin, t.floor))
	}
	return min(max(t.round(max(base*margin, t.floor)), t.least), t.most)
}

// with returns a value as text with its mode.
func (t *target) with(value float64, mode querylimit.Mode) string {
	text := t.text(value)
	if value == 0 && t.least == 0 && (t.duration || t.most == math.MaxInt32) {
		text = "none"
	}
	if t.mode == nil {
		return text
	}
	return mode.String() + " " + text
}
