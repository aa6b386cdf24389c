// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package readapi

import "time"

// roomBytes is how much of an answer a client may have taken before the server
// hears of any of it, over two connections with a proxy between. Linux says that
// a connection's buffer, of 4 MB at most, has room again when a third of it is free.
const roomBytes = 2 << 20

// pace judges how fast a client takes its answer: by bytes over time, and only the
// time in which it was waited for. The zero value never judges.
type pace struct {
	rate int64 // Bytes per second.
	// patience is how long the client may stand still, left how long it may from now
	// on: each byte that it takes adds to it what that may take.
	patience, left time.Duration
}

func newPace(rate int64) pace {
	if rate == 0 {
		return pace{}
	}
	patience := writeGrace + lasts(roomBytes, rate)
	return pace{rate: rate, patience: patience, left: patience}
}

// lasts returns how long n bytes may take.
func lasts(n, rate int64) time.Duration {
	return time.Duration(float64(n) / float64(rate) * float64(time.Second))
}

// took notes that the client has taken n bytes for which it was waited for so long.
func (p *pace) took(n int, waited time.Duration) {
	if p.rate == 0 {
		return
	}
	p.left = min(p.left-waited+lasts(int64(n), p.rate), p.patience)
}

// clock is the deadline of a request that does not run while its client is waited
// for. A nil *clock does nothing.
type clock struct {
	timer *time.Timer
	ends  time.Time
	left  time.Duration
}

func newClock(d time.Duration, expired func()) *clock {
	return &clock{timer: time.AfterFunc(d, expired), ends: time.Now().Add(d)}
}

func (c *clock) pause() {
	if c != nil && c.timer.Stop() {
		c.left = max(1, time.Until(c.ends))
	}
}

func (c *clock) resume() {
	if c != nil && c.left > 0 {
		c.ends = time.Now().Add(c.left)
		c.timer.Reset(c.left)
		c.left = 0
	}
}

func (c *clock) stop() {
	if c != nil {
		c.timer.Stop()
	}
}
