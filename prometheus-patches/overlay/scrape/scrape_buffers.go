// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package scrape

import (
	"bytes"
	"cmp"
	"runtime"
	"slices"
	"sync"
	"weak"
)

// largeBody is from how many bytes on a buffer for a body is one of largeBodies. The
// pool of upstream, for smaller ones, may hold one for each processor and size.
const largeBody = 1 << 18

// bodyBuffer returns an empty buffer for the next body of a target, and what gives it
// back. It has room for a body that is a little longer than the last one, as it is when
// counters get digits: to grow is to allocate it twice as large.
func (sl *scrapeLoop) bodyBuffer() (b []byte, giveBack func()) {
	n := sl.lastScrapeSize + sl.lastScrapeSize/64 + bytes.MinRead
	if n < largeBody {
		b = sl.buffers.Get(n).([]byte)
		return b, func() { sl.buffers.Put(b) }
	}
	body := largeBodies.get(n)
	return body.b, func() { largeBodies.put(body) }
}

// largeBodies are the buffers of all scrape loops.
var largeBodies bodyList

// bodyList has buffers that nobody uses. It is nothing that keeps them: those that are
// in it when the garbage collector runs are collected, and add nothing to its goal.
type bodyList struct {
	mu   sync.Mutex
	free []freeBody // by size
}

type body struct{ b []byte }

// freeBody points to a buffer. To ask it for the buffer while garbage is collected is to
// keep it, so only who uses it then asks.
type freeBody struct {
	size int
	body weak.Pointer[body]
}

// get returns a buffer with room for n bytes, and for less than twice as many if it was
// used before.
func (l *bodyList) get(n int) *body {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := l.from(n); i < len(l.free) && l.free[i].size < 2*n; i++ {
		if found := l.free[i].body.Value(); found != nil {
			l.free = slices.Delete(l.free, i, i+1)
			return found
		}
	}
	made := &body{make([]byte, 0, n)}
	runtime.AddCleanup(made, l.forget, freeBody{n, weak.Make(made)})
	return made
}

// put takes a buffer back that get has returned.
func (l *bodyList) put(b *body) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free = slices.Insert(l.free, l.from(cap(b.b)), freeBody{cap(b.b), weak.Make(b)})
}

// forget removes a buffer that was collected.
func (l *bodyList) forget(f freeBody) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.free, f); i >= 0 {
		l.free = slices.Delete(l.free, i, i+1)
	}
}

// from returns the index of the first buffer with room for n bytes.
func (l *bodyList) from(n int) int {
	i, _ := slices.BinarySearchFunc(l.free, n, func(f freeBody, n int) int { return cmp.Compare(f.size, n) })
	return i
}
