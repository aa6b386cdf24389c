// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package reads

import (
	"os"
	"runtime"
	"sync"
)

// poller makes Go's scheduler look at the network. It does so by itself when a
// processor has nothing to run, but runtime.Gosched leaves the caller to be run:
// processors that only yield never poll. Whoever waits for a pipe leaves nothing,
// and is woken by the poll that finds the byte in it, together with all whose
// connections have something for them. A poll takes 2 microseconds. A sleep is no
// poll: one that is over at once polls nothing, any other takes a millisecond.
type poller struct {
	mtx  sync.Mutex
	r, w *os.File
}

// newPoller returns a poller that only yields if there are no pipes.
func newPoller() *poller {
	p := &poller{}
	if r, w, err := os.Pipe(); err == nil {
		p.r, p.w = r, w
	}
	return p
}

// now returns when the network has been polled. Safe for concurrent use.
func (p *poller) now() {
	if p.r == nil {
		runtime.Gosched()
		return
	}
	p.mtx.Lock()
	defer p.mtx.Unlock()
	var b [1]byte
	go func() { _, _ = p.w.Write([]byte{0}) }() // Runs when the caller waits.
	_, _ = p.r.Read(b[:])
}
