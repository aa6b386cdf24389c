// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"runtime"
	"sync/atomic"
	"time"
)

// calm is how long nobody has waited for a turn when a crowd is over.
const calm = 10 * time.Second

// crowd raises GOMAXPROCS while reads wait for their turn. With GOMAXPROCS below
// 4, Go's garbage collector takes a share of each processor, in slices of 10 to
// 20 ms in which that one neither polls the network nor runs anything else; when
// all are in such a slice at once, nobody is answered. From 4 on it marks on a
// quarter of them. More threads than processors cost some percent of CPU time, so
// it is not for always. A nil *crowd does nothing.
type crowd struct {
	procs  int
	raised atomic.Bool
	// waited is when a read has last waited, in nanoseconds since 1970.
	waited atomic.Int64
}

func newCrowd(procs int) *crowd {
	if procs == 0 {
		return nil
	}
	return &crowd{procs: procs}
}

// isThere notes that reads wait for their turn.
func (c *crowd) isThere() {
	if c == nil {
		return
	}
	c.waited.Store(time.Now().UnixNano())
	if c.raised.CompareAndSwap(false, true) {
		go c.raise() // Waits for the end of a collection that is going on.
	}
}

func (c *crowd) raise() {
	before := runtime.GOMAXPROCS(0)
	if before < c.procs {
		runtime.GOMAXPROCS(c.procs)
	}
	for {
		left := calm - time.Since(time.Unix(0, c.waited.Load()))
		if left <= 0 {
			break
		}
		time.Sleep(left)
	}
	if before < c.procs {
		runtime.GOMAXPROCS(before)
	}
	c.raised.Store(false)
}
