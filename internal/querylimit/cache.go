// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package querylimit

import "sync"

// textCache remembers values by text within a bound of bytes. It keeps two
// generations: when the young one is full it becomes the old one, and what is
// asked for again moves back. That forgets about as well as a list by age does,
// and a hit costs one lookup under a read lock. Safe for concurrent use.
type textCache[V any] struct {
	mu         sync.RWMutex
	limit      int // bytes of one generation
	bytes      int // of the young one
	young, old map[string]*cached[V]
}

type cached[V any] struct {
	text  string
	value V
	bytes int
}

// newTextCache returns a cache of about maxBytes in all; 0 means one that
// remembers nothing.
func newTextCache[V any](maxBytes int) *textCache[V] {
	return &textCache[V]{limit: maxBytes / 2, young: map[string]*cached[V]{}}
}

func (c *textCache[V]) get(text string) (V, bool) {
	c.mu.RLock()
	e, ok := c.young[text]
	if ok {
		c.mu.RUnlock()
		return e.value, true
	}
	e, ok = c.old[text]
	c.mu.RUnlock()
	if !ok {
		var none V
		return none, false
	}
	c.put(e.text, e.value, e.bytes)
	return e.value, true
}

// put remembers value, which holds about so many bytes besides the text. What is
// larger than a tenth of a generation would push out too much, and is not kept.
// The text must be no part of a longer one, such as a request, which it would
// keep in memory.
func (c *textCache[V]) put(text string, value V, bytes int) {
	const entry = 128 // of the map itself
	total := bytes + len(text) + entry
	if total > c.limit/10 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.young[text]; ok {
		return
	}
	if c.bytes+total > c.limit {
		c.old, c.young, c.bytes = c.young, map[string]*cached[V]{}, 0
	}
	c.young[text] = &cached[V]{text, value, bytes}
	c.bytes += total
}
