// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"fmt"
	"time"
)

// State says how near the process is to what it may use.
type State int

// The states, in the order in which the server degrades.
const (
	// OK: nothing is held back.
	OK State = iota
	// Tight: what can be made smaller becomes smaller.
	Tight
	// Critical: nothing new is taken on.
	Critical
)

// States are all states.
var States = []State{OK, Tight, Critical}

// String implements fmt.Stringer.
func (s State) String() string {
	switch s {
	case OK:
		return "ok"
	case Tight:
		return "tight"
	case Critical:
		return "critical"
	}
	return fmt.Sprintf("state %d", int(s))
}

// MarshalText implements encoding.TextMarshaler.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Shares of a limit at which states begin and end. Of the memory that lives, what
// is left of the limit is for garbage: with less than a seventh of it the collector
// takes more of the processors than all else. What the process holds as the kernel
// sees it includes garbage, and by intent comes near GOMEMLIMIT, which is nine tenths
// of a container's memory by default: it only says something beyond that.
var (
	liveShares     = shares{begin: [...]float64{Tight: 0.70, Critical: 0.85}, end: [...]float64{Tight: 0.65, Critical: 0.80}}
	residentShares = shares{begin: [...]float64{Tight: 0.95, Critical: 0.975}, end: [...]float64{Tight: 0.93, Critical: 0.95}}
)

type shares struct{ begin, end [Critical + 1]float64 }

// of returns the state of something that is so large a share of its limit. It is
// that in which it was, unless it has left it clearly.
func (s *shares) of(share float64, was State) State {
	for state := Critical; state > OK; state-- {
		if share >= s.begin[state] || was >= state && share >= s.end[state] {
			return state
		}
	}
	return OK
}

const (
	// confirm is how long memory must be critical before the state is, if reads may hold
	// it, which are stopped first. Beyond the share alarm it is at once.
	confirm = 500 * time.Millisecond
	alarm   = 0.95
	// linger is how long memory must be better before the state is: the explosion that
	// was refused goes on, and would be back at once.
	linger = 15 * time.Second
)

// machine has the state, from one usage to the next.
type machine struct {
	state State
	since time.Time
	// pending is another state that the usage says, since when.
	pending      State
	pendingSince time.Time
}

// next takes a usage into account and returns whether the state has changed.
func (m *machine) next(u Usage, now time.Time) bool {
	says, share, sure := OK, 0.0, false
	if u.Limit > 0 {
		share = float64(u.liveNow()) / float64(u.Limit)
		says = liveShares.of(share, m.state)
		if says >= Tight {
			expected := float64(u.expected())
			says = liveShares.of(expected/float64(u.Limit), m.state)
			sure = expected-float64(u.transient) >= liveShares.begin[Critical]*float64(u.Limit)
		}
	}
	if u.Kill > 0 {
		says = max(says, residentShares.of(float64(u.Resident)/float64(u.Kill), m.state))
	}
	if says == m.state {
		m.pending = m.state
		return false
	}
	if says != m.pending {
		m.pending, m.pendingSince = says, now
	}
	wait := linger
	switch {
	case says == Critical && share < alarm && !sure:
		wait = confirm
	case says > m.state:
		wait = 0
	}
	if now.Sub(m.pendingSince) < wait {
		// On the way to critical it is tight at least.
		if says > Tight && m.state < Tight {
			m.state, m.since = Tight, now
			return true
		}
		return false
	}
	m.state, m.since, m.pending = says, now, says
	return true
}
